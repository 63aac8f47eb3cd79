"""Buffers that were made under inference mode."""

from __future__ import annotations

import torch

from bucketproof.repro.parts.memory import BUFFERS, Lent
from bucketproof.strategies.content import POISON


class Inference(Lent):
    """The same, made under inference mode."""

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        with torch.inference_mode():
            return super().take(shape, dtype)


def overwrite(number: int) -> None:
    """The lender writes over a buffer, as a collective does: autograd does not notice."""
    with torch.inference_mode(BUFFERS[number].is_inference()):
        BUFFERS[number].data.fill_(POISON)
