"""What the suite costs on long streams, beyond the bucketer's own time, and what it keeps of them.

Run it with `python tests/benchmarks/manifests.py`. The weights are those of a mixture of experts, handed over as a
trainer does that splits what is fused; streams that are longer than the model begin it again. The clock is that of the
process, so that what else the machine does counts little, and each figure is the best of a few rounds.
"""

from __future__ import annotations

import os
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import torch

from bucketproof.properties import PROPERTIES, Run, Target, execute, limits
from bucketproof.properties.judging import cheap_collections
from bucketproof.properties.models import FACTOR, MODELS_ON_META
from bucketproof.reference import get_named_tensor_buckets_sync
from bucketproof.strategies import Plan, Stream, weights
from bucketproof.strategies.plans import Device

COUNTS = (1_000, 5_000, 20_000, 100_000)
MANY = 100_000
"""Items from which a stream is measured once, for it takes seconds."""
ROUNDS = 3
MODEL = "qwen-moe"
PER_BUCKET = 100
"""Items of a bucket, about."""
HEAD = f"{'items':>8} {'bucketer':>9} {'run':>7} {'judged':>7} {'beyond its own':>15} {'kept':>10}"
UNITS = f"{'':>8} {'µs/item':>9} {'µs/item':>7} {'µs/item':>7} {'µs/item':>15} {'bytes/item':>10}"

REFERENCE = Target("reference", get_named_tensor_buckets_sync)
JUDGED = [
    each
    for each in PROPERTIES.values()
    # It runs the stream again, and so do those of no model.
    if f"{MODEL}-on-meta" in each.campaigns or (MODEL in each.campaigns and not each.id.endswith("rank-agreement"))
]


def plan_of(count: int, exporter: str, device: Device) -> Plan:
    """A stream of so many items."""
    items = weights(MODEL, exporter=exporter, factor=FACTOR if device == "cpu" else 1)
    repeated = tuple(replace(items[i % len(items)], name=f"{i}.{items[i % len(items)].name}") for i in range(count))
    room = sum(item.nbytes for item in items) * PER_BUCKET // len(items)
    return Plan(repeated, room, device=device, consumer="drop", grad_mode="no_grad")


def seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def additions() -> float:
    """Seconds of a million additions: how fast the machine is, and how busy."""
    return min(seconds(lambda: sum(i + 1 for i in range(10**6))) for _ in range(ROUNDS))


def own(plan: Plan) -> float:
    """Seconds that the bucketer takes for plain tensors that are there already."""
    with torch.no_grad():
        pairs = list(Stream(replace(plan, retention="at-flush")).iterable())
        return seconds(lambda: consume(get_named_tensor_buckets_sync(iter(pairs), plan.bucket_bytes)))


def consume(buckets: Iterable[object]) -> None:
    for _ in buckets:
        pass


def judge(run: Run, device: Device) -> None:
    campaign = MODEL if device == "cpu" else MODELS_ON_META[0]
    for each in JUDGED:
        if campaign in each.campaigns and not each.id.endswith("rank-agreement"):
            assert not list(each.judge(run)), each.id


def kept(plan: Plan) -> int:
    """Bytes that Python holds of a run when it is over, beside the plan."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        run = execute(REFERENCE, plan)
        assert run.intact
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def row(count: int, exporter: str, device: Device) -> str:
    plan = plan_of(count, exporter, device)
    rounds = [measured(plan, device) for _ in range(ROUNDS if count < MANY else 1)]
    alone, run, judged = (1e6 * min(each) / count for each in zip(*rounds, strict=True))
    beyond = run + judged - alone
    held = f"{kept(plan) / count:10.0f}" if count < MANY else ""
    return f"{count:8} {alone:9.0f} {run:7.0f} {judged:7.0f} {beyond:15.0f} {held}".rstrip()


def measured(plan: Plan, device: Device) -> tuple[float, float, float]:
    runs: list[Run] = []
    with cheap_collections():
        return (
            own(plan),
            seconds(lambda: runs.append(execute(REFERENCE, plan))),
            seconds(lambda: judge(runs[-1], device)),
        )


def rows() -> Iterator[str]:
    kinds: tuple[tuple[str, Device], ...] = (("gathered", "cpu"), ("split", "cpu"), ("gathered", "meta"))
    for exporter, device in kinds:
        yield f"{exporter}, {'in memory' if device == 'cpu' else 'on the meta device, at full size'}"
        yield from (HEAD, UNITS)
        yield from (row(count, exporter, device) for count in COUNTS)
        yield ""


def main() -> None:
    limits.SECONDS = 600.0  # what is traced takes long, and does not hang
    execute(REFERENCE, plan_of(100, "split", "cpu"))  # what is loaded the first time
    print(f"{len(os.sched_getaffinity(0))} cores; a million additions in Python take {1e3 * additions():.0f} ms\n")
    for line in rows():
        print(line, flush=True)


if __name__ == "__main__":
    main()
