"""The state of the process that a bucketer must leave as it was, also while its consumer is at work."""

from __future__ import annotations

import gc
import os
import pickle
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from bucketproof.strategies import DEVICES
from bucketproof.strategies.devices import CPU

_READ: dict[str, Callable[[], Any]] = {
    "grad mode": torch.is_grad_enabled,
    "inference mode": torch.is_inference_mode_enabled,
    "default dtype": torch.get_default_dtype,
    "default device": torch.get_default_device,
    "number of threads": torch.get_num_threads,
    "autocast": lambda: torch.is_autocast_enabled("cpu"),
    "torch's random state": lambda: torch.get_rng_state().numpy().tobytes(),
    "Python's random state": random.getstate,
    "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
    "precision of products": torch.get_float32_matmul_precision,
    "anomaly detection": torch.is_anomaly_enabled,
    "garbage collection": gc.isenabled,
}
_READ_AT_THE_END: dict[str, Callable[[], Any]] = {
    "numpy's random state": lambda: _numpys(),
    # As they are kept, for to decode each of them takes a hundred times as long.
    "environment variables": lambda: os.environ._data.copy(),  # type: ignore[attr-defined]
}
"""What takes longer to read than all of the others, and is looked at once."""


_WRITTEN: dict[str, Callable[[Any], object]] = {
    "grad mode": torch.set_grad_enabled,
    "inference mode": lambda enabled: _GUARDS.append(torch._C._InferenceMode(enabled)),
    "default dtype": torch.set_default_dtype,
    "default device": lambda device: torch.set_default_device(None if device.type == "cpu" else device),
    "number of threads": torch.set_num_threads,
    "autocast": lambda enabled: torch.set_autocast_enabled("cpu", enabled),
    "torch's random state": lambda state: torch.set_rng_state(torch.frombuffer(bytearray(state), dtype=torch.uint8)),
    "Python's random state": random.setstate,
    "numpy's random state": lambda state: _set_numpys(state),
    "deterministic algorithms": torch.use_deterministic_algorithms,
    "precision of products": torch.set_float32_matmul_precision,
    "anomaly detection": torch.autograd.set_detect_anomaly,
    "garbage collection": lambda enabled: gc.enable() if enabled else gc.disable(),
    "environment variables": lambda before: _restore(before),
}


def _numpys() -> Any:
    """The state of numpy's generator, in a form that can be compared."""
    state = np.random.get_state()
    if isinstance(state, tuple):
        name, key, *others = state
        return name, key.tobytes(), *others
    return pickle.dumps(state)  # a generator of another kind has a state of another kind


def _set_numpys(state: Any) -> None:
    if isinstance(state, tuple):
        name, key, *others = state
        state = name, np.frombuffer(key, np.uint32), *others
    else:
        state = pickle.loads(state)
    np.random.set_state(state)


def _restore(before: dict[Any, Any]) -> None:
    os.environ.clear()
    os.environ.update({os.fsdecode(name): os.fsdecode(value) for name, value in before.items()})


_GUARDS: list[Any] = []
"""What ends a mode that somebody else has left on, for as long as it is held."""


@contextmanager
def undisturbed(device: str = CPU) -> Iterator[list[str]]:
    """Whatever is done in here, the process is as before afterwards. The names of what was not are in the list then.

    So is what a device is set to.
    The random states in here are new ones: to seed them with what they were seeded with before is a change, too.
    """
    before = {**surroundings(), **{name: read() for name, read in _READ_AT_THE_END.items()}}
    state = DEVICES[device].state()
    random.random()
    torch.rand(())
    found: list[str] = []
    try:
        yield found
    finally:
        found += [name for name, read in _READ_AT_THE_END.items() if read() != before[name]]
        for name in (*changed(before), *found):
            if name in _WRITTEN:
                _WRITTEN[name](before[name])
        if DEVICES[device].state() != state:
            found.append("the current device or stream")
            DEVICES[device].restore(state)


def surroundings() -> dict[str, Any]:
    """All of it that is quickly read, by name."""
    return {name: read() for name, read in _READ.items()}


def changed(before: dict[str, Any]) -> list[str]:
    """The names of what is no longer as it was."""
    return [name for name, read in _READ.items() if read() != before[name]]
