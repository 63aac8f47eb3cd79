"""Weights that lie in files, and in memory that other processes have too."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.reductions import rebuild_tensor

from bucketproof.strategies.custody import Custody
from bucketproof.strategies.dtypes import PICKLED
from bucketproof.strategies.memory import Memory
from bucketproof.strategies.plans import Shape
from bucketproof.strategies.provenances.registry import provenance

_IN_FILES = tuple(name for name in PICKLED if not name.startswith("complex"))
"""Dtypes that every format has."""


@provenance("rebuilt", Custody.LENT, layouts="plain", home="shared", empty=False, group="files")
def rebuilt(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A tensor that another process has sent through shared memory, as torch rebuilds it."""
    taken = memory.take(shape, dtype)
    storage = torch.storage.TypedStorage(wrap_storage=taken.untyped_storage(), dtype=dtype, _internal=True)
    metadata = taken.storage_offset(), taken.shape, taken.stride(), False
    tensor: torch.Tensor = rebuild_tensor(torch.Tensor, storage, metadata)
    return tensor


@provenance("shared-memory-segment", Custody.LENT, layouts="any", home="segment", empty=False, group="files")
def shared_memory_segment(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A segment of Python's `multiprocessing.shared_memory`."""
    return memory.take(shape, dtype).view(shape)


@provenance("numpy-memmap", Custody.LENT, layouts="any", home="memmap", empty=False, group="files")
def numpy_memmap(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A file that is mapped by numpy, which whoever has it open may write."""
    return memory.take(shape, dtype).view(shape)


@provenance("loaded-mapped", Custody.SHARED, dtypes=_IN_FILES, empty=False, group="files")
def loaded_mapped(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A weight of a checkpoint that `torch.load` has mapped."""
    return _loaded(memory.fresh(shape, dtype), memory, torch.save, _load_mapped)


@provenance("safetensors-file", Custody.SHARED, dtypes=_IN_FILES, empty=False, group="safetensors")
def safetensors_file(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A weight of a file in safetensors' format, of which all are loaded."""
    library = import_module("safetensors.torch")
    return _loaded(memory.fresh(shape, dtype), memory, library.save_file, library.load_file)


@provenance("safetensors-open", Custody.SHARED, dtypes=_IN_FILES, empty=False, group="safetensors")
def safetensors_open(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
    """A weight of an open file in safetensors' format, which is asked for alone."""
    library = import_module("safetensors.torch")
    return _loaded(memory.fresh(shape, dtype), memory, library.save_file, _one_of_an_open_file)


def _load_mapped(path: Path) -> dict[str, torch.Tensor]:
    loaded: dict[str, torch.Tensor] = torch.load(path, mmap=True)
    return loaded


def _one_of_an_open_file(path: Path) -> dict[str, torch.Tensor]:
    with import_module("safetensors").safe_open(path, "pt") as file:
        return {"weight": file.get_tensor("weight")}


def _loaded(
    tensor: torch.Tensor,
    memory: Memory,
    save: Callable[[dict[str, torch.Tensor], Path], Any],
    load: Callable[[Path], dict[str, torch.Tensor]],
) -> torch.Tensor:
    """The tensor out of a file. The checkpoint that it is an entry of is held, as its producer holds it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "weights")
        save({"weight": tensor}, path)
        checkpoint = load(path)  # what is mapped stays there when its file is gone
    memory.hold(checkpoint)
    return checkpoint["weight"]
