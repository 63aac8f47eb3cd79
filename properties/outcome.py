"""What became of a cell: plain data, ready for a report."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Status = Literal["pass", "fail", "known", "fixed", "unpromised", "skipped", "error"]
"""A known cell fails, and a fixed one passes, though it is listed as one that is known to fail."""
Level = Literal["MUST", "SHOULD"]


@dataclass(frozen=True)
class Step:
    """One thing that happened."""

    text: str
    depth: int = 0
    """0, or 1 for what belongs to the step before."""
    wrong: bool = False
    """Whether the broken promise shows here."""


@dataclass(frozen=True)
class Mark:
    """Who has to do with which bytes of a storage, from `start` to before `end`."""

    kind: Literal["handed-over", "overwritten", "held"]
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Storage:
    """A piece of memory, and what became of it, in the order in which it did."""

    text: str
    nbytes: int
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Failure:
    """Why a cell failed, on the smallest plan that was found."""

    sentence: str
    """The sentence of the contract that was broken."""
    what: str
    """What happened, in one line."""
    plan: str
    """Code that rebuilds the plan."""
    items: tuple[str, ...]
    """The plan's items, in words, a line each."""
    steps: tuple[Step, ...]
    """What happened."""
    storages: tuple[Storage, ...] = ()
    """The memory it happened in."""
    script: str = ""
    """A program that shows it with torch and the target alone, if there is one."""
    unscripted: str = ""
    """Why there is none, where one was looked for or cannot be."""

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Failure:
        """The inverse of what `Outcome.to_json` has of it."""
        return cls(
            **{
                **data,
                "items": tuple(data["items"]),
                "steps": tuple(Step(**step) for step in data["steps"]),
                "storages": tuple(
                    Storage(**{**each, "marks": tuple(Mark(**mark) for mark in each["marks"])})
                    for each in data["storages"]
                ),
            }
        )


@dataclass(frozen=True)
class Outcome:
    """The verdict on one cell."""

    cell: str
    status: Status
    level: Level
    examples: int = 0
    """How many plans were judged before the search ended."""
    seconds: float = 0.0
    reason: str = ""
    """For what is neither a pass nor a failure: why."""
    link: str = ""
    """For what is listed as known: where to read more."""
    failure: Failure | None = None

    def to_json(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Outcome:
        """The inverse of `to_json`."""
        failure = data["failure"]
        return cls(**{**data, "failure": failure and Failure.from_json(failure)})
