"""What became of a cell: plain data, ready for a report."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Status = Literal["pass", "fail", "unpromised", "skipped", "error"]
Level = Literal["MUST", "SHOULD"]


@dataclass(frozen=True)
class Failure:
    """Why a cell failed, on the smallest plan that was found."""

    sentence: str
    """The sentence of the contract that was broken."""
    what: str
    """What happened, in one line."""
    plan: str
    """Code that rebuilds the plan."""
    steps: tuple[str, ...]
    """What happened, step by step."""


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
    failure: Failure | None = None

    def to_json(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Outcome:
        """The inverse of `to_json`."""
        failure = data.pop("failure")
        if failure is not None:
            failure = Failure(**{**failure, "steps": tuple(failure["steps"])})
        return cls(**data, failure=failure)
