"""What has changed since an older verdict, the baseline: which cells got worse, which better."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bucketproof.properties.outcome import Level, Outcome, Status

if TYPE_CHECKING:
    from bucketproof.verdict import Verdict

Kind = Literal["worse", "better", "still", "accepted", "new", "gone"]
"""What became of a cell.

- worse: it fails and did not, it has no verdict and had one, or it held and is not judged any more;
- better: it holds, and did not;
- still: it fails, or has no verdict, as before;
- accepted: it fails as one that is listed as known, and was not listed;
- new: it is judged for the first time, and holds or is known;
- gone: it is not judged any more, and it had not held or the request is another.
"""

_CLASS = {"pass": "holds", "fixed": "holds", "unpromised": "unjudged", "skipped": "unjudged", None: "absent"}
"""The statuses that are alike here; each other one is a class of its own."""

_NOW = ("holds", "fail", "known", "error", "unjudged", "absent")
_BECAME: dict[str, tuple[Kind | None, ...]] = {
    "holds": (None, "worse", "accepted", "worse", "worse", "gone"),
    "fail": ("better", "still", "accepted", "worse", "gone", "gone"),
    "known": ("better", "still", None, "worse", "gone", "gone"),
    "error": ("better", "worse", "accepted", "still", "gone", "gone"),
    "unjudged": ("new", "worse", "new", "worse", None, None),
    "absent": ("new", "worse", "new", "worse", None, None),
}
"""For what a cell was, what it became, in the order of `_NOW`."""


def became(before: Status | None, now: Status | None) -> Kind | None:
    """What the step from one status to another is, if it is worth a word; None is for a cell that there is not."""
    return _BECAME[_CLASS.get(before, before or "")][_NOW.index(_CLASS.get(now, now or ""))]


@dataclass(frozen=True)
class Baseline:
    """An older verdict, as far as another one is compared with it."""

    target: str
    profile: str
    seed: int
    statuses: dict[str, Status]
    """What became of each cell."""

    @classmethod
    def of(cls, verdict: Verdict) -> Baseline:
        """What is needed of a verdict to compare another with it."""
        statuses: dict[str, Status] = {cell.cell: cell.status for cell in verdict.cells}
        return cls(verdict.target, verdict.profile, verdict.seed, statuses)

    def changes(self, cells: Iterable[Outcome]) -> tuple[Change, ...]:
        """What has changed: the cells that there are in their order, then those that are gone."""
        now = {cell.cell: cell for cell in cells}
        steps = [
            *((cell.cell, cell.level, self.statuses.get(cell.cell), cell.status) for cell in now.values()),
            *((cell, None, before, None) for cell, before in self.statuses.items() if cell not in now),
        ]
        return tuple(Change(kind, *step) for step in steps if (kind := became(*step[2:])))

    def differences(self, verdict: Verdict) -> str:
        """In what the two were asked for differently, in one line; nothing if in nothing."""
        names = [name for name in ("target", "profile", "seed") if getattr(self, name) != getattr(verdict, name)]
        told = ", ".join(f"{name} {getattr(self, name)} then, {getattr(verdict, name)} now" for name in names)
        return f"Two kinds of run are compared: {told}." if told else ""


@dataclass(frozen=True)
class Change:
    """A cell of which there is something to tell."""

    kind: Kind
    cell: str
    level: Level | None
    """None for a cell that there is not any more."""
    before: Status | None
    now: Status | None

    @property
    def step(self) -> str:
        """`pass -> fail`."""
        return f"{self.before or 'no cell'} -> {self.now or 'no cell'}"
