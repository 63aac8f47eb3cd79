"""The contract of a weight-sync bucketer, and how it is judged."""

# Importing a family registers its properties; the order is the order of the matrix.
from bucketproof.properties import aliasing, ownership, values, boundaries, memory, lifecycle, packing  # noqa: F401, I001
from bucketproof.properties.contract import PROPERTIES, Cell, Problem, Property, cells, contract
from bucketproof.properties.buckets import NotABucketer
from bucketproof.properties.execute import execute
from bucketproof.properties.judging import judge, preflight
from bucketproof.properties.outcome import Failure, Outcome
from bucketproof.properties.profiles import PROFILES, Profile
from bucketproof.properties.promises import Promises
from bucketproof.properties.run import Run
from bucketproof.properties.target import Target

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
    "contract",
    "execute",
    "judge",
    "preflight",
]
