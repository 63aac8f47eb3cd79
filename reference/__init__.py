"""Bucketers whose verdict is known: a sound one, sound variants of it, and three published generations with faults.

They need torch and nothing else, and know nothing of the suite that judges them.
"""

from bucketproof.reference.generations import always_clone, base_guard, storage_size
from bucketproof.reference.ownership import compact, owns_its_memory
from bucketproof.reference.sound import get_named_tensor_buckets, get_named_tensor_buckets_sync
from bucketproof.reference.variants import (
    ClassIterator,
    copy_at_flush,
    copy_on_arrival,
    flush_when_full,
    mapping_buckets,
    pack_aligned,
    unpack_aligned,
)

__all__ = [
    "ClassIterator",
    "always_clone",
    "base_guard",
    "compact",
    "copy_at_flush",
    "copy_on_arrival",
    "flush_when_full",
    "get_named_tensor_buckets",
    "get_named_tensor_buckets_sync",
    "mapping_buckets",
    "owns_its_memory",
    "pack_aligned",
    "storage_size",
    "unpack_aligned",
]
