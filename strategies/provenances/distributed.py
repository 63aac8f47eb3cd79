"""Weights as ranks of a process group have them, from torch's own machinery: every rank runs the same plan.

Each rank makes all of a weight's content, for the same seed gives the same, and takes the part that it has to have.
What is torch's is imported where it is used, if importing torch has not done so: it takes a second.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, wraps
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from bucketproof.strategies import content
from bucketproof.strategies.custody import Custody
from bucketproof.strategies.memory import BUFFERS, Buffer, Build, Memory
from bucketproof.strategies.plans import Shape
from bucketproof.strategies.provenances.registry import provenance

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor

_TRAINED = ("float32", "bfloat16", "float16", "float64")
_SENT = (*_TRAINED, "int8", "uint8", "int32", "int64")
_EVEN, _UNEVEN = (4, 0), (2, 1)
"""What the first dimension divides into, on two ranks and on four, and what it does not."""
_PATIENCE = 2.0
"""Seconds in which a thread of gloo's lets go of what it has gathered. It takes microseconds."""


@contextmanager
def leaving() -> Iterator[None]:
    """Whoever has waited in vain for the others leaves them, and need not wait for them again and again."""
    try:
        yield
    except RuntimeError:
        if dist.is_initialized():
            dist.destroy_process_group()
        raise


