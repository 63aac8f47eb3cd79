"""The bits of tensors that torch copies as they are."""

from __future__ import annotations

import torch


def bits(tensor: torch.Tensor) -> bytes:
    """The bytes of its elements, in order."""
    flat = tensor.detach().clone(memory_format=torch.contiguous_format).view(-1)
    return flat.view(torch.uint8).numpy().tobytes()
