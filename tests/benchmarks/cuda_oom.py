"""The report that started all this, on one card: a fused weight arrives, and a copy of it does not fit beside it.

Run it with `python tests/benchmarks/cuda_oom.py`. For each size, from 2 GiB to most of what is free, each bucketer is
run in a process of its own, whose share of the card is set such that the weight fits and two of them do not. The weight
is owned: as it is, and as the result of an autograd function that ends in a view. It ends with 1 if one runs out of
memory that should not, or the other way round, and with 2 where there is no card.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial

import torch

from bucketproof.properties.cuda.driving import drive
from bucketproof.strategies import DEVICES, Item, Plan
from bucketproof.strategies.devices import CUDA
from bucketproof.strategies.provenances.fresh import _EndsInAView
from bucketproof.targets import resolve

GIB = 1 << 30
SMALL = 16 << 20
"""Bytes of the weights before and after the large one."""
LIMIT = 512 << 20
"""Bytes of a bucket, as frameworks have it by default."""
ROOM = 256 << 20
"""Bytes beside the large weight and a half of it, for small weights and what the allocator rounds up."""
FAILS = {("always-clone", "fresh"), ("always-clone", "full-tensor"), ("base-guard", "full-tensor")}
"""What must run out of memory. All else must not."""
TARGETS = ("reference", "always-clone", "storage-size", "base-guard")
PROVENANCES = ("fresh", "full-tensor")
OUT_OF_MEMORY = 3


def sizes(free: int) -> Iterator[int]:
    """Bytes of the large weight: 2 GiB, twice as much, and so on, and last four fifths of what is free."""
    most = free * 4 // 5
    size = 2 * GIB
    while size < most:
        yield size
        size *= 2
    yield most // GIB * GIB


def share(size: int, total: int) -> float:
    """The part of the card that a process may have: the weight fits in it, and two of them do not."""
    return min(1.0, (size + size // 2 + ROOM) / total)


def weights(size: int, provenance: str) -> Iterator[tuple[str, torch.Tensor]]:
    """A few weights, of which one is that large. No name here is one of theirs."""
    yield "model.embed_tokens.weight", _made(SMALL, provenance)
    yield "model.layers.0.mlp.experts.gate_up_proj", _made(size, provenance)
    yield "model.norm.weight", _made(SMALL, provenance)


def _made(nbytes: int, provenance: str) -> torch.Tensor:
    made = torch.full((nbytes,), 1, dtype=torch.uint8, device=DEVICES[CUDA].where)
    return made if provenance == "fresh" else _ended_in_a_view(made)


def _ended_in_a_view(made: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = _EndsInAView.apply(made)
    return result


def sync(name: str, size: int, provenance: str) -> int:
    """Bucket the weights in this process. The exit code says whether there was room."""
    torch.cuda.set_per_process_memory_fraction(share(size, torch.cuda.mem_get_info()[1]))
    plan = Plan((Item("", "fresh"),) * 3, LIMIT)
    try:
        drive(resolve(name), weights(size, provenance), plan, lambda bucket: bucket.clear())
    except torch.OutOfMemoryError:
        return OUT_OF_MEMORY
    return 0


def found(name: str, size: int, provenance: str) -> str:
    """What became of one bucketer, in a process of its own."""
    command = [sys.executable, __file__, name, str(size), provenance]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = {0: "completes", OUT_OF_MEMORY: "out of memory"}
    last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    return told.get(done.returncode, f"exit code {done.returncode}: {last}")


def main() -> int:
    if lack := DEVICES[CUDA].lacks():
        print(f"cuda_oom.py takes a CUDA device: {lack}", file=sys.stderr)
        return 2
    free, total = torch.cuda.mem_get_info()
    print(f"{torch.cuda.get_device_name()}, {free / GIB:.1f} of {total / GIB:.1f} GiB free, torch {torch.__version__}")
    wrong = 0
    for size in sizes(free):
        for provenance in PROVENANCES:
            for name, seen in zip(TARGETS, map(partial(found, size=size, provenance=provenance), TARGETS), strict=True):
                due = "out of memory" if (name, provenance) in FAILS else "completes"
                wrong += seen != due
                mark = "" if seen == due else f", and should be: {due}"
                print(f"{size / GIB:6.1f} GiB  {provenance:12}{name:14}{seen}{mark}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.exit(sync(arguments[0], int(arguments[1]), arguments[2]) if arguments else main())
