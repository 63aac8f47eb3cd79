"""aliasing.survives-overwrite"""

from __future__ import annotations

from typing import Any

import torch

from bucketproof.repro.parts.memory import BUFFERS, overwrite
from bucketproof.repro.parts.seeing import difference, pairs
from bucketproof.repro.parts.slots import HELD, JUDGED, Broken, bits, buckets, consumed, promised, weights

GIVEN: dict[str, bytes] = {}  # the bytes of each weight when it was handed over


def note(name: str, tensor: torch.Tensor) -> None:
    GIVEN[name] = bits(promised(tensor))


def check(bucketer: Any) -> None:
    """Every weight has the bytes that it was handed over with, whatever its lender has written since."""
    for bucket in buckets(bucketer, weights()):
        compare(pairs(bucket), "when its bucket came")
        consumed(bucket)
        del bucket
    for number in BUFFERS:
        overwrite(number)
    for _, members in HELD:
        compare(members, "when every lender had written")


def compare(members: list[tuple[str, torch.Tensor]], when: str) -> None:
    for name, tensor in members:
        if name in JUDGED and bits(tensor) != GIVEN[name]:
            raise Broken(f"{name!r} was other than it was handed over {when}: {difference(GIVEN[name], bits(tensor))}")
