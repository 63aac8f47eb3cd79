"""Hypothesis strategies for plans and their parts.

What they draw are plans: frozen, pure data. Nothing here makes a tensor, so drawing is cheap, a failing plan shrinks
on small integers, and its repr is code. `Stream(plan)` builds the weights.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

from hypothesis import event
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from bucketproof.strategies import plans as planned
from bucketproof.strategies.custody import Custody
from bucketproof.strategies.dtypes import ALL
from bucketproof.strategies.plans import Item, Lender, Plan, Shape
from bucketproof.strategies.provenances import CHAINS, LAYOUTS, PROVENANCES
from bucketproof.strategies.provenances.registry import Domain

Value = TypeVar("Value", bound=str)

MAX_ELEMENTS = 36
"""Elements of the largest tensor. The faults are in the bookkeeping of memory, which does not grow with it."""

_SIDES = (1, 2, 3, 0, 4, 5)
_DIMENSIONS = (1, 2, 0, 3, 4, 5, 6)
_NAMES: dict[str, Any] = {
    "realistic": lambda i: f"layers.{i}.mlp.experts.gate_up_proj" if i % 2 else f"layers.{i}.weight",
    "terse": lambda i: "abcdefghijklmnopqrstuvwxyz"[i] if i < 26 else f"w{i}",
    "odd": lambda i: ("", "<script>", "重み.Ω", "a b\n", "x" * 300)[i] if i < 5 else f"\N{SNOWMAN}{i}",
    # What programs like to strip, split, format, normalise or take for a number.
    "fragile": lambda i: ("module.0.weight", "cafe\u0301", "{}%s", "0", " Weight ")[i] if i < 5 else f"module.{i}.Bias",
    "duplicates": lambda i: f"lm_head.{i // 2}",
}
UNIQUE_NAMES = ("realistic", "terse", "odd", "fragile")
"""Kinds of names in which no name occurs twice."""


def dtypes() -> st.SearchStrategy[str]:
    """Names of torch dtypes. Shrinks towards `float32`."""
    return st.sampled_from(ALL)


def shapes(*, min_dims: int = 0, empty: bool = True) -> st.SearchStrategy[Shape]:
    """Shapes of up to six dimensions and up to `MAX_ELEMENTS` elements.

    With `empty`, some have no element. Shrinks towards few dimensions, one before none, and small sides.
    """
    if min_dims not in _DIMENSIONS:
        raise InvalidArgument(f"min_dims={min_dims!r} must be a whole number from 0 to {max(_DIMENSIONS)}")
    return _shapes_of(Domain(min_dims=min_dims, empty=empty))


@cache
def _shapes_of(domain: Domain) -> st.SearchStrategy[Shape]:
    return st.sampled_from([s for n in _DIMENSIONS for s in _some_shapes(n) if domain.admits(s, domain.dtypes[0])])


@cache
def _some_shapes(dimensions: int) -> Sequence[Shape]:
    """Shapes of that many dimensions, small ones first: up to forty, and those of none or one more than once."""
    sides = itertools.product(_SIDES if dimensions < 5 else _SIDES[:4], repeat=dimensions)
    every = sorted((s for s in sides if math.prod(s) <= MAX_ELEMENTS), key=_simplicity)
    return [shape for shape in every[:: 1 + len(every) // 40] for _ in range(1 + 12 // len(every))]


def _simplicity(shape: Shape) -> tuple[int, ...]:
    return (math.prod(shape) == 0, math.prod(shape), *(_SIDES.index(side) for side in shape))


def lenders() -> st.SearchStrategy[Lender]:
    """Lenders. Shrinks towards one buffer of exactly the size, written as soon as the producer is advanced."""
    return st.sampled_from((*6 * _COMMON, *_LENDERS))


_LENDERS = tuple(
    Lender(kind, size, overwrite)
    for overwrite, size, kind in itertools.product(planned.OVERWRITES, planned.LENDER_SIZES, planned.LENDER_KINDS)
)
# One buffer that is written at once is the commonest lender, and shows most: the next weight where this one was.
_COMMON = tuple(Lender(size=size) for size in planned.LENDER_SIZES)


def items(*, provenances: Iterable[str] | None = None) -> st.SearchStrategy[Item]:
    """Items of the given provenances, by default of all that are of no group.

    Shrinks towards the first provenance, `float32`, one element and a contiguous layout.
    """
    return st.one_of([_items_of(name) for name in _checked(provenances)])


@cache
def _items_of(name: str) -> st.SearchStrategy[Item]:
    # An example's cost is the number of its choices, so what can be drawn at once is.
    provenance = PROVENANCES[name]
    kinds = st.sampled_from([(layout, dtype) for layout in provenance.layouts for dtype in provenance.domain.dtypes])
    parts = (kinds, _shapes_of(provenance.domain), *([_chains(name)] if name in CHAINS else []))
    return st.tuples(*parts).map(lambda drawn: _item(name, *drawn))


def _item(provenance: str, kind: tuple[str, str], shape: Shape, ops: tuple[str, ...] = ()) -> Item:
    # A layout that the drawn tensor cannot have is none: to draw again would cost more than it gives.
    layout, dtype = kind
    fits = LAYOUTS[layout].domain.admits(shape, dtype)
    return Item("", provenance, dtype, shape, layout if fits else "contiguous", ops)


def _chains(name: str) -> st.SearchStrategy[tuple[str, ...]]:
    nearest, further = CHAINS[name]
    pairs = list(itertools.product(nearest, further))
    triples = itertools.product(nearest, further, further)
    return st.sampled_from([*len(further) * pairs, *triples])  # chains of two as often as chains of three


def budgets(items: Sequence[Item]) -> st.SearchStrategy[int | float]:
    """Limits in bytes that matter for these items. Shrinks towards one that holds them all.

    Every sum of a run of items exactly, and a byte or half a byte either side; the largest item, and a byte less; one
    byte; half a MiB, as a float; and limits that do not fit into 32 bits.
    """
    sizes = [item.nbytes for item in items]
    sums = list(itertools.accumulate(sizes))
    runs = sorted({total for start in range(len(sizes)) for total in itertools.accumulate(sizes[start:])} - {0})
    exact = [total + off for total in (*sums[-1:], *runs, max(sizes, default=0)) for off in (0, 1, -1)]
    return st.sampled_from(
        [
            1 << 30,
            *(size for size in exact if size > 0),
            1,
            *(size + off for size in runs for off in (0.5, -0.5) if size > 1),
            0.5 * 2**20,
            1 << 31,
            (1 << 32) + 1,
        ]
    )


def names(*, kinds: Sequence[str] = UNIQUE_NAMES) -> st.SearchStrategy[str]:
    """Kinds of names, which `name_of(kind, index)` turns into names. Shrinks towards `realistic`."""
    return st.sampled_from(_chosen("kinds", kinds, _NAMES))


def name_of(kind: str, index: int) -> str:
    """The name of item number `index`, for a kind that `names` draws."""
    name: str = _NAMES[kind](index)
    return name


def plans(
    *,
    provenances: Iterable[str] | None = None,
    min_items: int = 0,
    max_items: int = 8,
    limits: Callable[[Sequence[Item]], st.SearchStrategy[int | float]] = budgets,
    name_kinds: Sequence[str] = UNIQUE_NAMES,
    iterables: Sequence[planned.Iterables] = planned.ITERABLES,
    grad_modes: Sequence[planned.GradMode] = planned.GRAD_MODES,
) -> st.SearchStrategy[Plan]:
    """Plans of `min_items` to `max_items` items of the given provenances, by default of all that are of no
    group.

    `limits(items)` is the strategy for the bucket's limit, in bytes.

    Shrinks towards no item, one lender, a limit that holds everything, and what `items` and `lenders` shrink to.
    """
    if not 0 <= min_items <= max_items:
        raise InvalidArgument(f"min_items={min_items!r} must be between 0 and max_items={max_items!r}")
    chosen = _checked(provenances)
    lent = any(_custody(name) is Custody.LENT for name in chosen)
    return _plans(
        st.lists(_items_of_any(chosen), min_size=min_items, max_size=max_items),
        st.sampled_from(_chosen("name_kinds", name_kinds, _NAMES)),
        _SECOND if lent else None,
        limits,
        st.sampled_from(_chosen("grad_modes", grad_modes, planned.GRAD_MODES)),
        st.sampled_from(_chosen("iterables", iterables, planned.ITERABLES)),
    )


# One lender as often as two, since it takes two weights in one buffer to see the bytes of one in the other.
_SECOND = st.sampled_from((0, 0, 2, 3))


@st.composite
def _plans(
    draw: st.DrawFn,
    several: st.SearchStrategy[list[Item]],
    name_kinds: st.SearchStrategy[str],
    second: st.SearchStrategy[int] | None,
    limits: Callable[[Sequence[Item]], st.SearchStrategy[int | float]],
    grad_modes: st.SearchStrategy[planned.GradMode],
    iterables: st.SearchStrategy[planned.Iterables],
) -> Plan:
    # What `second` draws is n where every n-th item borrows from a second lender. It is None where no item borrows.
    drawn = draw(several)
    kind = draw(name_kinds)
    every = 0 if second is None else draw(second)
    plan = Plan(
        items=tuple(
            replace(item, name=name_of(kind, i), lender=int(every > 0 and i % every == every - 1), seed=i)
            for i, item in enumerate(drawn)
        ),
        bucket_bytes=draw(limits(drawn)),
        lenders=(Lender(),) if second is None else tuple(draw(lenders()) for _ in range(1 + (every > 0))),
        grad_mode=draw(grad_modes),
        iterable=draw(iterables),
        consumer=draw(st.sampled_from(planned.CONSUMERS)),
    )
    _tag(plan)
    return plan


@cache
def _items_of_any(provenances: tuple[str, ...]) -> st.SearchStrategy[Item]:
    return items(provenances=provenances)


def _tag(plan: Plan) -> None:
    for item in plan.items:
        event(f"provenance: {item.provenance}")
        event(f"dtype: {item.dtype}")
        event(f"layout: {item.layout}")


def _chosen(argument: str, values: Iterable[Value], known: Iterable[Value]) -> tuple[Value, ...]:
    """What was chosen of what is known, in the order in which it was chosen."""
    chosen, known = () if isinstance(values, str) else tuple(values), tuple(known)
    if not chosen or not set(chosen) <= set(known):
        raise InvalidArgument(f"{argument}={values!r} must be a sequence of some of {known!r}, at least one")
    return chosen


def _checked(provenances: Iterable[str] | None) -> tuple[str, ...]:
    """The provenances in the order that plans shrink in: those of one custody together, then as in the register.

    Shrinking goes down step by step, and would be stuck at one of two that fail with one between them that does not.
    """
    plain = (each.id for each in PROVENANCES.values() if not each.group)
    wanted = set(plain if provenances is None else provenances)
    if isinstance(provenances, str) or not wanted or wanted - set(PROVENANCES):
        raise InvalidArgument(
            f"provenances={provenances!r} must be ids of registered provenances, at least one; "
            "`bucketproof list provenances` shows them"
        )
    return tuple(name for custody in Custody for name in PROVENANCES if name in wanted and custody is _custody(name))


def _custody(provenance: str) -> Custody:
    return PROVENANCES[provenance].custody
