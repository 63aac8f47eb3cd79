"""values.duplicates, where they are to arrive, and values.tied"""

from __future__ import annotations

from typing import Any

import torch

from bucketproof.repro.parts.arriving import take_off
from bucketproof.repro.parts.slots import Broken, promised, seen

GIVEN: list[tuple[str, dict[str, Any]]] = []  # what is still to arrive


def note(name: str, tensor: torch.Tensor) -> None:
    GIVEN.append((name, seen(promised(tensor))))


def check(bucketer: Any) -> None:
    """Each of several weights of one name arrives."""
    try:
        take_off(bucketer)
    except Exception as error:
        raise Broken(f"the bucketer refused them: {error!r}") from error
    for name, facts in GIVEN:
        raise Broken(f"a weight called {name!r} never arrived: {facts}")
