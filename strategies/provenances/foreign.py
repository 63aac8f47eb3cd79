"""Memory that is more than one process's: lent by nature."""

from __future__ import annotations

import torch

from bucketproof.strategies.custody import Custody
from bucketproof.strategies.memory import Memory
from bucketproof.strategies.plans import Shape
from bucketproof.strategies.provenances.registry import provenance


@provenance("shared-memory", Custody.LENT, layouts="any", home="shared", empty=False)
def shared_memory(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """Memory shared between processes."""
    return memory.take(shape, dtype).view(shape)


@provenance("memory-mapped", Custody.LENT, layouts="any", home="mapped", empty=False)
def memory_mapped(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A mapped file, which whoever has it open may write."""
    return memory.take(shape, dtype).view(shape)
