"""The verdict as an endpoint of shields.io, which makes a badge of it: https://shields.io/badges/endpoint-badge."""

from __future__ import annotations

import json

from bucketproof.verdict import Verdict

_COLOURS = {0: "brightgreen", 1: "red", 3: "lightgrey"}


def badge(verdict: Verdict) -> str:
    """The badge, as JSON."""
    is_excused = verdict.exit_code == 0 and bool(verdict.counts.keys() & {"known", "fail", "error"})
    color = "yellow" if is_excused else _COLOURS[verdict.exit_code]
    facts = {"schemaVersion": 1, "label": "bucketproof", "message": verdict.meaning, "color": color}
    return json.dumps(facts, indent=2) + "\n"
