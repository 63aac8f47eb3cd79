"""A machine with a CUDA device that is none: torch's calls, on tensors of the host, in the order that streams allow.

What is given to a stream is done at once, unless it has to wait: for a stream that sleeps, until the host waits for it,
and for an event. Then it is done as soon as it may be, and of several streams that may go on, the one first that a test
says. So whatever is not ordered happens in the wrong order, each time.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from bucketproof.properties.cuda.metering import rounded
from bucketproof.strategies import DEVICES, cuda, devices, memory
from bucketproof.strategies.devices import CUDA, Accelerator

aten: Any = torch.ops.aten


class Machine(TorchDispatchMode):
    """The device. It is entered while it is used."""

    def __init__(self, *, newest_first: bool = False) -> None:
        super().__init__()
        self.log: list[str] = []
        """What was called, in the order in which it was."""
        self.streams: list[Stream] = []
        self.here = self.default = Stream(self)
        self.peak = 0
        self.captured: list[Callable[[], object]] | None = None
        self._newest_first = newest_first
        self._born: dict[int, tuple[StorageWeakRef, int]] = {}
        self._raw: dict[int, int] = {}

    # Streams.

    def wake(self) -> None:
        """Do all that may be done."""
        streams = self.streams[::-1] if self._newest_first else self.streams[:]
        went_on = True
        while went_on:
            went_on = False
            for stream in streams:
                went_on |= stream.go_on()

    def synchronize(self) -> None:
        """The host waits until all of it is done."""
        self.log.append("synchronize")
        while any(stream.waiting for stream in self.streams):
            for stream in self.streams:
                stream.awake()
            self.wake()

    # Operators.

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.here.waiting and func in _DEFERRED:
            return self._deferred(func, args)
        result = func(*args, **kwargs)
        self._remember(func, args, result)
        return result

    def _deferred(self, func: Any, args: Any) -> torch.Tensor:
        if func is aten.clone.default:
            out = torch.empty_like(args[0], memory_format=torch.contiguous_format)
            self._remember(func, args, out)
            self.here.put(lambda: out.data.copy_(args[0].data))
            return out
        self.here.put(lambda: func(args[0].data, *(each.data if torch.is_tensor(each) else each for each in args[1:])))
        written: torch.Tensor = args[0]
        return written

    def _remember(self, func: Any, args: Any, result: Any) -> None:
        if self.captured is not None and func is aten.full.default:
            self.captured.append(lambda: result.data.fill_(args[1]))
        read = {each.untyped_storage()._cdata for each in args if isinstance(each, torch.Tensor)}
        for made in result if isinstance(result, (list, tuple)) else [result]:
            if isinstance(made, torch.Tensor) and made.untyped_storage()._cdata not in read:
                storage = made.untyped_storage()
                self._born[storage._cdata] = StorageWeakRef(storage), rounded(storage.nbytes())
                self.peak = max(self.peak, self.current)

    # The allocator.

    @property
    def current(self) -> int:
        """Bytes that are not given back."""
        self._born = {id: each for id, each in self._born.items() if not each[0].expired()}
        return sum(nbytes for _, nbytes in self._born.values()) + sum(self._raw.values())

    def stats(self) -> dict[str, int]:
        return {"allocated_bytes.all.current": self.current, "allocated_bytes.all.peak": self.peak}

    def reset_peak(self) -> None:
        self.peak = self.current

    def alloc(self, nbytes: int) -> int:
        number = 1 + max(self._raw, default=0)
        self._raw[number] = rounded(nbytes)
        self.peak = max(self.peak, self.current)
        return number

    def delete(self, number: int) -> None:
        del self._raw[number]


_DEFERRED = (aten.clone.default, aten.copy_.default, aten.fill_.Scalar)


class Stream:
    """A queue of what is to be done."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.number = len(machine.streams)
        self._queue: deque[Callable[[], object] | Event] = deque()
        machine.streams.append(self)

    @property
    def waiting(self) -> bool:
        return bool(self._queue)

    def put(self, work: Any) -> None:
        self._queue.append(work)
        self._machine.wake()

    def go_on(self) -> bool:
        """Do what is next, as far as it need not wait, and say whether anything was done."""
        before = len(self._queue)
        while self._queue and not (isinstance(self._queue[0], Event) and not self._queue[0].done):
            work = self._queue.popleft()
            if not isinstance(work, Event):
                with _disable_current_modes():  # else it would be given to the current stream once more
                    work()
        return len(self._queue) < before

    def awake(self) -> None:
        if self._queue and isinstance(self._queue[0], Event) and self._queue[0].is_sleep:
            self._queue[0].done = True

    def wait_stream(self, other: Stream) -> None:
        self._machine.log.append(f"{self.number} waits for {other.number}")
        self.wait_event(other.record_event())

    def wait_event(self, event: Event) -> None:
        self.put(event)

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event(self._machine)
        event.record(self)
        return event

    def synchronize(self) -> None:
        self._machine.synchronize()


