"""boundaries.atomic-groups, where every group is whole."""

from __future__ import annotations

from typing import Any

from bucketproof.repro.parts.seeing import pairs
from bucketproof.repro.parts.slots import GROUPS, Broken, buckets, consumed, weights


def check(bucketer: Any) -> None:
    """The members of a group lie in one bucket."""
    place: dict[str, int] = {}
    number = 0
    try:
        for bucket in buckets(bucketer, weights()):
            place.update({name: number for name, _ in pairs(bucket)})
            number += 1
            consumed(bucket)
    except Exception as error:
        raise Broken(f"a stream of whole groups was refused: {error!r}") from error
    for group in GROUPS:
        if len({place.get(name) for name in group}) > 1:
            raise Broken(
                f"{', '.join(group)} belong together, and lie in buckets {[place.get(name) for name in group]}"
            )
