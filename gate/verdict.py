"""The verdict on a target: plain data that every report is made from."""

from __future__ import annotations

import json
import platform
from collections import Counter
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from bucketproof.properties.outcome import Outcome

SCHEMA = 1
"""The version of the JSON form. It changes when a reader of the former one would misread the new one."""


@dataclass(frozen=True)
class Verdict:
    """What became of every cell. Two runs of one request differ in their `seconds` alone, here and in cells."""

    target: str
    origin: dict[str, str]
    """Where the target was taken from, such as a released wheel's version and SHA-256."""
    profile: str
    seed: int
    environment: dict[str, str]
    seconds: float
    cells: tuple[Outcome, ...]
    provenances: dict[str, str]
    """The custody of each provenance that has a cell."""

    @property
    def counts(self) -> dict[str, int]:
        """How many cells have each status."""
        return dict(Counter(cell.status for cell in self.cells))

    @property
    def exit_code(self) -> int:
        """0 if every promise holds, 1 if one is broken, 3 if neither can be said.

        A broken promise is known whatever happened elsewhere, so 1 goes before 3.
        """
        if any(cell.status == "fail" and cell.level == "MUST" for cell in self.cells):
            return 1
        return 3 if not self.cells or self.counts.get("error") else 0

    def to_json(self) -> str:
        """The verdict as JSON text."""
        data = {
            "schema": SCHEMA,
            "bucketproof": version("bucketproof"),
            **asdict(self),
            "counts": self.counts,
        }
        return json.dumps({**data, "cells": data.pop("cells")}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Verdict:
        """The inverse of `to_json`. Raises `ValueError` for anything else."""
        data = json.loads(text)
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise ValueError(f"no verdict of bucketproof's in schema version {SCHEMA}")
        cells = tuple(Outcome.from_json(cell) for cell in data["cells"])
        return cls(**{**{name: data[name] for name in cls.__dataclass_fields__}, "cells": cells})


def environment() -> dict[str, Any]:
    """What may bear on a verdict, found out without importing it."""
    versions = {name: version(name) for name in ("torch", "hypothesis")}
    return {"python": platform.python_version(), **versions, "platform": platform.platform()}
