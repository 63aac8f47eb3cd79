"""Chains of two or three operations: what real code does to a weight on its way from a buffer to a hand-over."""

from __future__ import annotations

from typing import Any

import torch

from bucketproof.strategies.custody import Custody
from bucketproof.strategies.dtypes import REINTERPRETED
from bucketproof.strategies.memory import Memory
from bucketproof.strategies.plans import Shape
from bucketproof.strategies.provenances.registry import COVERING_OPS, FIRST_OPS, OPS, PROVENANCES, provenance

# What comes back from another library has a storage of its own, which shows no byte beyond the tensor's.
_PARTIAL_OPS = tuple(op for op in OPS if f"partial-{op}" in PROVENANCES)
# A parameter in the middle of a chain requires grad, and the graph of what follows holds its memory too.
_OWNED_OPS = tuple(op for op in OPS if op in COVERING_OPS and op != "parameter")

CHAINS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "chain": ((*OPS, *FIRST_OPS), tuple(OPS)),
    "partial-chain": ((*_PARTIAL_OPS, *FIRST_OPS), _PARTIAL_OPS),
    "owned-chain": (_OWNED_OPS, _OWNED_OPS),
}
"""For each kind of chain, what may stand next to the memory, and what may stand further from it.

All of them map any tensor of two dimensions or more, with at least one element, to another such tensor.
"""


def chain(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A chain of two or three views, over a lender."""
    return memory.take(shape, dtype)


def partial_chain(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A chain of two or three views, of a larger memory that was dropped."""
    return memory.take(shape, dtype)


def owned_chain(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A chain of two or three views, each of all of a memory that was dropped."""
    return memory.take(shape, dtype)


_AS_LONG_AS_ALL_FIT: dict[str, Any] = {"dtypes": REINTERPRETED, "min_dims": 2, "empty": False}
provenance("chain", Custody.LENT, layouts="dense", **_AS_LONG_AS_ALL_FIT)(chain)
provenance("partial-chain", Custody.PARTIAL, layouts="dense", **_AS_LONG_AS_ALL_FIT)(partial_chain)
provenance("owned-chain", Custody.OWNED, layouts="none", **_AS_LONG_AS_ALL_FIT)(owned_chain)
