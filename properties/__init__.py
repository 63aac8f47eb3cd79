"""The contract of a weight-sync bucketer, and how it is judged.

What is exported here is imported when it is first used: the door reads outcomes in a process that needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bucketproof.properties.buckets import NotABucketer
    from bucketproof.properties.contract import PROPERTIES, Cell, Problem, Property, cells
    from bucketproof.properties.judging import judge, preflight
    from bucketproof.properties.outcome import Failure, Outcome
    from bucketproof.properties.profiles import PROFILES, Profile
    from bucketproof.properties.promises import Promises
    from bucketproof.properties.run import Run
    from bucketproof.properties.running import execute
    from bucketproof.properties.target import Target

_HOMES = {
    "NotABucketer": "buckets",
    "PROPERTIES": "contract",
    "Cell": "contract",
    "Problem": "contract",
    "Property": "contract",
    "cells": "contract",
    "execute": "running",
    "judge": "judging",
    "preflight": "judging",
    "Failure": "outcome",
    "Outcome": "outcome",
    "PROFILES": "profiles",
    "Profile": "profiles",
    "Promises": "promises",
    "Run": "run",
    "Target": "target",
}
# Importing a family registers its properties; the order is the order of the matrix.
_FAMILIES = ("aliasing", "ownership", "values", "boundaries", "memory", "lifecycle", "packing", "device")

__all__ = [
    "PROFILES",
    "PROPERTIES",
    "Cell",
    "Failure",
    "NotABucketer",
    "Outcome",
    "Problem",
    "Profile",
    "Promises",
    "Property",
    "Run",
    "Target",
    "cells",
    "execute",
    "judge",
    "preflight",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for family in _FAMILIES:
        import_module(f"{__name__}.{family}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
