"""boundaries.bad-limit and boundaries.nan-limit"""

from __future__ import annotations

from typing import Any

import torch

from bucketproof.repro.parts.slots import LIMIT, Broken, buckets, consumed, weights

GIVEN: list[str] = []


def note(name: str, tensor: torch.Tensor) -> None:
    GIVEN.append(name)


def check(bucketer: Any) -> None:
    """The limit is refused with a ValueError before the producer is touched."""
    try:
        for bucket in buckets(bucketer, weights()):
            consumed(bucket)
    except ValueError:
        if GIVEN:
            raise Broken(f"the producer had been advanced when a limit of {LIMIT} was refused") from None
    except Exception as error:
        raise Broken(f"a limit of {LIMIT} raised {error!r}, which is no ValueError") from error
    else:
        raise Broken(f"a limit of {LIMIT} was accepted")
