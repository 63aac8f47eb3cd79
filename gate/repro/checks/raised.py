"""lifecycle.producer-error"""

from __future__ import annotations

from typing import Any

from bucketproof.repro.parts.seeing import pairs
from bucketproof.repro.parts.slots import ERROR, Broken, bits, buckets, step, weights


def check(bucketer: Any) -> None:
    """The producer's exception reaches the consumer as it is, nothing follows it, and what came before stays intact."""
    held = []
    run = buckets(bucketer, weights())
    try:
        while (bucket := step(run)) is not None:
            held.append((bucket, [(name, tensor, bits(tensor)) for name, tensor in pairs(bucket)]))
    except BaseException as error:
        if error is not ERROR:
            raise Broken(f"the producer raised {ERROR!r}, and the consumer saw {error!r}") from error
    else:
        raise Broken(f"the producer raised {ERROR!r}, and the sync ended as if nothing had happened")
    if follows(run):
        raise Broken("another bucket was yielded after the producer's exception")
    for _, members in held:
        for name, tensor, before in members:
            if bits(tensor) != before:
                raise Broken(f"{name!r} was changed after its bucket had been yielded")


def follows(run: Any) -> bool:
    try:
        return step(run) is not None
    except BaseException:
        return False
