"""The register of provenances: how a tensor can come to be, and the custody that is true for it.

A provenance is one function `(shape, dtype, memory) -> tensor`. It asks `memory` for what it needs and returns a
tensor of that shape and dtype. Registering it puts it into the matrix, the lists, the strategies and the tests.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import torch

from bucketproof.strategies.custody import Custody
from bucketproof.strategies.dtypes import ALL
from bucketproof.strategies.memory import Build, Home
from bucketproof.strategies.plans import Shape


@dataclass(frozen=True)
class Domain:
    """The tensors that an operation can make."""

    dtypes: tuple[str, ...] = ALL
    min_dims: int = 0
    empty: bool = True
    """Whether a tensor may have no element."""
    last: int | None = None
    """The size that the last dimension must have."""
    first: tuple[int, int] | None = None
    """By what the first dimension is divided, and what is then left of it."""

    def admits(self, shape: Shape, dtype: str) -> bool:
        """Whether a tensor of this shape and dtype can be made."""
        return (
            dtype in self.dtypes
            and len(shape) >= self.min_dims
            and (self.empty or math.prod(shape) > 0)
            and self.last in (None, shape[-1] if shape else None)
            and (self.first is None or (len(shape) > 0 and shape[0] % self.first[0] == self.first[1]))
        )


@dataclass(frozen=True)
class Layout:
    """A view of the memory that a provenance starts from."""

    id: str
    build: Build
    domain: Domain
    covers: bool
    """Whether the view shows every byte, each once."""
    plain: bool
    """Whether its elements are the bytes in memory, not yet to be conjugated or negated."""


@dataclass(frozen=True)
class Provenance:
    """How a hand-over came to be."""

    id: str
    custody: Custody
    build: Build
    sentence: str
    domain: Domain = Domain()
    layouts: tuple[str, ...] = ("contiguous",)
    home: Home = "heap"
    exact: bool = False
    """Whether the lender's buffer has exactly the size that is asked for."""
    plain: bool = True
    """Whether its elements are the bytes in memory, not yet to be conjugated or negated."""
    group: str = ""
    """The group that it is drawn for, if it is not drawn in any case."""


PROVENANCES: dict[str, Provenance] = {}
"""Every provenance, by its id, in the order of the matrix."""
LAYOUTS: dict[str, Layout] = {}
"""Every layout of the memory that a provenance starts from, by its id, the simplest first."""
OPS: dict[str, Build] = {}
"""The operations that chains are made of."""
FIRST_OPS: dict[str, Build] = {}
"""Operations that only work next to the memory, where strides are still plain."""

COVERING_OPS: set[str] = set()
"""Operations whose result shows every byte of what they are applied to."""


def register(provenance: Provenance) -> None:
    """Add a provenance. Raises ValueError if its id is taken or none, or its function has no docstring."""
    if not re.fullmatch(r"[\w-]+", provenance.id):
        raise ValueError(f"provenance {provenance.id!r}: an id is made of letters, digits, '-' and '_'")
    if not provenance.sentence:
        raise ValueError(f"provenance {provenance.id!r} has no docstring; say in one line how the tensor comes to be")
    if other := PROVENANCES.get(provenance.id):
        places = f"{other.build.__module__} and {provenance.build.__module__}"
        raise ValueError(f"provenance {provenance.id!r} is registered twice, in {places}; give one of them another id")
    PROVENANCES[provenance.id] = provenance


def provenance(
    id: str,
    custody: Custody,
    *,
    layouts: str = "none",
    home: Home = "heap",
    exact: bool = False,
    group: str = "",
    **domain: object,
) -> Callable[[Build], Build]:
    """Register one provenance. Its sentence is the first line of the function's docstring."""

    def add(build: Build) -> Build:
        register(
            Provenance(
                id,
                custody,
                build,
                _sentence(build),
                _domain(domain),
                _layouts(layouts),
                home=home,
                exact=exact,
                group=group,
            )
        )
        return build

    return add


def view(
    id: str,
    *,
    covers: bool = False,
    partial: bool = True,
    layouts: str = "any",
    chains: str = "anywhere",
    plain: bool = True,
    **domain: object,
) -> Callable[[Build], Build]:
    """Register a view: LENT over a lender, PARTIAL over a larger memory that was dropped, and OWNED over memory
    of exactly its size where it `covers` all of it. Its ids are `id`, `partial-id` and `owned-id`.

    `layouts` are those of the memory that it can start from: `any`, `plain` (no conj or neg bit), `dense` or `none`.
    `chains` says where in a chain it may stand: `anywhere`, `first` (next to the memory) or `never`.
    """

    def add(build: Build) -> Build:
        def also(prefix: str, custody: Custody, beside: str, layouts: str) -> None:
            sentence = f"{_sentence(build)}{beside}"
            made = Provenance(prefix + id, custody, build, sentence, _domain(domain), _layouts(layouts), plain=plain)
            register(made)

        also("", Custody.LENT, "", layouts)
        if partial:
            also("partial-", Custody.PARTIAL, " The memory is larger, and nobody else holds it.", layouts)
        if covers:
            COVERING_OPS.add(id)
            whole = "none" if layouts == "dense" else "covering"
            also("owned-", Custody.OWNED, " The memory is exactly its size, and nobody else holds it.", whole)
        if chains != "never":
            (OPS if chains == "anywhere" else FIRST_OPS)[id] = build
        return build

    return add


def layout(id: str, *, covers: bool = False, plain: bool = True, **domain: object) -> Callable[[Build], Build]:
    """Register a layout: a view that is applied to the memory before a provenance sees it."""

    def add(build: Build) -> Build:
        LAYOUTS[id] = Layout(id, build, _domain(domain), covers, plain)
        return build

    return add


def _layouts(which: str) -> tuple[str, ...]:
    """The layouts that a provenance can start from, by what it can bear (see `view`)."""
    return tuple(each.id for each in LAYOUTS.values() if _BEARS[which](each))


_BEARS: dict[str, Callable[[Layout], bool]] = {
    "any": lambda each: True,
    "plain": lambda each: each.plain,
    "dense": lambda each: each.id in ("contiguous", "offset"),
    "covering": lambda each: each.plain and each.covers,
    "none": lambda each: each.id == "contiguous",
}


def _domain(options: dict[str, object]) -> Domain:
    return Domain(**options)  # type: ignore[arg-type]


def _sentence(build: Build) -> str:
    return (build.__doc__ or "").strip().split("\n")[0]


def dtype_of(name: str) -> torch.dtype:
    """`torch.float32` for `float32`."""
    dtype: torch.dtype = getattr(torch, name)
    return dtype
