"""The same, where it is counted what the bucketer allocates, and where it matters whose memory a weight is in."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from bucketproof.repro.parts.memory import Build
from bucketproof.repro.parts.producing import Pair
from bucketproof.repro.parts.slots import GRAD, note_whose


def hand_over(name: str, build: Build, shape: tuple[int, ...], dtype: torch.dtype, memory: Any, whose: str) -> Pair:
    """A new weight, as the producer yields it. It is noted what it is; nothing here holds it, or counts."""
    with _disable_current_modes(), torch.inference_mode(False), torch.set_grad_enabled(GRAD):
        tensor = build(shape, dtype, memory)
        note_whose(name, tensor, whose)
    return name, tensor
