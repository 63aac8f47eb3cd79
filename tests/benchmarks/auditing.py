"""What an audit costs: passes over a stream that clone each weight, plain and audited, in one process and in turn.

    python tests/benchmarks/auditing.py [ROUNDS]

The manifests: 20,000 small weights; the same number of weights with 4 GiB altogether; 4 GiB in large weights. Each is
handed over as new tensors of a trainer would be: from a list of tensors that live already. The clones are dropped at
once. One thread computes, and what is measured are the seconds that it computes, so that other work on the machine
counts as little as it can.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from bucketproof import audit

GIB = 1 << 30
MANIFESTS = {
    "20,000 weights of 4 KiB": (20_000, 4 << 10),
    "20,000 weights, 4 GiB altogether": (20_000, 4 * GIB // 20_000 // 4096 * 4096),
    "4 GiB in weights of 16 MiB": (256, 16 << 20),
}
SIDES: dict[str, Callable[[Any], Any]] = {
    "plain": lambda weights: weights,
    "audited": audit,
    "audited, every weight closely": lambda weights: audit(weights, sample=0),
}


def produce(made: list[torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    """Hand over views of what is there, as an exporter yields parameters."""
    for number, tensor in enumerate(made):
        yield f"model.layers.{number}.weight", tensor.detach()


def seconds(made: list[torch.Tensor], side: Callable[[Any], Any]) -> float:
    """How long one pass computes."""
    gc.collect()
    gc.disable()
    started = time.process_time()
    for _, tensor in side(produce(made)):
        tensor.clone()
    taken = time.process_time() - started
    gc.enable()
    return taken


def measure(count: int, nbytes: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of each pass, by side."""
    made = [torch.full((nbytes // 2,), number, dtype=torch.bfloat16) for number in range(count)]
    taken: dict[str, list[float]] = {name: [] for name in SIDES}
    for number in range(rounds + 1):
        for name, side in SIDES.items():
            spent = seconds(made, side)
            if number:  # the first round warms up
                taken[name].append(spent)
    return taken


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    torch.set_num_threads(1)
    for manifest, (count, nbytes) in MANIFESTS.items():
        taken = measure(count, nbytes, rounds)
        plain = taken["plain"]
        print(f"{manifest}: {rounds} rounds")
        for name, each in taken.items():
            more = [100 * (spent / base - 1) for spent, base in zip(each, plain, strict=True)]
            beyond = (statistics.median(each) - statistics.median(plain)) / count * 1e6
            ratios = f"{statistics.median(more):+6.1f} % (from {min(more):+.1f} to {max(more):+.1f})"
            print(f"  {name:30} median {statistics.median(each) * 1e3:7.1f} ms, {ratios}, {beyond:+6.2f} us a weight")


if __name__ == "__main__":
    main()
