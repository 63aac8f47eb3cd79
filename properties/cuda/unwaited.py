"""A sync in which nobody waits for the device: it is far behind, and all that holds is the order of streams.

A producer has the device sleep, writes a weight into its buffer, and hands it over while the device still sleeps. Once
it is advanced, another stream writes over the buffer, as soon as the current one is done with what it was given until
then. So whoever copies on a stream of its own must have that one wait for the current one, and the current one for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from bucketproof.properties.cuda.driving import drive
from bucketproof.properties.surroundings import undisturbed
from bucketproof.properties.target import Target
from bucketproof.strategies import DEVICES, DTYPES, Plan, content
from bucketproof.strategies.content import POISON
from bucketproof.strategies.cuda import aside

CYCLES = 50_000_000
"""For how long the device sleeps before each weight: some 25 ms, in which nothing else of a bucketer's takes long."""
TIMES = 1 << 17
"""By which weights are larger than planned. What is copied must take longer than what is written at once."""


@dataclass
class Seen:
    """What was seen of a sync."""

    spoiled: dict[int, str] = field(default_factory=dict)
    """Weights with other bytes than were handed over, and when they had them."""
    waited: list[str] = field(default_factory=list)
    """When the host has waited for the device."""
    error: str = ""
    """What the target raised."""


def unwaited(target: Target, plan: Plan, device: str, *, times: int | None = None) -> Seen:
    """Drive a target through the weights of a plan, each as bytes in one buffer and `TIMES` times as large."""
    sync = _Sync(plan, DEVICES[device].where, times or TIMES)
    with undisturbed(device):
        try:
            drive(target, sync.weights(), sync.plan, sync.receive)
        except Exception as error:
            sync.seen.error = f"{type(error).__name__}: {error}".split("\n")[0]
    DEVICES[device].settle()
    sync.compare()
    return sync.seen


class _Sync:
    def __init__(self, plan: Plan, where: str, times: int) -> None:
        self.seen = Seen()
        items = [item for item in plan.items if item.nbytes]
        self.plan = Plan(tuple(items), plan.bucket_bytes * times)
        self._sizes = [item.nbytes * times for item in items]
        self._given = [_content(size, seed).to(where) for seed, size in enumerate(self._sizes)]
        self._buffer = torch.zeros(max(self._sizes, default=0), dtype=torch.uint8, device=where)
        self._asleep = torch.cuda.Event()
        self._arrived: list[tuple[torch.Tensor, torch.Tensor]] = []
        """What the consumer holds, and what a kernel of its own has read of it at once."""

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        for index, (item, size) in enumerate(zip(self.plan.items, self._sizes, strict=True)):
            torch.cuda._sleep(CYCLES)
            self._asleep.record()
            self._buffer[:size].copy_(self._given[index])
            yield item.name, self._buffer[:size].detach()
            self._look(f"before item {index + 1} was pulled")
            self._write_over()

    def _write_over(self) -> None:
        other, here = aside(), torch.cuda.current_stream()
        other.wait_stream(here)
        with torch.cuda.stream(other):
            self._buffer.fill_(POISON)
        here.wait_stream(other)

    def receive(self, bucket: list[tuple[str, torch.Tensor]]) -> None:
        """Read what has come, on the current stream."""
        self._look(f"before weight {len(self._arrived)} was delivered")
        self._arrived += [(tensor, tensor.detach().clone()) for _, tensor in bucket]

    def _look(self, when: str) -> None:
        if self._asleep.query():
            self.seen.waited.append(when)

    def compare(self) -> None:
        """Compare what was read at once, and what is there in the end, with what was given, now that all is done."""
        for index, ((tensor, read), given) in enumerate(zip(self._arrived, self._given, strict=False)):
            for when, now in (("when its bucket was yielded", read), ("in the end", tensor.detach())):
                if now.nbytes != given.nbytes or not torch.equal(now.reshape(-1).view(torch.uint8), given):
                    self.seen.spoiled.setdefault(index, when)


def _content(nbytes: int, seed: int) -> torch.Tensor:
    raw = torch.empty(nbytes, dtype=torch.uint8)
    content.write(raw, DTYPES["uint8"], seed)
    return raw
