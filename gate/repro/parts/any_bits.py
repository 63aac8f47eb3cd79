"""The bits of tensors of any dtype and layout."""

from __future__ import annotations

import torch

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(tensor: torch.Tensor) -> bytes:
    """The bytes of its elements, in order. As integers, all of them can be copied as they are."""
    flat = tensor.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg()
    flat = flat.view(INTEGERS.get(flat.itemsize, flat.dtype))
    return flat.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8).numpy().tobytes()
