"""What an audit costs: passes over a stream that clone each weight, plain and audited, in one process and in turn.

    python tests/benchmarks/auditing.py [ROUNDS]

The manifests: 20,000 small weights; the same number of weights with 4 GiB altogether; 4 GiB in large weights. Each is
handed over as new tensors of a trainer would be: from a list of tensors that live already. The clones are dropped at
once. One thread computes, and what is measured are the seconds that it computes. All sides make their passes at the
same time, a few weights each in turn, so that other work on the machine is in the way of all of them.
"""

from __future__ import annotations

import gc
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch

from bucketproof import audit

GIB = 1 << 30
PIECE = 1 << 24
"""Bytes that one side clones before it is another's turn: some milliseconds of work."""
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


def passes(made: list[torch.Tensor], piece: int) -> dict[str, float]:
    """How long one pass of each side computes, with what there is to do before its first and after its last weight."""
    taken = dict.fromkeys(SIDES, 0.0)
    gc.collect()
    gc.disable()
    streams: dict[str, Any] = {}
    for place, (name, side) in enumerate(SIDES.items()):
        apart = len(made) * place // len(SIDES)  # else one would find in the caches what another has just read
        started = time.process_time()
        streams[name] = iter(side(produce(made[apart:] + made[:apart])))
        taken[name] += time.process_time() - started
    for _ in range(0, len(made) + 1, piece):  # one more, for the end
        for name in sorted(streams, key=lambda name: random.random()):
            stream = streams[name]
            started = time.process_time()
            for _, tensor in islice(stream, piece):
                tensor.clone()
            taken[name] += time.process_time() - started
    gc.enable()
    return taken


def measure(count: int, nbytes: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of each pass, by side."""
    made = [torch.full((nbytes // 2,), number, dtype=torch.bfloat16) for number in range(count)]
    piece = max(1, PIECE // nbytes)
    found = [passes(made, piece) for _ in range(rounds + 1)][1:]  # the first round warms up
    return {name: [each[name] for each in found] for name in SIDES}


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
