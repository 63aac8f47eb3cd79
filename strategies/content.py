"""What is written into memory: bit patterns that tell one position from every other, and a poison.

Each aligned word of four bytes has a value of its own, so that a shifted, swapped or stale element shows.
No pattern contains the poison byte anywhere, so that every byte that was overwritten shows too.
Nothing here is random: the same seed gives the same bytes on every machine. On a CPU, they are written at their
address, past torch, which takes ten times as long for a few of them.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch

from bucketproof.strategies.dtypes import name_of, twin

POISON = 0xA5
"""The byte that lenders write over what they had lent. It never occurs in content."""

_WORDS = 1 << 16
_STRIDE = 617
"""Words between the content of one seed and the next: a prime, so that neighbours share no alignment.

The first byte of a word is the rest that its place leaves by 255. Of the primes near it this is the one with which each
bit of a tensor's first byte changes most often, from seed to seed and from rank to rank. With 797, which leaves a rest
of 32, the five lowest bits of the first seeds would all be zero."""


def _every_bit_pattern() -> torch.Tensor:
    """Bytes of distinct words, the digits of a permutation of 0..N in base 255, which leaves out one byte."""
    word = np.arange(_WORDS, dtype=np.uint64) * np.uint64(2_654_435_761) % np.uint64(255**4)
    digits = np.stack([word // np.uint64(255**place) % np.uint64(255) for place in range(4)], axis=1)
    return torch.from_numpy(np.where(digits < POISON, digits, digits + np.uint64(1)).astype(np.uint8).ravel())


_BITS = _every_bit_pattern()
_WORD = {"float16": np.uint16, "bfloat16": np.uint16, "float32": np.uint32, "float64": np.uint64}
"""Unsigned integers of the sizes of those dtypes that have more kinds of numbers than one."""
_FINITE = {"float16": ~0x6000, "float32": ~0x6000_0000, "float64": ~0x6000_0000_0000_0000}
"""Masks that clear two exponent bits: what is left is finite, and its top byte is not the poison."""
_EDGES = {
    name: [
        torch.tensor(value, dtype=getattr(torch, name)).view(twin(getattr(torch, name))).numpy().view(_WORD[name])
        for value in (-0.0, -math.inf)
    ]
    for name in _WORD
}
"""A zero and an infinity, each with a sign, as integers: what compares values, or clamps them, changes them."""
_NANS = {
    "float16": (~np.uint16(0x0260), np.uint16(0x7C02)),
    "bfloat16": (~np.uint16(0x0060), np.uint16(0x7F82)),
    "float32": (~np.uint32(0x0060_0000), np.uint32(0x7F80_0002)),
    "float64": (~np.uint64(0x0068_0000_0000_0000), np.uint64(0x7FF0_0000_0000_0002)),
}
"""Masks that make a signalling NaN and keep most of its payload: what computes with one makes it a quiet one."""


def pattern(nbytes: int, seed: int) -> torch.Tensor:
    """`nbytes` bytes (uint8, one dimension), the same for the same seed. Not to be written to."""
    start = 4 * ((seed + 1) * _STRIDE % _WORDS)  # not with the word that is zero, which is what fresh memory holds
    if start + nbytes <= len(_BITS):
        return _BITS[start : start + nbytes]
    return _BITS.roll(-start).repeat(1 + nbytes // len(_BITS))[:nbytes]


def write(raw: torch.Tensor, dtype: torch.dtype, seed: int) -> None:
    """Fill `raw` (uint8, one dimension) with content that is legal for elements of `dtype`."""
    nbytes = raw.numel()
    made = (_once_made if nbytes <= _SMALL else _legal)(nbytes, dtype, seed)
    if raw.is_cpu:
        ctypes.memmove(raw.data_ptr(), made.data_ptr(), nbytes)
    else:
        unseen(raw, lambda ink: ink.copy_(made))


def _legal(nbytes: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    bits = pattern(nbytes, seed)
    if dtype is torch.bool:
        return bits & 1
    part = name_of(dtype.to_real() if dtype.is_complex else dtype)
    return _with_edges(bits, part) if part in _NANS else bits


_SMALL = 1 << 10
"""Bytes up to which content is kept, for most tensors are small, and of few sizes."""

_once_made = lru_cache(maxsize=1 << 11)(_legal)


def _with_edges(bits: torch.Tensor, part: str) -> torch.Tensor:
    # By numpy, which takes a tenth of the time that torch does for a few elements.
    made = bits.numpy().copy()
    words = made.view(_WORD[part])
    words[1::9], words[5::9] = _EDGES[part]
    cleared, set_ = _NANS[part]
    words[::3] = words[::3] & cleared | set_
    return torch.from_numpy(made)


def tame(raw: torch.Tensor, dtype: torch.dtype) -> None:
    """Make floating-point content finite, for views that compute when they are read and may change a NaN."""
    part = dtype.to_real() if dtype.is_complex else dtype
    # Not through numpy: memory that was exported is no longer to be resized, which a bucketer could see.
    unseen(raw, lambda ink: ink.view(twin(part)).bitwise_and_(_FINITE[name_of(part)]))


def poison(raw: torch.Tensor) -> None:
    """Overwrite all of `raw` (uint8, one dimension) with a byte that no content contains."""
    if raw.is_cpu:
        ctypes.memset(raw.data_ptr(), POISON, raw.numel())
    else:
        unseen(raw, lambda ink: ink.fill_(POISON))


def unseen(raw: torch.Tensor, write: Callable[[torch.Tensor], object]) -> None:
    """Write to `raw` as a collective does, past autograd, which would forbid to read old views of it."""
    if torch.is_inference_mode_enabled() == raw.is_inference():
        write(raw.data)
        return
    with torch.inference_mode(raw.is_inference()):
        write(raw.data)