class Event:
    """Something that is done once a stream has come to it; a sleep, once the host has waited."""

    def __init__(self, machine: Machine, *, is_sleep: bool = False) -> None:
        self._machine, self.done, self.is_sleep = machine, not is_sleep, is_sleep

    def record(self, stream: Stream | None = None) -> None:
        self.done = False
        (stream or self._machine.here).put(lambda: setattr(self, "done", True))

    def wait(self, stream: Stream | None = None) -> None:
        (stream or self._machine.here).wait_event(self)

    def query(self) -> bool:
        return self.done


class Graph:
    """A captured graph: what was written while it was, which is written again."""

    def __init__(self) -> None:
        self.written: list[Callable[[], object]] = []

    def replay(self) -> None:
        for write in self.written:
            write()


@contextmanager
def fake_cuda(patch: pytest.MonkeyPatch, *, newest_first: bool = False) -> Iterator[Machine]:
    """In here, there is a device."""
    machine = Machine(newest_first=newest_first)

    @contextmanager
    def on(stream: Stream) -> Iterator[None]:
        before, machine.here = machine.here, stream
        try:
            yield
        finally:
            machine.here = before

    @contextmanager
    def graph(made: Graph) -> Iterator[None]:
        machine.captured = made.written
        try:
            yield
        finally:
            machine.captured = None

    def sleep(cycles: int) -> None:
        machine.log.append("sleep")
        machine.here.put(Event(machine, is_sleep=True))

    calls: dict[str, Any] = {
        "Stream": lambda priority=0: Stream(machine),
        "Event": lambda: Event(machine),
        "CUDAGraph": Graph,
        "graph": graph,
        "stream": on,
        "current_stream": lambda device=None: machine.here,
        "set_stream": lambda stream: setattr(machine, "here", stream),
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "device_count": lambda: 1,
        "synchronize": machine.synchronize,
        "empty_cache": lambda: None,
        "_sleep": sleep,
        "memory_stats": machine.stats,
        "reset_peak_memory_stats": machine.reset_peak,
        "get_allocator_backend": lambda: "native",
        "caching_allocator_alloc": machine.alloc,
        "caching_allocator_delete": machine.delete,
    }
    for name, call in calls.items():
        patch.setattr(torch.cuda, name, call)
    patch.setattr(torch._C, "_accelerator_getAllocatorSettings", lambda: "", raising=False)
    patch.setattr(torch._C, "_accelerator_setAllocatorSettings", machine.log.append, raising=False)
    patch.setattr(torch.Tensor, "pin_memory", torch.Tensor.clone)
    patch.setattr(torch.Tensor, "record_stream", lambda self, stream: machine.log.append("record_stream"))
    patch.setattr(torch, "as_tensor", lambda exporter, device: torch.utils.dlpack.from_dlpack(exporter))
    patch.setattr(devices, "_lacks_cuda", lambda: "")
    patch.setitem(DEVICES, CUDA, Accelerator(CUDA, "cpu"))
    patch.setitem(memory._ALLOCATE, "pinned", memory._heap)
    patch.setitem(sys.modules, "torch.cuda._sanitizer", sanitizer())
    caches = cuda.aside, cuda._of_expandable_segments, devices._start
    for each in caches:
        each.cache_clear()
    try:
        with machine:
            yield machine
    finally:
        for each in caches:
            each.cache_clear()


class CUDASanitizerErrors(Exception):
    """What the sanitizer raises."""


def sanitizer() -> SimpleNamespace:
    """A sanitizer that sees nothing."""
    switch = SimpleNamespace(enable=lambda: None, disable=lambda: None)
    return SimpleNamespace(cuda_sanitizer=switch, CUDASanitizerErrors=CUDASanitizerErrors)


def there() -> None:
    """What another process has to do, to take its memory for a device's."""
    DEVICES[CUDA] = devices.Device(CUDA, "cpu")
