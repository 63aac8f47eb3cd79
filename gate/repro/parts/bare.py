"""The producer, where nothing is to be known of a weight."""

from __future__ import annotations

from typing import Any

import torch

from bucketproof.repro.parts.memory import Build
from bucketproof.repro.parts.producing import Pair
from bucketproof.repro.parts.slots import GRAD


def hand_over(name: str, build: Build, shape: tuple[int, ...], dtype: torch.dtype, memory: Any) -> Pair:
    """A new weight, as the producer yields it. Nothing here holds it."""
    with torch.inference_mode(False), torch.set_grad_enabled(GRAD):
        return name, build(shape, dtype, memory)
