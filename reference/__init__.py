"""Bucketers whose verdict is known: a sound one, and three published generations with their faults.

They need torch and nothing else, and know nothing of the suite that judges them.
"""

from bucketproof.reference.generations import always_clone, base_guard, storage_size
from bucketproof.reference.ownership import compact, owns_its_memory
from bucketproof.reference.sound import get_named_tensor_buckets, get_named_tensor_buckets_sync

__all__ = [
    "always_clone",
    "base_guard",
    "compact",
    "get_named_tensor_buckets",
    "get_named_tensor_buckets_sync",
    "owns_its_memory",
    "storage_size",
]
