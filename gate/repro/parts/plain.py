"""Content, as it comes."""

from __future__ import annotations

import torch

from bucketproof.repro.parts.memory import content


def write(raw: torch.Tensor, dtype: torch.dtype, seed: int) -> None:
    """Write content, past autograd."""
    raw.data.copy_(content(raw.numel(), seed))
