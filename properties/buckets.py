"""Reading what a target yields: buckets are sequences of `(name, tensor)` pairs, or mappings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch


class Malformed(Exception):
    """The target yielded something that is no bucket of `(name, tensor)` pairs."""


class NotABucketer(ValueError):
    """What the target returns is no iterable of buckets at all."""


def buckets_of(result: Any) -> Iterator[Any]:
    """The buckets that a synchronous target returned."""
    if result is None:
        raise Malformed("the target returned None: return or yield the buckets")
    if not isinstance(result, Iterable) or isinstance(result, (str, bytes, Mapping, torch.Tensor)):
        raise NotABucketer(f"it returned {_kind(result)}, which is no iterable of buckets")
    return iter(result)


def pairs_of(bucket: Any, number: int) -> list[tuple[str, torch.Tensor]]:
    """The members of a bucket."""
    if not isinstance(bucket, Iterable) or isinstance(bucket, (str, bytes, torch.Tensor)):
        raise Malformed(f"bucket {number} is {_kind(bucket)}: yield a sequence of (name, tensor) pairs, or a mapping")
    if isinstance(bucket, Iterator):
        what = f"bucket {number} is {_kind(bucket)}, which can be read but once"
        raise Malformed(f"{what}: yield a list, a tuple or a mapping")
    pairs = list(bucket.items() if isinstance(bucket, Mapping) else bucket)
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise Malformed(f"bucket {number} holds {_kind(pair)} where a (name, tensor) pair should be")
        name, tensor = pair
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            found = f"({_kind(name)}, {_kind(tensor)})"
            raise Malformed(f"bucket {number} holds {found} where a (name, tensor) pair should be")
    return pairs


def _kind(thing: Any) -> str:
    if thing is None:
        return "None"
    kind = type(thing).__name__
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
