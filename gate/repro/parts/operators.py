"""Seeing what is read and what is written, operator by operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bucketproof.properties.ledger import _storages


class Operators(TorchDispatchMode):
    """Tells of each storage that an operator returns, with the name of it and the addresses of all that it has read."""

    def __init__(self, tell: Callable[[str, torch.UntypedStorage, set[int]], None]) -> None:
        super().__init__()
        self.tell = tell

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch would import its compiler

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        read = {storage._cdata for storage in _storages((*args, *(kwargs or {}).values()))}
        for storage in _storages((result,)):
            self.tell(str(func), storage, read)
        return result
