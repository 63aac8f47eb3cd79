"""What each compaction rule decides about a hand-over, without carrying it out."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from bucketproof.reference.generations import fills_its_storage, has_no_base
from bucketproof.reference.ownership import _is_in_plain_order

RULES = ("base-guard", "storage-size", "reference")


def known(rules: Iterable[str]) -> tuple[str, ...]:
    """The rules by name. Raises `ValueError` for a name that is none."""
    names = (rules,) if isinstance(rules, str) else tuple(rules)
    for name in names:
        if name not in RULES:
            raise ValueError(f"no compaction rule {name!r}; choose from {', '.join(RULES)}")
    return names


def kept_by(tensor: torch.Tensor, rules: tuple[str, ...], *, owned: bool) -> tuple[str, ...]:
    """Which of the rules keep the tensor where it lies. `owned` is what the reference asks for, and is costly."""
    decided = {
        "base-guard": has_no_base(tensor),
        "storage-size": fills_its_storage(tensor),
        "reference": owned and _is_in_plain_order(tensor),
    }
    return tuple(rule for rule in rules if decided[rule])
