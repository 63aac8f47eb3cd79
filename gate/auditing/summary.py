"""The summary of an audit: plain data, as text, as JSON, and as a verdict, which every report is made from."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from bucketproof.auditing.findings import SENTENCES, Finding
from bucketproof.auditing.memory import Place
from bucketproof.auditing.rules import RuleRecord
from bucketproof.lists import table

if TYPE_CHECKING:
    from bucketproof.verdict import Verdict

SCHEMA = 1
"""The version of the JSON form. It changes when a reader of the former one would misread the new one."""
_SHOWN = 12
"""Findings and lenders that are shown in a text."""


@dataclass(frozen=True)
class Lent:
    """A piece of memory that was written after it had been handed over, as a receive buffer is."""

    place: int
    """Its number, which findings give."""
    address: int
    nbytes: int
    device: str
    handed_over: int
    """How often something was handed over from it, as far as it was looked at."""
    written: int
    """How often that was written since."""
    period: int
    """After how many hand-overs it mostly comes again: 1 for a buffer, 2 for a ping-pong pair; 0 if it never did."""
    names: tuple[str, ...]
    """The first names that were handed over from it."""

    @property
    def text(self) -> str:
        """All of it in a line."""
        turn = f", every {_ordinal(self.period)}hand-over" if self.period else ""
        return (
            f"{self.nbytes} bytes at {self.address:#x} on {self.device}{turn}: handed over {self.handed_over} times, "
            f"written since {self.written} times, first as {', '.join(map(repr, self.names[:2]))}"
        )


def _ordinal(number: int) -> str:
    return "" if number == 1 else f"{number}{({1: 'st', 2: 'nd', 3: 'rd'}).get(number % 10, 'th')} "


def lent_of(place: Place) -> Lent:
    """What a piece of memory that was written shows."""
    period = Counter(place.again).most_common(1)[0][0] if place.again else 0
    return Lent(
        place.number,
        place.start,
        place.nbytes,
        str(place.device),
        place.turns,
        place.written,
        period,
        tuple(place.names),
    )


def round_trips(found: Mapping[tuple[int, int], list[int]]) -> int:
    """How many addresses came again in memory that torch does not know: reused, or released and given out anew."""
    return sum(len(turns) > 1 for turns in found.values())


@dataclass(frozen=True)
class Summary:
    """What an audit has seen of one stream."""

    source: str
    """What was watched."""
    ended: str
    """`completed`, `failed: …`, `cancelled`, `closed` or `abandoned`; empty while it goes on."""
    items: int
    nbytes: int
    """Bytes of all hand-overs."""
    looked: int
    """How many of them were looked at closely."""
    unreadable: int
    """How many had no memory that could be looked at: sharded, sparse or meta tensors."""
    seconds: float
    """From the start to the end, with what the producer and its consumer took."""
    pinned: int
    """Bytes of storages beyond what was handed over from them, each storage once."""
    counts: Mapping[str, int]
    """How many findings of each kind there were."""
    findings: tuple[Finding, ...]
    """The first of each kind and place."""
    lent: tuple[Lent, ...]
    """Memory that behaves like a receive buffer."""
    came_round: int
    """Addresses that came again in memory that torch did not allocate: reused, or released and given out anew."""
    rules: tuple[RuleRecord, ...]
    troubles: tuple[str, ...]
    """What went wrong in the audit itself, or in what it called; the stream was passed on all the same."""
    bucketer: bool = False
    """Whether a bucketer was watched too."""

    @property
    def clean(self) -> bool:
        """Whether nothing was found that spoils values or memory."""
        return not any(SENTENCES[each.kind].level == "MUST" for each in self.findings)

    def __str__(self) -> str:
        """The whole of it for a terminal, without the explanations that `verdict()` has."""
        return "\n".join([*self._head(), *self._lent_lines(), *self._rule_lines(), *self._found(), *self._noted()])

    def _head(self) -> Iterator[str]:
        ended = self.ended or "going on"
        yield f"audit of {self.source}: {self.items} hand-overs, {self.nbytes} bytes, {ended}, {self.seconds:.1f} s"
        unreadable = f"; {self.unreadable} have no memory to look at" if self.unreadable else ""
        pinned = f"; their storages have {self.pinned} bytes beyond them" if self.pinned else ""
        yield f"  {self.looked} looked at closely{unreadable}{pinned}"

    def _lent_lines(self) -> Iterator[str]:
        if self.lent:
            yield "memory that is written after it was handed over:"
        yield from _shown([each.text for each in self.lent])
        if self.came_round:
            yield (
                f"  {self.came_round} addresses came again in memory that torch did not allocate: "
                "reused, or released and given out anew"
            )

    def _rule_lines(self) -> Iterator[str]:
        if not self.rules:
            return
        heads = ("rule", "keeps", "copies", "kept and spoiled", "copied needlessly")
        rows = [
            (
                each.rule,
                f"{each.kept} ({each.kept_bytes} bytes)",
                f"{each.copied} ({each.copied_bytes} bytes)",
                str(each.spoiled),
                f"{each.needless} ({each.needless_bytes} bytes)",
            )
            for each in self.rules
        ]
        yield "what the rules do with what was looked at:"
        yield from (f"  {line}" for line in table([heads, *rows]).splitlines())

    def _found(self) -> Iterator[str]:
        if not self.findings:
            yield "nothing was found"
            return
        counted = ", ".join(f"{count} {kind}" for kind, count in self.counts.items())
        yield f"found: {counted}"
        yield from _shown([f"{each.kind}: {each.what}" for each in _firsts(self.findings)])

    def _noted(self) -> Iterator[str]:
        yield from (f"trouble: {each}" for each in self.troubles)

    def to_json(self) -> str:
        """The summary as JSON text."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Summary:
        """The inverse of `to_json`. Raises `ValueError` for anything else."""
        data: Any = json.loads(text)
        if not isinstance(data, dict) or data.pop("schema", None) != SCHEMA:
            raise ValueError(f"no summary of an audit in schema version {SCHEMA}")
        try:
            lists = {
                "findings": tuple(map(Finding.from_json, data["findings"])),
                "lent": tuple(Lent(**{**each, "names": tuple(each["names"])}) for each in data["lent"]),
                "rules": tuple(RuleRecord(**each) for each in data["rules"]),
                "troubles": tuple(data["troubles"]),
            }
            return cls(**{**data, **lists})
        except (KeyError, TypeError) as error:
            raise ValueError(f"a summary that is not whole: {error}") from error

    def verdict(self) -> Verdict:
        """The same as a verdict: what every report of the gate is made from."""
        from bucketproof.auditing.reporting import verdict_of

        return verdict_of(self)

    def html(self) -> str:
        """The report as a page that needs no network."""
        from bucketproof.html import page

        return page(self.verdict())


def _firsts(findings: tuple[Finding, ...]) -> list[Finding]:
    """The first of each group, what spoils something before what is worth knowing."""
    firsts: dict[object, Finding] = {}
    for finding in findings:
        firsts.setdefault(finding.group, finding)
    return sorted(firsts.values(), key=lambda each: each.level)


def _shown(lines: list[str]) -> Iterator[str]:
    yield from (f"  {line}" for line in lines[:_SHOWN])
    if len(lines) > _SHOWN:
        yield f"  and {len(lines) - _SHOWN} more"
