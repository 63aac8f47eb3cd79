"""What catches the faults of the zoo: four example tests, hypothesis-torch, and this suite, side by side in one run.

    python tests/benchmarks/comparison.py [SEEDS [FAULT...]]

It prints Markdown: how many faults each side catches, and for each fault how many plans and seconds of a core it takes
to the first failure, as the median over the seeds (20 by default).

- The *example tests* check what the published unit tests of this bucketer check: an owned tensor is kept, a view into
  a larger buffer is copied, a transposed tensor is copied, values are preserved through buckets.
- *hypothesis-torch* feeds the very properties of this suite, with the ends and consumers of its own plans, but with
  lists of tensors as hypothesis-torch draws them, and a limit between one byte and all of theirs. What it draws is
  plain (which is checked here), so that it is rebuilt from its shape and dtype alone.
- *smoke* and *gate* are this suite's profiles. A fault is looked for in the cells of the property that must catch it,
  of a few usual provenances and those that the fault names: the first plan of each cell, then the second, and so on.
  What is told is how many plans of a cell that is.
"""

from __future__ import annotations

import math
import multiprocessing
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache

import hypothesis
import hypothesis_torch
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from bucketproof.properties import PROFILES, Cell, Target, execute, limits
from bucketproof.properties.judging import cheap_collections, drawn, without_constants
from bucketproof.properties.surroundings import undisturbed
from bucketproof.reference.faults import FAULTS
from bucketproof.strategies import Item, Plan
from bucketproof.strategies.dtypes import name_of
from bucketproof.targets import resolve
from bucketproof.zoo import usual_cells

SEEDS = 20
GENERATIONS = {
    "always-clone": "ownership.no-copy",
    "storage-size": "aliasing.survives-overwrite",
    "base-guard": "aliasing.survives-overwrite",
}
SIDES = ("examples", "hypothesis-torch", "smoke", "gate")


# The example tests.


def keeps_an_owned_tensor(bucketed: Callable[..., list[tuple[str, torch.Tensor]]]) -> bool:
    tensor = torch.arange(8.0)
    ((_, kept),) = bucketed([("w", tensor)], 1 << 20)
    return kept.data_ptr() == tensor.data_ptr()


def copies_a_view_into_a_larger_buffer(bucketed: Callable[..., list[tuple[str, torch.Tensor]]]) -> bool:
    buffer = torch.arange(16.0)
    ((_, kept),) = bucketed([("w", buffer[4:12])], 1 << 20)
    return kept.untyped_storage().data_ptr() != buffer.untyped_storage().data_ptr() and kept.equal(buffer[4:12])


def copies_a_transposed_tensor(bucketed: Callable[..., list[tuple[str, torch.Tensor]]]) -> bool:
    tensor = torch.arange(6.0).view(2, 3)
    ((_, kept),) = bucketed([("w", tensor.t())], 1 << 20)
    return kept.untyped_storage().data_ptr() != tensor.untyped_storage().data_ptr() and kept.equal(tensor.t())


def preserves_values(bucketed: Callable[..., list[tuple[str, torch.Tensor]]]) -> bool:
    weights = [(f"w{i}", torch.full((1 << 16,), float(i))) for i in range(5)]
    arrived = bucketed([(name, tensor.clone()) for name, tensor in weights], 0.5 * (1 << 20))
    return [name for name, _ in arrived] == [name for name, _ in weights] and all(
        seen.equal(due) for (_, seen), (_, due) in zip(arrived, weights, strict=True)
    )


def caught_by_examples(target: Target) -> bool:
    tests = [copies_a_view_into_a_larger_buffer, copies_a_transposed_tensor, preserves_values]
    if target.promises.copies == "when-needed":
        tests.append(keeps_an_owned_tensor)

    def bucketed(weights: list[tuple[str, torch.Tensor]], limit: float) -> list[tuple[str, torch.Tensor]]:
        return consumed(target, weights, limit)

    with undisturbed():  # what a fault leaves changed would hide it from the sides that come after
        try:
            return not all(test(bucketed) for test in tests)
        except Exception:
            return True


def consumed(target: Target, weights: list[tuple[str, torch.Tensor]], limit: float) -> list[tuple[str, torch.Tensor]]:
    """Everything that a target yields, as one list of pairs."""
    import asyncio

    async def collect() -> list[object]:
        result = target.call(weights, limit)
        if hasattr(result, "__await__"):
            result = await result
        if hasattr(result, "__aiter__"):
            return [bucket async for bucket in result]
        return list(result)

    buckets = asyncio.run(collect())
    return [pair for bucket in buckets for pair in (bucket.items() if hasattr(bucket, "items") else bucket)]


# hypothesis-torch.

TENSORS = st.lists(
    hypothesis_torch.tensor_strategy(
        dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool]),
        shape=st.lists(st.integers(0, 4), max_size=3).map(tuple),
        layout=torch.strided,
    ),
    max_size=8,
)


