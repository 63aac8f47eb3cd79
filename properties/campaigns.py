"""What is drawn for the cells: plans around one provenance, or plans that bring out something else."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import cache

from hypothesis import strategies as st

from bucketproof.strategies import PROVENANCES, Item, Plan, plans
from bucketproof.strategies.plans import ITERABLES

_LAZY = tuple(kind for kind in ITERABLES if kind != "list")
"""Iterables of which it can be seen how far they were advanced."""


def _exact_fits(items: Sequence[Item]) -> st.SearchStrategy[int | float]:
    """Limits that the first few items fill exactly. Shrinks towards the first sum that is one."""
    sums = [total for total in itertools.accumulate(item.nbytes for item in items) if total]
    return st.sampled_from(sums or [1])


def _each(*limits: float) -> Callable[[Sequence[Item]], st.SearchStrategy[int | float]]:
    return lambda items: st.sampled_from(limits)


_BUILT: dict[str, Callable[[], st.SearchStrategy[Plan]]] = {
    "mixed": plans,
    "iterables": plans,
    "exact-fit": lambda: plans(limits=_exact_fits),
    "bad-limit": lambda: plans(limits=_each(0, -1, -0.5, 0.0, -(2**40), -math.inf), iterables=_LAZY),
    "nan-limit": lambda: plans(limits=_each(math.nan), iterables=_LAZY),
}


@cache
def drawn_for(campaign: str) -> st.SearchStrategy[Plan]:
    """The plans of a campaign. One around a provenance has fresh tensors in between, and nothing else."""
    if campaign in PROVENANCES:
        return plans(provenances={campaign, "fresh"}, min_items=1)
    return _BUILT[campaign]()
