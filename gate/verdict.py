"""The verdict on a target: plain data that every report is made from."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

from bucketproof import extensions
from bucketproof.diff import Baseline, Change
from bucketproof.properties.outcome import Outcome, Status
from bucketproof.request import BadRequest
from bucketproof.schema import problem

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
    promises: dict[str, Any] = field(default_factory=dict)
    """What the target promises, by the names of `Promises`; nothing if that is not known."""
    groups: tuple[str, ...] = ()
    """The groups that were judged beside the plain contract."""
    device: str = "cpu"
    """Where it was judged: on the host, on a device, or on all."""
    strict: bool = False
    """Whether a failing SHOULD counts, and a cell that is listed as known and passes."""
    shard: str | None = None
    """Which part of the cells it is about, as in `2/4`; None if it is about all that were asked for."""
    baseline: Baseline | None = None
    """What this is compared with, if it is: then only what got worse counts."""

    @property
    def counts(self) -> dict[str, int]:
        """How many cells have each status."""
        return dict(Counter(cell.status for cell in self.cells))

    @property
    def changes(self) -> tuple[Change, ...]:
        """What has changed since the baseline, if there is one."""
        return self.baseline.changes(self.cells) if self.baseline else ()

    @property
    def against(self) -> tuple[Outcome, ...]:
        """What counts against the target: cells that fail or have no verdict or, with a baseline, got worse."""
        worse = {change.cell for change in self.changes if change.kind == "worse"}
        return tuple(
            cell
            for cell in self.cells
            if (cell.cell in worse if self.baseline else cell.status in ("fail", "error"))
            and (cell.level == "MUST" or cell.status == "error" or self.strict)
        )

    @property
    def exit_code(self) -> int:
        """0 if nothing counts against the target, 1 if something does, 3 if nothing can be said.

        A broken promise is known whatever happened elsewhere, so 1 goes before 3.
        """
        statuses = {cell.status for cell in self.against}
        if statuses - {"error"} or self._has_stale:
            return 1
        return 3 if statuses or not self.cells or self._lacks_all else 0

    @property
    def meaning(self) -> str:
        """What the exit code says, in words."""
        if self.exit_code == 3:
            return "no verdict"
        if self.exit_code == 0 and self.baseline:
            return "nothing got worse"
        if self.exit_code == 0:
            return f"every promise holds{', but for known failures' if self.counts.get('known') else ''}"
        if all(cell.status == "error" for cell in self.against):
            return "a cell that is listed as known passes"
        return "something got worse" if self.baseline else "a promise is broken"

    @property
    def _lacks_all(self) -> bool:
        """Whether there were cells to judge, and this machine lacks what each of them needs."""
        statuses = {cell.status for cell in self.cells if cell.cell != "smoke"}
        return statuses == {"skipped"}

    @property
    def _has_stale(self) -> bool:
        return self.strict and bool(self.counts.get("fixed"))

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
        try:
            verdict = cls._from_data(data)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"a verdict that is not whole: {error}") from error
        if wrong := problem(data):
            raise ValueError(f"a verdict that is not whole: {wrong}")
        return verdict

    @classmethod
    def _from_data(cls, data: dict[str, Any]) -> Verdict:
        # What an older suite did not know of is as if it had not been asked for.
        fields = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        cells = tuple(Outcome.from_json(cell) for cell in data["cells"])
        if odd := {cell.status for cell in cells}.difference(get_args(Status)):
            raise TypeError(f"no cell can be {' or '.join(sorted(odd))}")
        baseline = data.get("baseline") and Baseline(**data["baseline"])
        groups = tuple(data.get("groups", ()))
        return cls(**{**fields, "cells": cells, "baseline": baseline, "groups": groups})


def gathered(
    records: Iterable[dict[str, Any]], target: dict[str, Any], profile: str, seed: int, seconds: float
) -> Verdict:
    """What records of cells come to. A target is told by its name, its origin and its promises."""
    placed = sorted(records, key=lambda record: tuple(record["place"]))
    return Verdict(
        target=target["name"],
        origin=target["origin"],
        promises=target["promises"],
        profile=profile,
        seed=seed,
        environment=environment(),
        seconds=round(seconds, 3),
        cells=tuple(Outcome.from_json(record["outcome"]) for record in placed),
        provenances={name: custody for each in placed for name, custody in each["custody"].items()},
    )


def read(path: str) -> Verdict:
    """The verdict in a file. Raises `BadRequest`."""
    try:
        return Verdict.from_json(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise BadRequest(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise BadRequest(f"{path} is no verdict, as `check --json` writes them: {reason}") from None


def environment() -> dict[str, Any]:
    """What may bear on a verdict, found out without importing it."""
    versions = {name: version(name) for name in ("bucketproof", "torch", "hypothesis")}
    return {"python": platform.python_version(), **versions, **extensions.versions(), "platform": platform.platform()}
