"""Promises: what a target says of itself. They decide which properties judge it, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Literal

from bucketproof.strategies import DTYPES

Retention = Literal["on-arrival", "at-flush", "producer-owns"]
Copies = Literal["when-needed", "always"]
Bound = Literal["hard", "strict", "soft"]
Oversize = Literal["singleton", "split", "direct", "error"]

FAMILIES = ("aliasing", "ownership", "values", "boundaries", "memory", "lifecycle", "packing", "device")
"""The families of properties."""

VALUES: dict[str, tuple[Any, ...]] = {
    "retention": ("on-arrival", "at-flush", "producer-owns"),
    "copies": ("when-needed", "always"),
    "bound": ("hard", "strict", "soft"),
    "oversize": ("singleton", "split", "direct", "error"),
    "bad_limit": ("refused",),
    "order": ("kept",),
    "duplicates": ("kept", "error"),
    "dtype": ("kept", *DTYPES),
    "layout": ("dense", "contiguous"),
}
"""The values of the promises that have a few of them."""


@dataclass(frozen=True)
class Promises:
    """The traits of a target. The defaults are those of a plain callable; None is a promise that is not made.

    Raises `ValueError` for a value that is none, and for promises that contradict each other.
    """

    retention: Retention | None = "on-arrival"
    """How long a lender must leave a hand-over alone: until the producer is advanced, or until its bucket is
    yielded; or the producer has to own all that it hands over."""
    copies: Copies | None = "when-needed"
    """Whether what is owned is copied, too."""
    bound: Bound | None = "hard"
    """A bucket holds at most the limit, or less than it (strict), or at most one item more (soft)."""
    oversize: Oversize | None = "singleton"
    """An item above the limit has a bucket of its own, arrives in parts or past the buckets, or is refused."""
    bad_limit: Literal["refused"] | None = "refused"
    """Whether a limit that is zero, negative or no number is refused."""
    order: Literal["kept"] | None = "kept"
    """Whether items arrive in the stream's order, within and across buckets."""
    duplicates: Literal["kept", "error"] | None = "kept"
    """Whether two hand-overs of one name both arrive, or are refused."""
    dtype: str | None = "kept"
    """Or the name of the dtype that everything is cast to."""
    layout: Literal["dense", "contiguous"] | None = "dense"
    """Whether what is yielded is without gaps, or contiguous too."""
    lookahead: int | None = 1
    """How many items beyond a bucket may be pulled before it is yielded."""
    atomic_groups: tuple[tuple[str, ...], ...] = ()
    """Suffixes of names that belong together: `(("q_proj", "k_proj"),)` keeps these two of a layer in one bucket."""
    padding: int | None = None
    """Bytes that a packer's payload may have beside those of each item, to align it; None for what packs nothing."""
    scope: tuple[str, ...] = ()
    """The families of properties that it answers for, if it is but a part of a bucketer; none for all."""

    def __post_init__(self) -> None:
        for name, values in VALUES.items():
            value = getattr(self, name)
            if value is not None and value not in values:
                raise ValueError(f"promise {name}={value!r} is none of {', '.join(map(repr, values))}, or None")
        for name, unit in (("lookahead", "items"), ("padding", "bytes")):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
                raise ValueError(f"promise {name}={value!r} is no number of {unit}; give 0, 1, … or None")
        self._check_scope()
        self._check_groups()

    def _check_scope(self) -> None:
        if not isinstance(self.scope, tuple) or set(self.scope) - set(FAMILIES):
            raise ValueError(
                f"promise scope={self.scope!r} must be a tuple of some of {', '.join(map(repr, FAMILIES))}"
            )

    def _check_groups(self) -> None:
        if not isinstance(self.atomic_groups, tuple):
            raise ValueError(f"promise atomic_groups={self.atomic_groups!r} is no tuple of groups")
        for group in self.atomic_groups:
            suffixes = isinstance(group, tuple) and all(isinstance(suffix, str) and suffix for suffix in group)
            if not suffixes or len(set(group)) < 2:
                raise ValueError(f"promise atomic_groups has {group!r}; a group is a tuple of two suffixes or more")
        largest = max(map(len, self.atomic_groups), default=0)
        if self.lookahead is not None and self.lookahead < largest:
            raise ValueError(
                f"promises lookahead={self.lookahead} and atomic_groups contradict each other: a group of {largest} "
                f"is pulled whole before it is placed; promise lookahead={largest} or None"
            )


DEFAULT = Promises()
"""What a plain callable promises."""


def promises(given: Mapping[str, Any]) -> Promises:
    """Promises by name. Raises `ValueError` for a name that is none."""
    known = [field.name for field in fields(Promises)]
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1)
            raise ValueError(
                f"no promise {name!r}; " + (f"did you mean {near[0]!r}?" if near else f"choose from {known}")
            )
    return Promises(**given)
