"""What the allocator has given, as its own statistics say: also what no operator of torch's has asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from bucketproof.properties.cuda.driving import drive
from bucketproof.properties.running import MODES
from bucketproof.properties.surroundings import undisturbed
from bucketproof.properties.target import Target
from bucketproof.strategies import PROVENANCES, Custody, Plan, Stream


@dataclass
class Metered:
    """What was seen of a sync."""

    excess: tuple[int, int] | None = None
    """The bucketer's bytes when it first had more than was allowed, and how many those are."""
    error: str = ""
    """What the target raised."""
    unbuilt: Exception | None = None
    """What has kept the device from making a weight."""


@dataclass
class _Meter:
    """The bytes in the hands of the bucketer: its own, and those that it was given for good."""

    room: int = 0
    """Bytes of the buffer that a packer fills, beside what it fills it from."""
    held: int = 0
    _start: int = 0
    sizes: list[int] = field(default_factory=list)
    """Bytes of each weight that was handed over; for a packer, of the memory that came with it."""
    delivered: int = 0
    """How many were delivered."""
    in_hand: int = 0
    """Bytes of the memory that came with the weight that was handed over last."""
    leaving: int = 0
    """Bytes of the bucket that was delivered last, until the producer is advanced: it need not be let go of before."""
    seen: Metered = field(default_factory=Metered)

    def begin(self) -> None:
        """The bucketer goes on."""
        torch.cuda.reset_peak_memory_stats()
        self._start = allocated("current")

    def end(self) -> None:
        """Somebody else does."""
        peak = self.held + allocated("peak") - self._start
        self.held += allocated("current") - self._start
        if peak > self._allowed() and self.seen.excess is None:
            self.seen.excess = peak, self._allowed()

    def _allowed(self) -> int:
        undelivered = self.sizes[self.delivered :]
        beside = max([self.in_hand, *undelivered, *self.sizes[-1:]], default=0)
        return sum(undelivered) + self.room + self.leaving + beside

    @contextmanager
    def paused(self) -> Iterator[None]:
        """While the producer works: what it allocates is its own."""
        self.end()
        self.leaving = 0
        yield
        self.begin()


def allocated(which: str) -> int:
    """The bytes that the allocator has given and not got back: `current`, or the `peak` since it was reset."""
    return int(torch.cuda.memory_stats()[f"allocated_bytes.all.{which}"])


def rounded(nbytes: int) -> int:
    """The bytes that it gives to who asks for so many, if they are few."""
    return -(-nbytes // _STEP) * _STEP


_STEP = 512
"""What the sizes of small blocks are multiples of."""


def metered(target: Target, plan: Plan, device: str) -> Metered:
    """Drive a target through a plan while its buckets are dropped, and read the allocator at each change of hands."""
    if (backend := torch.cuda.get_allocator_backend()) != "native":
        raise RuntimeError(f"the allocator {backend} does not say what it has given")
    sizes = [rounded(item.nbytes) for item in plan.items]
    room = max(min(rounded(int(plan.bucket_bytes)), sum(sizes)), *sizes, 0)
    meter = _Meter(room=room if target.promises.copies != "when-needed" else 0)
    asynchronous = target.is_async  # which is found out by calling it

    def produced(index: int, tensor: torch.Tensor) -> None:
        is_its_own = PROVENANCES[plan.items[index].provenance].custody in (Custody.OWNED, Custody.PARTIAL)
        meter.in_hand = rounded(tensor.untyped_storage().nbytes()) if is_its_own else 0
        meter.held += meter.in_hand  # nobody else will give it back
        meter.sizes.append(max(rounded(tensor.nbytes), meter.in_hand if meter.room else 0))

    def receive(bucket: list[tuple[str, torch.Tensor]]) -> None:
        meter.end()
        before, meter.leaving = allocated("current"), sum(rounded(tensor.nbytes) for _, tensor in bucket)
        meter.delivered += len(bucket)
        bucket.clear()
        meter.held += allocated("current") - before
        meter.begin()

    stream = Stream(plan, device=device, produced=produced, working=meter.paused)
    with undisturbed(device), MODES[plan.grad_mode]():
        meter.begin()
        try:
            drive(target, stream.iterable(asynchronous=asynchronous), plan, receive)
        except Exception as error:
            meter.seen.error = f"{type(error).__name__}: {error}".split("\n")[0]
    meter.seen.unbuilt = stream.unbuilt
    stream.let_go()
    return meter.seen
