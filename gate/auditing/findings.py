"""What an audit finds: plain data that holds nothing of the tensors it is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from bucketproof.properties.outcome import Level

if TYPE_CHECKING:
    from bucketproof.strategies.plans import Plan

Kind = Literal[
    "written",
    "graph",
    "tied",
    "overlap",
    "pinned",
    "requires-grad",
    "foreign",
    "hidden-base",
    "lost",
    "altered",
    "reordered",
    "over-limit",
    "bucket-pins",
    "copied",
    "bucket-kept",
]
"""The last seven are a bucketer's."""

KINDS: tuple[Kind, ...] = get_args(Kind)
OF_A_PRODUCER, OF_A_BUCKETER = KINDS[:8], KINDS[8:]


@dataclass(frozen=True)
class Sentence:
    """What a kind of finding is a breach of."""

    cell: str
    """What it is called in reports: a property of the contract, where there is one."""
    text: str
    level: Level
    """`MUST` for what spoils values or memory, `SHOULD` for what is worth knowing."""


SENTENCES: Mapping[Kind, Sentence] = {
    "written": Sentence("producer.written", "What was handed over is not written again before its release.", "MUST"),
    "graph": Sentence("producer.graph", "What is handed over carries no autograd graph.", "MUST"),
    "tied": Sentence("producer.tied", "No memory is handed over twice.", "SHOULD"),
    "overlap": Sentence("producer.overlap", "No two hand-overs share some of their bytes.", "SHOULD"),
    "pinned": Sentence("producer.pinned", "A hand-over's storage has no byte beyond the tensor's own.", "SHOULD"),
    "requires-grad": Sentence("producer.requires-grad", "What is handed over does not require grad.", "SHOULD"),
    "foreign": Sentence("producer.foreign", "The memory was allocated by torch, in this process.", "SHOULD"),
    "hidden-base": Sentence("producer.hidden-base", "An inference tensor shares no memory unseen.", "SHOULD"),
    "lost": Sentence("values.conserved", "Every hand-over arrives exactly once.", "MUST"),
    "altered": Sentence("values.conserved", "A hand-over arrives with its shape, dtype and bits.", "MUST"),
    "reordered": Sentence("values.order", "Items keep the stream's order, within and across buckets.", "MUST"),
    "over-limit": Sentence(
        "boundaries.limit", "A bucket never exceeds the limit, unless it is a single oversize item.", "MUST"
    ),
    "bucket-pins": Sentence("aliasing.no-pinned-storage", "A bucket holds exactly its tensors' bytes.", "MUST"),
    "copied": Sentence("ownership.no-copy", "An owned contiguous tensor is passed on in place.", "MUST"),
    "bucket-kept": Sentence(
        "memory.released-after-flush", "The bucketer keeps nothing of a flushed bucket as it goes on.", "MUST"
    ),
}


@dataclass(frozen=True)
class HandedOver:
    """A hand-over, as it was seen."""

    index: int
    """Its position in the stream, from 0."""
    name: str
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str
    nbytes: int
    storage_bytes: int
    offset: int
    """Bytes from the beginning of its storage to its first element."""
    type: str
    """`Tensor`, `Parameter`, or the name of another subclass."""
    has_base: bool
    inference: bool
    foreign: bool
    """Whether torch did not allocate the memory, or it was exported, or is shared between processes."""
    requires_grad: bool
    graph: str
    """The autograd function it is the result of, if it is of one."""
    exclusive: bool
    """Whether nobody else could reach its memory, as far as counts show."""
    kept_by: tuple[str, ...]
    """The rules that keep it without a copy."""
    where: tuple[str, ...]
    """Where its producer stood, outermost first: `file.py:12 in export`."""

    def __str__(self) -> str:
        where = f", from {self.where[-1]}" if self.where else ""
        return f"{self.name!r} (item {self.index}, {self.dtype} {self.shape}, {self.nbytes} bytes{where})"


@dataclass(frozen=True)
class Finding:
    """One thing that was found."""

    kind: Kind
    what: str
    """What happened, in one line."""
    items: tuple[HandedOver, ...] = ()
    """The hand-over it happened to and, where there is one, the other it has to do with."""
    place: int | None = None
    """The number of the piece of memory it happened in, for what happens in one again and again."""
    nbytes: int = 0
    """Bytes that were written, shared or pinned."""
    period: int = 0
    """For what was written by a later hand-over: how many hand-overs later."""

    @property
    def level(self) -> Level:
        """`MUST` for what is warned of or raised, `SHOULD` for what is told in the summary alone."""
        return SENTENCES[self.kind].level

    @property
    def group(self) -> tuple[Kind, int | None]:
        """What is told once: of a piece of memory that is written all the time, the first time."""
        return self.kind, self.place

    def plan(self) -> Plan:
        """A plan in which the suite sees what was seen here. Raises `ValueError` where there can be none."""
        from bucketproof.auditing.plans import plan_of

        return plan_of(self)[0]

    @property
    def cell(self) -> str:
        """The cell that fails on that plan for a bucketer that keeps what it should not."""
        from bucketproof.auditing.plans import plan_of

        return plan_of(self)[1]

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Finding:
        """The inverse of `dataclasses.asdict`, by way of JSON."""
        lists = ("shape", "stride", "kept_by", "where")
        items: list[dict[str, Any]] = [
            {**each, **{name: tuple(each[name]) for name in lists}} for each in data["items"]
        ]
        return cls(**{**data, "items": tuple(HandedOver(**each) for each in items)})


class AuditWarning(UserWarning):
    """Something was found that spoils values or memory."""


class AuditError(Exception):
    """The same, where it was asked to be raised."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.what)
        self.finding = finding
