"""Device: what only a device can break, which does what it is given later, in the order of its streams."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from weakref import WeakSet

from bucketproof.properties.contract import Problem, contract
from bucketproof.properties.cuda import lender  # noqa: F401  # memory of another process is made by it
from bucketproof.properties.cuda.metering import metered
from bucketproof.properties.cuda.sanitized import races
from bucketproof.properties.cuda.unwaited import Seen, unwaited
from bucketproof.properties.run import Run
from bucketproof.properties.target import Target
from bucketproof.strategies.devices import CUDA

_AT_ONCE = {"retention": ("on-arrival",), "order": ("kept",), "dtype": ("kept",)}
"""What has to be promised by whoever is judged while the device is behind."""


@contract("device.stays", campaigns=["moved"], needs={"dtype": ()}, group=CUDA)
def stays(run: Run) -> Iterator[Problem]:
    """Every weight is yielded on the device that it was handed over on."""
    for delivered, given in run.matched():
        if delivered.facts.device != given.facts.device:
            yield Problem(f"it came from {given.facts.device} and was yielded on {delivered.facts.device}", given.index)


@contract("device.stream-order", campaigns=["unwaited"], needs=_AT_ONCE, group=CUDA)
def stream_order(run: Run) -> Iterator[Problem]:
    """A copy is made after the stream that wrote its source, and before the stream that writes over it."""
    assert run.target is not None
    seen = next(filter(_is_wrong, _in_turn(run)), Seen())
    if seen.error and run.error is None:
        yield Problem(f"it raised {seen.error}, where nobody waits for the device")
    for index, when in seen.spoiled.items():
        yield Problem(f"{when}, weight {index} had other bytes than the stream had written for it")
    if not _is_wrong(seen) and run.target not in _SANITIZED:
        _SANITIZED.add(run.target)
        if race := races(run.target, run.plan, run.device):
            yield Problem(f"torch's sanitizer found a race: {race}")


def _is_wrong(seen: Seen) -> bool:
    return bool(seen.error or seen.spoiled)


_SANITIZED: WeakSet[Target] = WeakSet()
"""Targets that the sanitizer has watched, once each: it sees orders, and not what comes of them."""


@contract("device.ipc-survives", campaigns=["opened"], group=CUDA)
def ipc_survives(run: Run) -> Iterator[Problem]:
    """What another process opens by a CUDA IPC handle has the weight's bits, however late it reads."""
    for delivered, given in run.matched():
        # What is wrong in this process, before anybody writes, is another property's.
        as_given = delivered.same_kind(given) and delivered.as_given(given)
        if as_given and delivered.there and delivered.there.bits != delivered.facts.bits:
            yield Problem("another process read other bits, once its lender and the allocator went on", given.index)


@contract("device.peak", campaigns=["metered"], needs={"dtype": ("kept",)}, group=CUDA)
def peak(run: Run) -> Iterator[Problem]:
    """The allocator gives a bucketer no more than the open bucket and one item beside, whoever asks for it."""
    assert run.target is not None
    seen = metered(run.target, run.plan, run.device)
    if seen.unbuilt:
        raise seen.unbuilt
    if seen.excess and not seen.error:
        yield Problem("the allocator had given it {} bytes, where {} are allowed".format(*seen.excess))


@contract("device.no-host-sync", level="SHOULD", campaigns=["unwaited"], needs=_AT_ONCE, group=CUDA)
def no_host_sync(run: Run) -> Iterator[Problem]:
    """The host does not wait for the device while it is bucketed."""
    both = [*takewhile(lambda seen: seen.waited, _in_turn(run))]
    if len(both) == _TIMES:
        yield Problem(f"the host had waited for the device {both[-1].waited[0]}")


_TIMES = 2
"""Syncs that are looked at. In the first one the allocator may have to ask the driver for memory, for which the host
may wait as long as the device sleeps."""


def _in_turn(run: Run) -> Iterator[Seen]:
    assert run.target is not None
    for _ in range(_TIMES):
        yield unwaited(run.target, run.plan, run.device)