def together(id: str, custody: Custody, **options: Any) -> Callable[[Build], Build]:
    """Register a provenance that takes all ranks."""

    def add(build: Build) -> Build:
        @wraps(build)
        def joined(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
            with leaving():
                return build(shape, dtype, memory)

        return provenance(id, custody, group="distributed", empty=False, **options)(joined)

    return add


class _Received(Buffer):
    """A receive buffer: the first rank says what is written to it, and sends it while others are at work."""

    _sending: Any = None

    def lend(self) -> torch.Tensor:
        self.settle()
        return super().lend()

    def _write(self) -> None:
        self.settle()
        if not dist.is_initialized():  # this rank has left
            return
        if dist.get_rank() == 0:
            # A poison: a lender knows what comes next only when it is lent, and then it is written over this.
            super()._write()
        with suppress(RuntimeError), leaving():
            self._sending = dist.broadcast(_bytes(self.raw), 0, async_op=True)

    def settle(self) -> None:
        if self._sending is None:
            return
        sending, self._sending = self._sending, None
        with suppress(RuntimeError), leaving():
            sending.wait()


BUFFERS["received"] = _Received


# Gathered: nobody else holds it.


@together("fsdp2-full-tensor", Custody.OWNED, dtypes=_TRAINED, first=_EVEN)
def fsdp2_full_tensor(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """`full_tensor()` of a parameter that FSDP2's `fully_shard` has cut into even shards."""
    return _gathered(_fsdp2(memory.fresh(shape, dtype)))


@together("fsdp1-state_dict", Custody.OWNED, dtypes=_TRAINED, min_dims=1)
def fsdp1_state_dict(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """An entry of the full state dict of a module that FSDP1 has cut into shards."""
    from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel, StateDictType

    wrapped = FullyShardedDataParallel(_module(memory.fresh(shape, dtype)), device_id=torch.device("cpu"))
    kind = FullyShardedDataParallel.state_dict_type(wrapped, StateDictType.FULL_STATE_DICT, FullStateDictConfig())
    with kind:
        return _settled(wrapped.state_dict()["weight"])


@together("dtensor-shard0", Custody.OWNED, dtypes=_SENT, first=_EVEN)
def dtensor_shard0(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """`full_tensor()` of a `DTensor` with `Shard(0)`, in even shards."""
    return _gathered(_distributed(memory.fresh(shape, dtype), 0))


@together("dtensor-shard1", Custody.OWNED, dtypes=_SENT, min_dims=2, last=4)
def dtensor_shard1(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """`full_tensor()` of a `DTensor` that is cut along its last dimension, as `Shard(1)` cuts a matrix."""
    return _gathered(_distributed(memory.fresh(shape, dtype), len(shape) - 1))


@together("dtensor-mesh", Custody.OWNED, dtypes=_SENT, min_dims=2, first=_EVEN)
def dtensor_mesh(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """`full_tensor()` of a `DTensor` that is cut both ways over a mesh of two dimensions."""
    return _gathered(_distributed(memory.fresh(shape, dtype), 0, 1))


@together("redistribute", Custody.OWNED, dtypes=_SENT, first=_EVEN)
def redistribute(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """`redistribute().to_local()` of a `DTensor`, from `Shard(0)` to `Replicate`."""
    from torch.distributed.tensor import Replicate

    sharded = _distributed(memory.fresh(shape, dtype), 0)
    return _settled(sharded.redistribute(placements=[Replicate()]).to_local())


@together("functional-all-gather", Custody.OWNED, dtypes=_SENT, first=_EVEN)
def functional_all_gather(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """The result of a functional all-gather, waited for."""
    import torch.distributed._functional_collectives as functional

    gathered = functional.all_gather_tensor(_shard(memory.fresh(shape, dtype)), 0, _mesh(1))
    return _settled(functional.wait_tensor(gathered))


# Gathered into more than it takes.


@together("fsdp2-uneven", Custody.PARTIAL, dtypes=_TRAINED, first=_UNEVEN)
def fsdp2_uneven(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """`full_tensor()` of a parameter in uneven shards: a `narrow` of what was gathered with padding."""
    return _gathered(_fsdp2(memory.fresh(shape, dtype)))


@together("dtensor-uneven", Custody.PARTIAL, dtypes=_SENT, first=_UNEVEN)
def dtensor_uneven(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """`full_tensor()` of a `DTensor` with `Shard(0)`, in uneven shards."""
    return _gathered(_distributed(memory.fresh(shape, dtype), 0))


@together("all-gather-slice", Custody.PARTIAL, dtypes=_SENT, min_dims=1)
def all_gather_slice(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """What one rank has given, out of the result of `all_gather_into_tensor`, which was dropped."""
    gathered = torch.empty(dist.get_world_size(), *shape, dtype=dtype)
    return _all_gathered(gathered, memory.fresh(shape, dtype))


# Received into what is used again.


@together("broadcast", Custody.LENT, dtypes=_SENT, home="received", exact=True)
def broadcast(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A view of a receive buffer of exactly its size; the next broadcast into a pair is under way meanwhile."""
    return _broadcast(memory.take(shape, dtype)).view(shape)


@together("broadcast-slice", Custody.LENT, dtypes=_SENT, home="received")
def broadcast_slice(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A part of what was received in one broadcast, by `detach`."""
    return _broadcast(memory.take((2, *shape), dtype))[1].detach()


@together("all-gather-into", Custody.LENT, dtypes=_SENT, home="received")
def all_gather_into(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """What one rank has given, out of a buffer that `all_gather_into_tensor` fills again and again."""
    return _all_gathered(memory.take((dist.get_world_size(), *shape), dtype), memory.fresh(shape, dtype))


# Every rank has it.


@together("dtensor-replicate", Custody.SHARED, dtypes=_SENT)
def dtensor_replicate(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """`full_tensor()` of a `DTensor` with `Replicate`, which lives on: the memory is its own."""
    replicated = _distributed(memory.fresh(shape, dtype), None)
    memory.hold(replicated)
    return replicated.full_tensor()


# Means.


@cache
def _mesh(dimensions: int) -> DeviceMesh:
    """All ranks in a row, or in two rows."""
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", (dist.get_world_size(),) if dimensions == 1 else (dist.get_world_size() // 2, 2))


def _distributed(whole: torch.Tensor, *dimensions: int | None) -> DTensor:
    """Cut along these dimensions, one for each of the mesh; None for what every rank has."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    placements = [Replicate() if each is None else Shard(each) for each in dimensions]
    # Nothing is sent here: each rank has made the whole.
    return distribute_tensor(whole, _mesh(len(placements)), placements, src_data_rank=None)


def _module(weight: torch.Tensor) -> torch.nn.Module:
    module = torch.nn.Module()
    module.register_parameter("weight", torch.nn.Parameter(weight))
    return module


def _fsdp2(whole: torch.Tensor) -> DTensor:
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor

    module = _module(whole)
    fully_shard(module, mesh=_mesh(1))
    weight = module.weight
    assert isinstance(weight, DTensor)
    return weight


def _shard(whole: torch.Tensor) -> torch.Tensor:
    return whole.chunk(dist.get_world_size())[dist.get_rank()].clone()


def _gathered(sharded: DTensor) -> torch.Tensor:
    return _settled(sharded.full_tensor())


def _settled(gathered: torch.Tensor) -> torch.Tensor:
    """What was gathered, once the thread that has gathered it has let go, a moment after it said that it was done."""
    storage = gathered.untyped_storage()
    holders = 2 if gathered._base is None else 3
    end = time.monotonic() + _PATIENCE
    while torch._C._storage_Use_Count(storage._cdata) > holders:
        if time.monotonic() > end:
            raise RuntimeError("what was gathered is held by somebody else")
        time.sleep(0)
    return gathered


def _broadcast(mine: torch.Tensor) -> torch.Tensor:
    """Received from the first rank, where others had something else."""
    if dist.get_rank():
        content.poison(_bytes(mine))
    dist.broadcast(_bytes(mine), 0)
    return mine


def _all_gathered(place: torch.Tensor, mine: torch.Tensor) -> torch.Tensor:
    """The last rank's part of a place that each rank has given a part to."""
    content.poison(_bytes(place))
    dist.all_gather_into_tensor(_bytes(place), _bytes(mine))
    part: torch.Tensor = place[-1]
    return part


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a contiguous tensor that lives on, as a tensor that does not hold its storage.

    A thread of gloo's holds what it was given a moment longer than it says, which would look like somebody's doing.
    """
    memory = (ctypes.c_uint8 * tensor.nbytes).from_address(tensor.data_ptr())
    return torch.frombuffer(memory, dtype=torch.uint8)
