"""The oracles: the kinds of evidence that a run holds, and which of them each property looks at."""

from __future__ import annotations

ORACLES: dict[str, str] = {
    "bits": "Every weight is read when it is handed over, when it is yielded, while it is held and after the end.",
    "addresses": "The addresses of living storages are compared, with those of the lenders and with one another.",
    "lifetimes": "Weak references tell which storages are alive once the producer, or the consumer, has let go.",
    "ledger": "Torch's operators are watched while the bucketer runs: what they allocate, and out of what they copy.",
    "course": "What was pulled, yielded, raised, closed and left behind, and in which order.",
}
"""Each oracle, and how it comes by what it knows."""

_SEEN_BY: dict[str, tuple[str, ...]] = {
    "aliasing.survives-overwrite": ("bits",),
    "aliasing.no-lent-memory": ("addresses",),
    "aliasing.no-pinned-storage": ("addresses", "lifetimes"),
    "ownership.no-copy": ("addresses", "ledger"),
    "values.conserved": ("bits",),
    "values.duplicates": ("bits",),
    "values.self-contained": ("addresses",),
    "memory.peak": ("ledger",),
    "memory.released-after-flush": ("lifetimes",),
    "memory.steady": ("lifetimes",),
    "lifecycle.producer-error": ("bits", "addresses"),
    "lifecycle.early-close": ("lifetimes",),
    "lifecycle.reusable": ("bits",),
    "lifecycle.concurrent-syncs": ("bits",),
    "lifecycle.bucket-is-the-consumers": ("bits", "addresses"),
    "packing.round-trip": ("bits",),
    "packing.alignment": ("addresses",),
    "packing.metadata": ("bits",),
    "device.stream-order": ("bits",),
    "device.ipc-survives": ("bits",),
}


def oracles_of(property_id: str) -> tuple[str, ...]:
    """The oracles that a property looks at. All look at the course of a run, and most at nothing else."""
    return (*_SEEN_BY.get(property_id, ()), "course")
