"""What each script defines in a way of its own: here are only the names, for whoever checks the parts."""

from __future__ import annotations

from typing import Any

import torch

LIMIT: float = 0
GRAD = True
JUDGED: tuple[str, ...] = ()
LOOKAHEAD = 1
PADDING = 0
CAST = torch.float32
ERROR = BaseException()
STOP = 0
GIVEN: Any = ()
HELD: list[tuple[Any, list[tuple[str, torch.Tensor]]]] = []


class Broken(Exception):
    """What must not happen has happened."""


def weights() -> Any:
    """The stream."""


def elsewhere() -> Any:
    """Another stream."""


def buckets(bucketer: Any, weights: Any) -> Any:
    """The buckets that a bucketer makes of a stream."""


def step(run: Any) -> Any:
    """The next bucket, or None."""


def close(run: Any) -> None:
    """Close what makes the buckets."""


def consumed(bucket: Any) -> None:
    """What the consumer does with a bucket."""


def let_go() -> None:
    """The producer drops all memory."""


def note(name: str, tensor: torch.Tensor) -> None:
    """What is to be known of a weight, before it is yielded."""


def seen(tensor: torch.Tensor) -> Any:
    """What of a weight must arrive."""


def is_over(members: list[tuple[str, int]]) -> bool:
    """Whether a bucket of these names and sizes holds more than was promised."""
    raise NotImplementedError


def is_contiguous(tensor: torch.Tensor) -> bool:
    """Whether a tensor is as contiguous as was promised."""
    raise NotImplementedError


def promised(tensor: torch.Tensor) -> torch.Tensor:
    """A weight as it should arrive."""
    raise NotImplementedError


def expected() -> list[list[str]]:
    """How the weights should lie in buckets."""
    raise NotImplementedError


def write(raw: torch.Tensor, dtype: torch.dtype, seed: int) -> None:
    """Write content."""


def note_whose(name: str, tensor: torch.Tensor, whose: str) -> None:
    """The same, with the word for whose memory it is: owned, lent, partial or shared."""


GROUPS: tuple[tuple[str, ...], ...] = ()


def is_shared(members: list[tuple[str, int]]) -> bool:
    """Whether an item above the limit is not alone in a bucket, where it should be."""
    raise NotImplementedError


BUFFER = 0


def needed(tensor: torch.Tensor, whose: str) -> int:
    """How many bytes a bucketer has to allocate for a weight."""
    raise NotImplementedError


def largest(tensor: torch.Tensor) -> int:
    """The bytes of a weight, as it comes or as it is to arrive."""
    raise NotImplementedError


def before(bucketer: Any) -> Any:
    """A sync that goes before."""


def tasks_left() -> int:
    """How many tasks there are that were not there before."""
    raise NotImplementedError


def offsets(payload: Any, *entries: Any) -> list[tuple[str, int]]:
    """Where in a payload each item begins, as far as the metadata says so."""
    raise NotImplementedError


def described(payload: Any, *entries: Any) -> list[tuple[str, int, int | None]] | None:
    """What the metadata of a payload says: names, bytes, and offsets or None."""


def payload_bytes(payload: Any) -> bytes | None:
    """The bytes of a payload, if they can be seen."""


def in_order(names: list[str]) -> list[str]:
    """Names in the order that matters."""
    raise NotImplementedError


def bits(tensor: torch.Tensor) -> bytes:
    """The bytes of a tensor's elements, in order."""
    raise NotImplementedError


def is_whole(tensor: torch.Tensor) -> bool:
    """Whether a storage holds nothing but the tensor, if it has to."""
    raise NotImplementedError
