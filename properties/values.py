"""Values: everything arrives, as it was and in its order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from bucketproof.properties.contract import ANY_CUSTODY, Problem, contract
from bucketproof.properties.models import MODELS, MODELS_ON_META
from bucketproof.properties.run import Delivered, HandOver, Run
from bucketproof.strategies import Custody, Item


@contract(
    "values.conserved",
    custodies=ANY_CUSTODY,
    campaigns=["large", "large-lent", *MODELS, *MODELS_ON_META],
    needs={"dtype": ()},
)
def conserved(run: Run) -> Iterator[Problem]:
    """Every hand-over arrives exactly once with its name, shape, dtype, device and bits."""
    # What is raised only of some kinds of iterables, or at some consumers, is another property's.
    if run.error is None or run.repeat(iterable="generator", consumer="hold").error is not None:
        yield from arrival(run)


def arrival(run: Run) -> Iterator[Problem]:
    """What of a stream did not arrive as it was, for reasons that are the bucketer's own."""
    if run.error is not None:
        yield Problem(run.outcry)
        return
    for index in range(len(run.plan.items)):
        if not run.of(index):
            yield Problem("it never arrived", index)
    for delivered in run.delivered:
        if delivered.index is None:
            yield Problem(f"{delivered.name!r} arrived {run.surplus(delivered)}")
    for delivered, given in run.matched():
        if difference := _difference(delivered, given, run.promises.dtype):
            yield Problem(difference, given.index)
        elif not delivered.same_kind(given):
            continue  # nothing is promised of its dtype, nor of its bits
        elif not delivered.as_given(given) and _not_a_lenders_doing(run, given):
            yield Problem("it arrived with other bits", given.index)


def _difference(delivered: Delivered, given: HandOver, promised: str | None) -> str | None:
    for what in ("shape", "dtype", "device"):
        due, here = getattr(given.expected, what), getattr(delivered.facts, what)
        if due != here and not (what == "dtype" and promised is None):
            return f"it should arrive with {what} {due} and arrived with {here}"
    return None


def _not_a_lenders_doing(run: Run, given: HandOver) -> bool:
    """Whether bits are wrong also when no lender writes before the stream is over."""
    if given.custody is not Custody.LENT:
        return True
    calm = run.calm
    return any(not delivered.as_given(calm.handed_over[given.index]) for delivered in calm.of(given.index))


@contract(
    "values.order",
    campaigns=["mixed", "several", "long-stream", *MODELS, *MODELS_ON_META],
    needs={"order": ("kept",)},
)
def order(run: Run) -> Iterator[Problem]:
    """Items keep the stream's order, within and across buckets."""
    arrived = [delivered.index for delivered in run.delivered if delivered.index is not None]
    for before, after in itertools.pairwise(arrived):
        if before > after:
            yield Problem(f"it arrived after item {before}, which was handed over later", after)


@contract("values.duplicates", campaigns=["duplicates"], needs={"duplicates": ()})
def duplicates(run: Run) -> Iterator[Problem]:
    """Two hand-overs with one name both arrive, or the bucketer refuses with an error; none is lost silently."""
    if run.error is None:
        yield from (each for each in arrival(run) if each.item is not None)
    elif run.promises.duplicates == "kept" and run.repeat(items=_with_names_of_their_own(run)).error is None:
        yield Problem(f"a name that came twice was refused: {run.said}")


def _with_names_of_their_own(run: Run) -> tuple[Item, ...]:
    return tuple(replace(item, name=f"{index}.{item.name}") for index, item in enumerate(run.plan.items))


@contract("values.tied", campaigns=["ties"])
def tied(run: Run) -> Iterator[Problem]:
    """Names that share memory all arrive."""
    if run.error is None:
        for index in range(len(run.plan.items)):
            if not run.of(index):
                yield Problem("it never arrived", index)


@contract("values.self-contained", custodies=ANY_CUSTODY, campaigns=MODELS, needs={"layout": ()})
def self_contained(run: Run) -> Iterator[Problem]:
    """Yielded tensors carry no autograd graph, are dense (contiguous where promised), and serialise to their bytes."""
    for delivered, given in run.matched():
        seen = delivered.facts
        if seen.graph:
            yield Problem(f"it carries an autograd graph, {seen.graph}", given.index)
        if seen.lazy:
            yield Problem("it is still to be conjugated or negated: its memory does not hold its values", given.index)
        # What is packed is sent together; and what was kept in too large a storage is a matter of aliasing.
        is_copy = run.promises.padding is None and not seen.storage.overlaps(given.facts.storage)
        if is_copy and seen.storage.nbytes > seen.nbytes:
            yield Problem(f"it serialises to {seen.storage.nbytes} bytes, and has {seen.nbytes}", given.index)
        if seen.span.nbytes != seen.nbytes:
            yield Problem(f"it is not dense: {seen.nbytes} bytes in a span of {seen.span.nbytes}", given.index)
        if run.promises.layout == "contiguous" and not seen.contiguous:
            yield Problem(f"it is not contiguous: shape {seen.shape}, strides {seen.stride}", given.index)
