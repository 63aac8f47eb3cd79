"""Content with numbers in it that are none, and others at the edge."""

from __future__ import annotations

import torch

from bucketproof.repro.parts.memory import content

EDGES = {  # -0.0 and -inf, and the bits to clear and to set that make a signalling NaN with a payload of its own
    torch.float16: (torch.int16, -0x8000, -0x400, ~0x0260, 0x7C02),
    torch.bfloat16: (torch.int16, -0x8000, -0x80, ~0x0060, 0x7F82),
    torch.float32: (torch.int32, -0x8000_0000, -0x80_0000, ~0x0060_0000, 0x7F80_0002),
    torch.float64: (torch.int64, -(2**63), -(2**52), ~0x0068_0000_0000_0000, 0x7FF0_0000_0000_0002),
}


def write(raw: torch.Tensor, dtype: torch.dtype, seed: int) -> None:
    """Write content, past autograd, with numbers that are easily changed: -0.0, -inf, and NaNs."""
    raw.data.copy_(content(raw.numel(), seed))
    part = dtype.to_real() if dtype.is_complex else dtype
    if part in EDGES:
        number, zero, infinity, cleared, added = EDGES[part]
        words = raw.data.view(number)
        words[1::7], words[4::7] = zero, infinity
        words[::3].bitwise_and_(cleared).bitwise_or_(added)
