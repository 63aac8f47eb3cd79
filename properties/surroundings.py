"""The state of the process that a bucketer must leave as it was, also while its consumer is at work."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

_READ: dict[str, Callable[[], Any]] = {
    "grad mode": torch.is_grad_enabled,
    "inference mode": torch.is_inference_mode_enabled,
    "default dtype": torch.get_default_dtype,
    "default device": torch.get_default_device,
    "number of threads": torch.get_num_threads,
    "autocast": lambda: torch.is_autocast_enabled("cpu"),
    "torch's random state": lambda: torch.get_rng_state().numpy().tobytes(),
    "Python's random state": random.getstate,
}


def surroundings() -> dict[str, Any]:
    """All of it, by name."""
    return {name: read() for name, read in _READ.items()}


def changed(before: dict[str, Any]) -> list[str]:
    """The names of what is no longer as it was."""
    return [name for name, read in _READ.items() if read() != before[name]]
