"""A run: everything that was seen while a target bucketed a planned stream. It holds no tensor."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

from torch.multiprocessing.reductions import StorageWeakRef

from bucketproof.properties.buckets import Malformed
from bucketproof.properties.evidence import Facts, Span, alive, is_as_due
from bucketproof.properties.ledger import Copy
from bucketproof.properties.limits import Hang
from bucketproof.properties.payload import Packing
from bucketproof.properties.promises import Promises
from bucketproof.properties.target import Target
from bucketproof.strategies import DTYPES, PROVENANCES, Custody, Item, Plan
from bucketproof.strategies.devices import CPU

Moment = Literal["held", "end", "overwritten", "elsewhere"]
"""When a bucket is read again: as the next one arrives, after the stream, after every lender has written, and then in
the process that it was sent to."""

Partition = list[list[int]]
"""Indices of the hand-overs in each bucket."""

ALL_MOMENTS: tuple[Moment, ...] = get_args(Moment)


@dataclass(frozen=True, slots=True)
class HandOver:
    """One weight as the producer yielded it."""

    index: int
    item: Item
    facts: Facts
    expected: Facts
    """The same, cast to the dtype that the target promises."""

    @property
    def custody(self) -> Custody:
        """Whose memory it is."""
        return PROVENANCES[self.item.provenance].custody

    @property
    def is_cast(self) -> bool:
        """Whether it is to arrive with another dtype."""
        return self.facts.dtype != self.expected.dtype

    @property
    def largest(self) -> int:
        """Its bytes, as it was handed over or as it is to arrive, whichever are more."""
        return max(self.facts.nbytes, self.expected.nbytes)

    @property
    def keep_owed(self) -> bool:
        """Whether a bucketer must pass it on in place."""
        return self.custody is Custody.OWNED and self.facts.plain and self.facts.nbytes > 0


@dataclass(slots=True)
class Delivered:
    """One weight as the bucketer yielded it."""

    bucket: int
    name: str
    facts: Facts
    lent: bool
    """Whether its storage lay in a lender's memory."""
    index: int | None
    """The hand-over it is: of its name and not arrived yet, with its bits if one has them. None if there is none."""
    kept: bool
    """Whether it lies where it was handed over, in the very same storage."""
    later: list[tuple[Moment, bytes]] = field(default_factory=list)
    """Its bits when it was read again."""
    there: Facts | None = None
    """What the process that it was sent to has of it, once every lender has written."""

    def same_kind(self, given: HandOver) -> bool:
        """Whether it has the shape and dtype that its hand-over should have, so that bits can be compared."""
        return (self.facts.shape, self.facts.dtype) == (given.expected.shape, given.expected.dtype)

    def as_given(self, given: HandOver) -> bool:
        """Whether it had the bits of its hand-over when it was yielded."""
        return is_as_due(self.facts, given.expected, is_cast=given.is_cast)

    def spoiled(self, moments: tuple[Moment, ...]) -> bool:
        """Whether its bits have changed since it was yielded, as seen at one of these moments."""
        return any(bits != self.facts.bits for moment, bits in self.later if moment in moments)


