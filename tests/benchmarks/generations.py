"""The table of the README: what the reference, the published generations and a release keep of the contract.

Run it with `python tests/benchmarks/generations.py smoke`, or another profile. It prints Markdown.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

TARGETS = ("reference", "always-clone", "storage-size", "base-guard", "verl@0.9.1")


def verdict(target: str) -> dict[str, Any]:
    """The verdict on a target, at the profile that was asked for."""
    profile = sys.argv[1] if len(sys.argv) > 1 else "gate"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "verdict.json")
        subprocess.run(
            [sys.executable, "-m", "bucketproof", "check", target, "--profile", profile, "--json", str(path)],
            stdout=subprocess.DEVNULL,
            check=False,
        )
        found: dict[str, Any] = json.loads(path.read_text())
        return found


def by_property(verdict: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The cells of each property."""
    found = defaultdict(list)
    for cell in verdict["cells"]:
        found[cell["cell"].partition("[")[0]].append(cell)
    return found


def summary(cells: list[dict[str, Any]]) -> str:
    """How many of a property's cells are broken."""
    judged = [cell for cell in cells if cell["status"] in ("pass", "fail")]
    failed = [cell for cell in judged if cell["status"] == "fail"]
    if not judged:
        return "unpromised"
    return f"**{len(failed)} of {len(judged)} broken**" if failed else f"{len(judged)} pass"


def main() -> None:
    verdicts = {target: by_property(verdict(target)) for target in TARGETS}
    print("| property |" + "".join(f" `{target}` |" for target in TARGETS))
    print("|---|" + "---|" * len(TARGETS))
    for name in verdicts["reference"]:
        print(f"| `{name}` |" + "".join(f" {summary(found[name])} |" for found in verdicts.values()))


if __name__ == "__main__":
    main()
