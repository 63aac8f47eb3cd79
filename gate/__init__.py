"""bucketproof: the property-based correctness gate for weight-sync bucketers.

    from bucketproof import conformance

    test_contract = conformance(my_bucketer)

What is exported here is imported when it is first used: pytest imports this package, for its plugin, in every run
of the project that it is installed in, and torch takes seconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import version

    from bucketproof.auditing import audit, audit_bucketer
    from bucketproof.factory import conformance
    from bucketproof.properties import Promises, Target
    from bucketproof.verdict import Verdict

    __version__: str = version("bucketproof")

__all__ = ["Promises", "Target", "Verdict", "__version__", "audit", "audit_bucketer", "conformance"]

_HOMES = {
    "audit": "bucketproof.auditing",
    "audit_bucketer": "bucketproof.auditing",
    "conformance": "bucketproof.factory",
    "Promises": "bucketproof.properties",
    "Target": "bucketproof.properties",
    "Verdict": "bucketproof.verdict",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("bucketproof")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