class Event(NamedTuple):
    """One step of a run."""

    kind: Literal["produced", "failed", "overwritten", "delivered", "stale", "closed", "cancelled", "ended", "raised"]
    """The producer has `produced` and, as planned, `failed`; a consumer has `closed` or `cancelled` the target, or has
    dropped a bucket that is `stale`."""
    number: int = -1
    """Which hand-over was produced or awaited, or which bucket was delivered or is stale."""
    text: str = ""
    place: Span | None = None
    """What was overwritten. Another run has other addresses, so it is not compared."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Event) and self[:3] == other[:3]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:3])


@dataclass(frozen=True)
class Bucket:
    """One bucket, at the moment it was yielded."""

    pulled: int
    """How many items the producer had handed over."""


@dataclass
class Run:
    """The evidence. Properties are functions of it."""

    plan: Plan
    handed_over: list[HandOver] = field(default_factory=list)
    delivered: list[Delivered] = field(default_factory=list)
    buckets: list[Bucket] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    peaks: list[tuple[int, int, int]] = field(default_factory=list)
    """When the bucketer had more alive than was allowed: its living bytes, the bytes of undelivered items that had to
    be copied, and those of the largest undelivered item."""
    pinned: dict[int, int] = field(default_factory=dict)
    """Hand-overs whose storage outlived the producer, though no bucket needs it, with its bytes."""
    stale: list[int] = field(default_factory=list)
    """Buckets that were alive when the producer was advanced or the sync was over, though their consumer had dropped
    them."""
    traces: list[str] = field(default_factory=list)
    """What was not left as it was."""
    changed: list[int] = field(default_factory=list)
    """Held buckets that no longer have the members they were yielded with."""
    watched: list[tuple[StorageWeakRef, int]] = field(default_factory=list)
    """Weak references to the storages that were handed over or allocated, with their bytes."""
    exhausted: bool = False
    """Whether the producer was advanced beyond its last item."""
    closed: bool = False
    """Whether the producer has ended, in whatever way."""
    raised: BaseException | None = None
    """What the producer has raised, as planned."""
    error: BaseException | None = None
    """What the target raised, stripped of its frames."""
    followed: bool = False
    """Whether it yielded yet another bucket after that."""
    cancelled: bool = False
    """Whether the consuming task ended as a cancelled task does."""
    abandoned: bool = False
    """Whether the consumer closed the target before it had ended, as planned."""
    left_open: bool = False
    """Whether the producer was still open right after that."""
    interrupted: bool = False
    """Whether the consuming task was cancelled, as planned."""
    packings: list[Packing] = field(default_factory=list)
    """What a packer did to each bucket."""
    tasks_left: int = 0
    """Tasks that were there when the sync was over, and had not been before."""
    asynchronous: bool = False
    """Whether the target is."""
    target: Target | None = None
    device: str = CPU
    """Where its weights were made, by the id in `DEVICES`."""
    execute: Callable[..., list[Run]] | None = None
    """Runs plans on a target, together."""

    @property
    def completed(self) -> bool:
        """Whether the target ended by itself and yielded nothing but buckets."""
        return self.error is None and self.plan.ends == "completed"

    @property
    def hung(self) -> bool:
        """Whether it did not end in time."""
        return isinstance(self.error, Hang)

    @property
    def said(self) -> str:
        """What the target raised, in words."""
        return next((event.text for event in self.events if event.kind == "raised"), "")

    @property
    def outcry(self) -> str:
        """The same as a sentence."""
        if self.hung:
            return f"the bucketer {self.said}"
        return self.said if isinstance(self.error, Malformed) else f"the bucketer raised {self.said}"

    @property
    def intact(self) -> bool:
        """Whether it was completed, and everything arrived in its bucket's turn, once, and nothing else."""
        buckets = [
            sorted(-1 if d.index is None else d.index for d in self.members(n)) for n in range(len(self.buckets))
        ]
        return self.completed and list(itertools.chain(*buckets)) == list(range(len(self.plan.items)))

    @property
    def promises(self) -> Promises:
        """What the target promises."""
        assert self.target is not None
        return self.target.promises

    def size(self, index: int) -> int:
        """Bytes of an item, as the target should deliver it, or as it does where it promises nothing."""
        item = self.plan.items[index]
        if self.promises.dtype is None and (arrived := self.of(index)):
            return arrived[0].facts.nbytes
        cast = DTYPES.get(self.promises.dtype or "")
        return item.nbytes if cast is None else math.prod(item.shape) * cast.itemsize

    def repeat(self, **changes: Any) -> Run:
        """The run of this plan, or of one that differs in some fields, on the same target."""
        return self.together(replace(self.plan, **changes))[0]

    def together(self, *plans: Plan) -> list[Run]:
        """The runs of some plans on the same target, a bucket of each in turn."""
        assert self.execute is not None
        return self.execute(self.target, *plans)

    def alive(self) -> int:
        """Bytes that were handed over or allocated in this run and are still alive, though the run is over."""
        return sum(nbytes for ref, nbytes in self.watched if alive(ref))

    def matched(self) -> Iterator[tuple[Delivered, HandOver]]:
        """What was delivered, with the hand-over it is."""
        for delivered in self.delivered:
            if delivered.index is not None:
                yield delivered, self.handed_over[delivered.index]

    def surplus(self, delivered: Delivered) -> str:
        """In which way it arrived, if it is none of what was handed over."""
        is_known = any(self.plan.items[given.index].name == delivered.name for given in self.handed_over)
        return "more often than it was handed over" if is_known else "and was never handed over"

    def of(self, index: int) -> list[Delivered]:
        """Everything that was delivered for one hand-over."""
        return self._by_index.get(index, [])

    @cached_property
    def _by_index(self) -> dict[int, list[Delivered]]:
        found: dict[int, list[Delivered]] = defaultdict(list)
        for delivered, given in self.matched():
            found[given.index].append(delivered)
        return found

    def partition(self) -> Partition:
        """Which hand-overs each bucket held, whatever their order in it."""
        buckets = (self.members(number) for number in range(len(self.buckets)))
        return [sorted(each.index for each in members if each.index is not None) for members in buckets]

    def members(self, bucket: int) -> list[Delivered]:
        """What one bucket held."""
        return self._by_bucket.get(bucket, [])

    @cached_property
    def _by_bucket(self) -> dict[int, list[Delivered]]:
        found: dict[int, list[Delivered]] = defaultdict(list)
        for delivered in self.delivered:
            found[delivered.bucket].append(delivered)
        return found

    @cached_property
    def calm(self) -> Run:
        """The same plan, but no lender writes before the stream is over: what goes wrong here is not its doing."""
        lenders = tuple(replace(each, overwrite="end") for each in self.plan.lenders)
        return self if lenders == self.plan.lenders else self.repeat(lenders=lenders)


def union(spans: list[Span]) -> int:
    """How many bytes lie in at least one of the spans."""
    total, reached = 0, 0
    for span in sorted(spans):
        total += max(0, span.end - max(span.start, reached))
        reached = max(reached, span.end)
    return total
