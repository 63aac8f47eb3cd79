"""Parameters that are empty placeholders until they are asked for, as those that ZeRO-3 has partitioned."""

from __future__ import annotations

import math

import torch

from bucketproof.strategies.custody import Custody
from bucketproof.strategies.dtypes import DIFFERENTIABLE
from bucketproof.strategies.memory import Memory
from bucketproof.strategies.plans import Shape
from bucketproof.strategies.provenances.registry import provenance


@provenance("gathered-placeholder", Custody.LENT, dtypes=DIFFERENTIABLE, empty=False, group="manifests")
def gathered_placeholder(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A placeholder that shows a buffer which the next one is gathered into."""
    return _filled(memory.take(shape, dtype), memory)


@provenance("padded-placeholder", Custody.PARTIAL, dtypes=DIFFERENTIABLE, empty=False, group="manifests")
def padded_placeholder(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A placeholder that shows what was gathered for it, which is longer, for all shards are of one size."""
    numel = math.prod(shape)
    return _filled(memory.fresh((numel + 3,), dtype).narrow(0, 0, numel).view(shape), memory)


def _filled(gathered: torch.Tensor, memory: Memory) -> torch.Tensor:
    parameter = torch.nn.Parameter(memory.fresh((0,), gathered.dtype))
    parameter.data = gathered
    return parameter
