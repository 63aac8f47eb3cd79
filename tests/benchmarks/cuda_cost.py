"""What a card costs and saves: examples a second by device, and what each generation copies of a large model.

Run it with `python tests/benchmarks/cuda_cost.py`. The model is the first part of a manifest, of some 30 billion
parameters, with all sides divided, once as FSDP2 gathers it and once as a trainer that splits what is fused. It ends
with 2 where there is no card.
"""

from __future__ import annotations

import math
import sys
import time

import torch

from bucketproof.properties import PROFILES, execute
from bucketproof.properties.cuda.driving import drive
from bucketproof.properties.cuda.metering import allocated
from bucketproof.properties.judging import drawn
from bucketproof.properties.promises import DEFAULT
from bucketproof.strategies import DEVICES, Lender, Plan, Stream, manifest, weights
from bucketproof.strategies.devices import CPU, CUDA
from bucketproof.targets import resolve

MODEL, COUNT, FACTOR = "qwen-moe-fused", 130, 8
EXPORTERS = ("gathered", "split")
BUCKETS = 40
"""Buckets that the model makes, about."""
ROUNDS = 3
TARGETS = ("reference", "always-clone", "storage-size", "base-guard")
MIB = 1 << 20


def rate(device: str) -> float:
    """Examples a second: plans of the commonest kind, built, bucketed by the reference and read."""
    plans, target = drawn("mixed", DEFAULT, PROFILES["gate"], 0, device), resolve("reference")
    execute(target, plans[0], device=device)
    started = time.perf_counter()
    for plan in plans:
        execute(target, plan, device=device)
    return len(plans) / (time.perf_counter() - started)


def model(exporter: str) -> Plan:
    """The model as a plan, while its buckets are dropped."""
    items = weights(MODEL, 0, COUNT, exporter=exporter, factor=FACTOR)
    limit = sum(item.nbytes for item in items) // BUCKETS
    return Plan(items, limit, lenders=(Lender("ping-pong", "larger"),), grad_mode="no_grad", consumer="drop")


def copied(name: str, plan: Plan) -> int:
    """Bytes that a bucketer writes into memory of its own."""
    return sum(each.nbytes for each in execute(resolve(name), plan, device=CUDA).copies)


def peak(name: str, plan: Plan) -> int:
    """Bytes that the allocator had given at most, the producer's among them."""
    stream = Stream(plan, device=CUDA)
    before = allocated("current")
    torch.cuda.reset_peak_memory_stats()
    with torch.no_grad():
        drive(resolve(name), stream.iterable(), plan, lambda bucket: bucket.clear())
    most = allocated("peak") - before
    stream.let_go()
    return most


def main() -> int:
    if lack := DEVICES[CUDA].lacks():
        print(f"cuda_cost.py takes a CUDA device: {lack}", file=sys.stderr)
        return 2
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    for number in range(ROUNDS):
        print(f"round {number + 1}: {rate(CPU):.0f} examples/s on the host, {rate(CUDA):.0f} on the card", flush=True)
    parameters = sum(math.prod(each.shape) for each in manifest(MODEL).weights[:COUNT])
    print(f"{MODEL}, its first {COUNT} weights, {parameters / 1e9:.1f} billion parameters, sides divided by {FACTOR}")
    for exporter in EXPORTERS:
        plan = model(exporter)
        total = sum(item.nbytes for item in plan.items)
        print(f"{exporter}: {total / MIB:.1f} MiB, buckets of at most {plan.bucket_bytes / MIB:.1f} MiB")
        for name in TARGETS:
            told = f"copies {copied(name, plan) / MIB:8.1f} MiB, peak {peak(name, plan) / MIB:8.1f} MiB"
            print(f"  {name:14}{told}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
