"""How fast streams are drawn and built, beside hypothesis-torch drawing plain tensors for the same list.

Run it with `python tests/benchmarks/drawing.py`. Both sides draw lists of up to eight `(name, tensor)` pairs in one
process and in turn, so that what else the machine does touches both.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import hypothesis_torch
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from bucketproof.strategies import Stream, plans

EXAMPLES = 200
ROUNDS = 7
NAMES = [f"layers.{i}.weight" for i in range(8)]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int8, torch.int64, torch.bool]
SHAPES = st.lists(st.integers(1, 4), max_size=3).map(tuple)

plain_tensors = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        hypothesis_torch.tensor_strategy(dtype=st.sampled_from(DTYPES), shape=SHAPES, layout=torch.strided),
    ),
    min_size=8,
    max_size=8,
)
streams = plans(min_items=8, max_items=8, iterables=["generator"])


def consume_tensors(drawn: list[tuple[str, torch.Tensor]]) -> int:
    return len(drawn)


def consume_stream(plan: Any) -> int:
    return sum(1 for _ in Stream(plan).iterable())


def rate(strategy: st.SearchStrategy[Any], consume: Callable[[Any], int], number: int) -> float:
    """Tensors a second, drawn and built."""
    tensors = 0

    @seed(number)
    @settings(
        max_examples=EXAMPLES,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def draw(drawn: Any) -> None:
        nonlocal tensors
        tensors += consume(drawn)

    started = time.perf_counter()
    draw()
    return tensors / (time.perf_counter() - started)


def main() -> None:
    sides: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], int]]] = {
        "bucketproof, planned and built": (streams, consume_stream),
        "hypothesis-torch, plain tensors": (plain_tensors, consume_tensors),
    }
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(ROUNDS):
        for name, (strategy, consume) in sides.items():
            rates[name].append(rate(strategy, consume, number))
    for name, measured in rates.items():
        median = statistics.median(measured[1:])  # the first round warms up
        print(f"{name:34} {median:6.0f} tensors/s (from {min(measured[1:]):.0f} to {max(measured[1:]):.0f})")
    ours, theirs = rates.values()
    ratios = [a / b for a, b in zip(ours[1:], theirs[1:], strict=True)]
    print(f"ratio, round by round: median {statistics.median(ratios):.2f}, lowest {min(ratios):.2f}")


if __name__ == "__main__":
    main()
