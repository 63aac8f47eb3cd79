"""The zoo: small wrong bucketers, one decision wrong in each, with the property that must catch it."""

from importlib import import_module

from bucketproof.reference.faults.registry import DEVICE_FAULTS, FAULTS, SYNTHETIC, Fault, fault

GROUPS = (
    "compaction",
    "copying",
    "counting",
    "cutting",
    "names",
    "memory",
    "lifecycle",
    "concurrency",
    "packing",
    "device",
)
"""The families, one module each, in the order in which they are listed."""

for _group in GROUPS:
    import_module(f"{__name__}.{_group}")

__all__ = ["DEVICE_FAULTS", "FAULTS", "GROUPS", "SYNTHETIC", "Fault", "fault"]