@cache
def plain(number: int) -> tuple[tuple[tuple[Item, ...], int], ...]:
    """Lists of tensors that hypothesis-torch draws, each with a limit."""
    lists = []

    @hypothesis.seed(number)
    @settings(
        max_examples=PROFILES["gate"].examples,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(TENSORS, st.data())
    def draw(tensors: list[torch.Tensor], data: st.DataObject) -> None:
        total = sum(tensor.nbytes for tensor in tensors)
        lists.append((tuple(map(as_item, range(len(tensors)), tensors)), data.draw(st.integers(1, total + 1))))

    with without_constants():
        draw()
    return tuple(lists)


def as_item(place: int, tensor: torch.Tensor) -> Item:
    is_plain = tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.nbytes and tensor._base is None
    assert is_plain, "hypothesis-torch has drawn a view"
    return Item(f"layers.{place}.weight", "fresh", name_of(tensor.dtype), tuple(tensor.shape), seed=place)


def with_plain_tensors(plans: tuple[Plan, ...], number: int) -> Iterator[Plan]:
    for plan, (items, limit) in zip(plans, plain(number), strict=False):
        kept = limit if plan.bucket_bytes > 0 else plan.bucket_bytes  # zero and the like are drawn in any case
        yield replace(plan, items=items, bucket_bytes=kept, ends_at=min(plan.ends_at, len(items)))


# Both, plan by plan.


@dataclass(frozen=True)
class Cost:
    """What it took to the first failure."""

    plans: float
    seconds: float
    """Of a core: what else the machine does makes it no longer. To wait for what hangs costs nothing."""


NEVER = Cost(math.inf, math.inf)


def first_failure(target: Target, plans_of: dict[Cell, tuple[Plan, ...]]) -> Cost:
    started = time.process_time()
    for number in range(max(map(len, plans_of.values()))):
        for cell, plans in plans_of.items():
            if number < len(plans) and cell.problems(execute(target, plans[number])):
                return Cost(number + 1, time.process_time() - started)
    return NEVER


_drawn = cache(drawn)


def costs(name: str, seed: int) -> dict[str, Cost]:
    """What it takes each side to catch a fault."""
    limits.SECONDS = 1.0
    target, judged = resolve(name), judging(name)
    smoke, gate = (
        {cell: _drawn(cell.campaign, target.promises, PROFILES[profile], seed) for cell in judged}
        for profile in ("smoke", "gate")
    )
    # Without views, all provenances are the same.
    plain_cells = [cell for cell in judged if not cell.provenance] or judged[:1]
    others = {cell: tuple(with_plain_tensors(gate[cell], seed)) for cell in plain_cells}
    with cheap_collections():
        return {
            "examples": Cost(1, 0.0) if caught_by_examples(target) else NEVER,
            "hypothesis-torch": first_failure(target, others),
            "smoke": first_failure(target, smoke),
            "gate": first_failure(target, gate),
        }


def judging(name: str) -> list[Cell]:
    """The cells in which a fault is looked for."""
    if name in FAULTS:
        return [cell for cell in usual_cells(FAULTS[name].on) if cell.property.id == FAULTS[name].property]
    return [cell for cell in usual_cells() if cell.property.id == GENERATIONS[name]]


def measured(work: tuple[int, list[str]]) -> dict[str, dict[str, Cost]]:
    """All faults with one seed, for which all is drawn once."""
    seed, names = work
    return {name: costs(name, seed) for name in names}


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS
    names = sys.argv[2:] or [*GENERATIONS, *FAULTS]
    found: dict[str, list[dict[str, Cost]]] = {name: [] for name in names}
    with multiprocessing.get_context("spawn").Pool(maxtasksperchild=1) as pool:
        for number, of_seed in enumerate(pool.imap_unordered(measured, [(seed, names) for seed in range(seeds)]), 1):
            print(f"{number} of {seeds} seeds", file=sys.stderr, flush=True)
            for name, each in of_seed.items():
                found[name].append(each)
    report(found, seeds)


def report(found: dict[str, list[dict[str, Cost]]], seeds: int) -> None:
    zoo = {name: each for name, each in found.items() if name in FAULTS}
    print(f"Caught, of {len(zoo)} faults, with each of {seeds} seeds:\n")
    print("| group | faults |" + "".join(f" {side} |" for side in SIDES) + "\n|---|---|" + "---|" * len(SIDES))
    groups: dict[str, list[str]] = defaultdict(list)
    for name in zoo:
        groups[FAULTS[name].group].append(name)
    for group, names in {**groups, "all": list(zoo)}.items():
        counts = [sum(always(found[name], side) for name in names) for side in SIDES]
        print(f"| {group} | {len(names)} |" + "".join(f" {count} |" for count in counts))
    print("\nPlans and seconds of a core to the first failure, as the median over the seeds:\n")
    print("| fault | example tests | hypothesis-torch | smoke | gate | gate, most plans |\n|---|---|---|---|---|---|")
    for name, each in found.items():
        most = max(cost["gate"].plans for cost in each)
        print(f"| `{name}` |" + "".join(f" {median(each, side)} |" for side in SIDES) + f" {most:.0f} |")


def always(found: list[dict[str, Cost]], side: str) -> bool:
    return all(costs[side] != NEVER for costs in found)


def median(found: list[dict[str, Cost]], side: str) -> str:
    plans = statistics.median(costs[side].plans for costs in found)
    seconds = statistics.median(costs[side].seconds for costs in found)
    return "never" if plans == math.inf else f"{plans:g} ({seconds:.2f} s)"


if __name__ == "__main__":
    main()
