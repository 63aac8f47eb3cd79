"""What a script is to show, and in which way."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from bucketproof.properties import PROPERTIES, Run, Target
from bucketproof.properties.promises import Promises
from bucketproof.repro.source import module
from bucketproof.repro.streams import Options
from bucketproof.strategies import DTYPES, PROVENANCES, Item, Plan

CHECKS = "bucketproof.repro.checks"
PARTS = "bucketproof.repro.parts"


@dataclass(frozen=True)
class Case:
    """A failing cell."""

    broken: str
    """The id of the property."""
    provenance: str | None
    """Whose items it is about; None for all."""
    plan: Plan
    target: Target
    hangs: bool = False
    """Whether what has happened is that it did not end."""

    def concerns(self, item: Item) -> bool:
        """Whether it is about this item."""
        custodies = PROPERTIES[self.broken].custodies if self.broken in PROPERTIES else ()
        is_one = self.provenance in (None, item.provenance)
        return is_one and (not custodies or PROVENANCES[item.provenance].custody in custodies)

    @property
    def in_parts(self) -> bool:
        """Whether its script calls the functions of a packer, and not a bucketer that is made of them."""
        return self.broken.startswith("packing.")


@dataclass(frozen=True)
class Attempt:
    """One way to show it."""

    check: str
    """The module in `bucketproof.repro.checks`."""
    stream: Options = field(default_factory=Options)
    plan: Plan | None = None
    """The stream, if it is not that of the case."""
    elsewhere: Plan | None = None
    """The other stream, of which some checks know."""
    counted: bool = False
    """Whether it is counted what the bucketer allocates."""
    bits: bool = True
    """Whether bits are compared, where it is seen what arrives."""
    nans: bool = False
    """Whether content is that of the suite, with numbers that are none, and others that are easily changed."""


@dataclass(frozen=True)
class Setting:
    """A case, and an attempt at it."""

    case: Case
    attempt: Attempt

    @cached_property
    def plan(self) -> Plan:
        """The stream's."""
        return self._consumable(self.attempt.plan or self.case.plan)

    @cached_property
    def elsewhere(self) -> Plan | None:
        """The other stream's, if there is one."""
        return self.attempt.elsewhere and self._consumable(self.attempt.elsewhere)

    def _consumable(self, plan: Plan) -> Plan:
        """A plan whose stream the target can take: no asynchronous one, if it is not asynchronous itself."""
        kind: Any = plan.iterable if self.waits else plan.iterable.removeprefix("async-")
        return replace(plan, iterable=kind)

    @property
    def items(self) -> tuple[Item, ...]:
        """Those of all streams."""
        return self.plan.items + (self.elsewhere.items if self.elsewhere else ())

    @property
    def judged(self) -> tuple[Item, ...]:
        """The items that it is about."""
        return tuple(filter(self.case.concerns, self.plan.items))

    @property
    def promises(self) -> Promises:
        """The target's."""
        return self.case.target.promises

    @property
    def casts(self) -> bool:
        """Whether everything is to arrive with another dtype."""
        return self.promises.dtype in DTYPES

    @property
    def waits(self) -> bool:
        """Whether the target is asynchronous."""
        return self.case.target.is_async

    @property
    def is_coroutine(self) -> bool:
        """Whether it has to be awaited before there is anything to ask for buckets."""
        call = self.case.target.call
        return any(map(inspect.iscoroutinefunction, (call, type(call).__call__)))

    @property
    def clears(self) -> bool:
        """Whether the consumer writes over what it is given."""
        return self.plan.consumer == "clear" and self.attempt.stream.mark in ("", "whose")

    @property
    def options(self) -> Options:
        """Those of the streams."""
        # Whoever writes over memory must know whose it is.
        mark = self.attempt.stream.mark or ("whose" if self.clears else "")
        return replace(self.attempt.stream, mark=mark, finite=self.casts)

    @cached_property
    def check(self) -> dict[str, str]:
        """What the module of the check defines."""
        return module(f"{CHECKS}.{self.attempt.check}").definitions

    def has_home(self, home: str) -> bool:
        """Whether some item lies in such memory."""
        return any(PROVENANCES[item.provenance].home == home for item in self.items)

    def sizes(self) -> list[int]:
        """The bytes of each item, as it should be delivered."""
        run = Run(self.plan, target=self.case.target)
        return [run.size(index) for index in range(len(self.plan.items))]
