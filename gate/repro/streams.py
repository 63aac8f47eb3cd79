"""A plan's stream as code: a generator that says what is handed over, and when lenders write."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from bucketproof.repro.linker import Place, Unwritable
from bucketproof.repro.schedule import Turn, schedule
from bucketproof.repro.source import module, quoted
from bucketproof.strategies import LAYOUTS, PROVENANCES, Custody, Item, Plan
from bucketproof.strategies.memory import Build
from bucketproof.strategies.provenances.registry import FIRST_OPS, OPS

_MEMORY = "bucketproof.repro.parts.memory"
_HOMES = {"heap": "Lent", "inference": "Inference", "shared": "Between", "mapped": "Mapped"}
_CUSTODIES = {Custody.OWNED: "Memory", Custody.PARTIAL: "Padded", Custody.SHARED: "Shared"}
_LONG = 60
"""Characters of a name that is written out."""
_MANY = 16
"""Items of a stream that is written as a loop, if it can be."""


@dataclass(frozen=True)
class Options:
    """What a check wants of a stream."""

    name: str = "weights"
    mark: str = ""
    """What `hand_over` is told beside what it makes: `whose` for whose memory it is, or a word that is the same for all
    items."""
    between: str = ""
    """A statement for whenever the producer is advanced."""
    last: str = ""
    """A statement for when it is exhausted."""
    finally_: str = ""
    """A statement for when it ends, in whatever way."""
    calm: bool = False
    """Whether no lender writes."""
    finite: bool = False
    """Whether all numbers must be finite."""


@dataclass
class Streams:
    """Writes streams, and collects what they refer to."""

    given: dict[str, str | Place] = field(default_factory=dict)

    def write(self, plan: Plan, options: Options) -> None:
        """Put the function that makes the stream under its name, and what it calls under theirs."""
        if options.calm:
            plan = replace(plan, lenders=tuple(replace(each, overwrite="end") for each in plan.lenders))
        kind = _KINDS[plan.iterable]
        name = "produced" if kind else options.name
        if kind and name in self.given:
            name = f"produced_{options.name}"
        body = _Body(plan, options, self.given)
        self.given[name] = f"def {name}():\n" + textwrap.indent("\n".join(body.lines()), "    ")
        if kind:
            self.given[options.name] = f"def {options.name}():\n    return {kind.format(name)}"


_KINDS = {
    "generator": "",
    "iterator": "OneByOne({}())",
    "list": "list({}())",
    "async-generator": "arriving({}())",
    "async-iterator": "AwaitedOneByOne({}())",
}


class _Body:
    """The statements of a stream."""

    def __init__(self, plan: Plan, options: Options, given: dict[str, str | Place]) -> None:
        self._plan, self._options, self._given = plan, options, given
        self._turns = schedule(plan)

    def lines(self) -> Iterator[str]:
        plan, options = self._plan, self._options
        yield '"""The producer."""' if options.name == "weights" else '"""The other producer."""'
        finally_ = [*([options.finally_] if options.finally_ else []), *(["raise ERROR"] if _is_late(plan) else [])]
        body = [*self._statements()]
        if not finally_:
            yield from body
            return
        yield "try:"
        yield from (f"    {line}" for line in body)
        yield "finally:"
        yield from (f"    {line}" for line in finally_)

    def _statements(self) -> Iterator[str]:
        plan, options = self._plan, self._options
        stop = plan.ends_at if plan.ends in ("error", "exit") else len(plan.items)
        stop = min(stop, len(plan.items))
        period = _period(plan.items[:stop], self._turns[:stop])
        if not stop:
            yield "yield from ()"
        if period:
            yield f"for number in range(0, {stop}, {period}):" if period > 1 else f"for number in range({stop}):"
            for index in range(period, 2 * period):
                yield from (f"    {line}" for line in self._item(index, period))
        else:
            for index in range(stop):
                yield from self._item(index)
        if plan.ends in ("error", "exit") and plan.ends_at <= len(plan.items):
            yield "raise ERROR"
            return
        yield from (f"overwrite({number})" for number in self._turns[stop].overwritten)
        if options.between:
            yield options.between
        if options.last:
            yield options.last

    def _item(self, index: int, period: int = 0) -> Iterator[str]:
        item, turn = self._plan.items[index], self._turns[index]
        if self._options.between and (index or period):
            yield self._options.between
        overwriting = [f"overwrite({number})" for number in turn.overwritten]
        if period and self._turns[index - period].overwritten != turn.overwritten:
            overwriting = [
                "if number:",
                *(f"    {line}" for line in overwriting),
            ]  # in the first round nothing was lent
        yield from overwriting
        yield f"yield hand_over({', '.join(self._arguments(item, turn, index - period, period))})"

    def _arguments(self, item: Item, turn: Turn, offset: int, period: int) -> Iterator[str]:
        number = f"number + {offset}" if offset else "number"
        yield f'f"w{{{number}}}"' if period else _name(item.name)
        provenance = PROVENANCES[item.provenance]
        yield self._function(provenance.build)
        yield repr(item.shape)
        yield f"torch.{item.dtype}"
        turn = replace(turn, lent=None) if period and turn.lent == offset + period else turn
        yield self._memory(item, turn, number if period else str(item.seed))
        if self._options.mark:
            yield quoted(provenance.custody.value if self._options.mark == "whose" else self._options.mark)

    def _memory(self, item: Item, turn: Turn, seed: str) -> str:
        provenance = PROVENANCES[item.provenance]
        arguments = [f"seed={seed}", *self._ink(item)]
        if provenance.custody is Custody.LENT:
            if not turn.nbytes and turn.lent is None:
                raise Unwritable(f"{item.provenance} takes no memory of its lender")
            if provenance.home not in _HOMES:
                raise Unwritable(f"a script has no memory as that of {item.provenance} is")
            arguments = [seed if turn.lent is None else str(turn.lent), f"nbytes={turn.nbytes}", *arguments]
            memory = f"{_HOMES[provenance.home]}({', '.join(arguments)})"
        else:
            memory = f"{_CUSTODIES[provenance.custody]}({', '.join(arguments)})"
        if item.layout != "contiguous":
            memory = f"Through({self._function(LAYOUTS[item.layout].build)}, {memory})"
        for op in item.ops:
            memory = f"Through({self._function(OPS.get(op) or FIRST_OPS[op])}, {memory})"
        return memory

    def _ink(self, item: Item) -> list[str]:
        """How content is written, if not as it comes."""
        if item.dtype == "bool":
            return ["write=booleans"]
        is_computed = not (LAYOUTS[item.layout].plain and PROVENANCES[item.provenance].plain)
        return ["write=finite"] if is_computed or (self._options.finite and item.dtype in _FLOATS) else []

    def _function(self, build: Build) -> str:
        name = build.__name__
        place = Place(build.__module__, name)
        if module(place.module).definitions.get(name) is None:
            raise Unwritable(f"the function {build.__qualname__} has no source of its own")
        if self._given.setdefault(name, place) != place:
            raise Unwritable(f"two functions are called {name}")
        return name


_FLOATS = ("float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128")


def _is_late(plan: Plan) -> bool:
    return plan.ends == "late-error"


def _name(name: str) -> str:
    if len(name) > _LONG and len(set(name)) == 1:
        return f"{quoted(name[0])} * {len(name)}"
    return quoted(name)


def _period(items: Sequence[Item], turns: Sequence[Turn]) -> int:
    """After how many items a long stream begins anew, if it does: only names and seeds go on."""
    if len(items) < _MANY or any(item.name != f"w{i}" or item.seed != i for i, item in enumerate(items)):
        return 0
    alike = [(replace(item, name="", seed=0), _relative(turns[i], i)) for i, item in enumerate(items)]
    return next((period for period in range(1, _MANY // 2 + 1) if _is_period(period, alike, turns)), 0)


def _is_period(period: int, alike: Sequence[tuple[Item, Turn]], turns: Sequence[Turn]) -> bool:
    # In the first round there is no buffer yet to be written over.
    first = all(replace(turns[i], overwritten=()) == replace(turns[i + period], overwritten=()) for i in range(period))
    first |= all(alike[i] == alike[i + period] for i in range(period))
    items = all(each[0] == alike[i % period][0] for i, each in enumerate(alike))
    return (
        len(alike) % period == 0
        and first
        and items
        and all(alike[i] == alike[i - period] for i in range(2 * period, len(alike)))
    )


_OWN = -1
"""The number of a buffer that is its item's alone, in a stream that begins anew."""


def _relative(turn: Turn, index: int) -> Turn:
    return replace(turn, lent=_OWN) if turn.lent == index else turn
