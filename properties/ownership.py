"""Ownership: what is owned is passed on, not copied."""

from __future__ import annotations

from collections.abc import Iterator

from bucketproof.properties.contract import Problem, contract
from bucketproof.properties.models import MODELS
from bucketproof.properties.run import Run
from bucketproof.strategies import Custody


@contract(
    "ownership.no-copy",
    custodies=[Custody.OWNED],
    campaigns=["mixed", "recurring", "large", *MODELS],
    needs={"copies": ("when-needed",), "dtype": ("kept",)},
)
def no_copy(run: Run) -> Iterator[Problem]:
    """An owned contiguous tensor is passed on in place: same memory, no byte allocated for it."""
    for delivered, given in run.matched():
        if given.keep_owed and not delivered.kept:
            yield Problem(f"its {given.facts.nbytes} bytes were copied, though nobody else holds them", given.index)
    for copy in run.copies:
        if run.handed_over[copy.index].keep_owed:
            yield Problem(f"{copy.nbytes} bytes were allocated for it by {copy.op}", copy.index)
