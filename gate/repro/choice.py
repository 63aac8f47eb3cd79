"""Which parts a script is made of, where there are several of one name."""

from __future__ import annotations

from collections.abc import Iterator

from bucketproof.repro.linker import Place
from bucketproof.repro.setting import CHECKS, PARTS, Setting
from bucketproof.strategies import LAYOUTS, PROVENANCES, Item

_BEFORE = {"completed": "completed", "error": "failed", "exit": "failed", "close": "closed", "cancel": "cancelled"}
_PLAIN = ("float32", "bfloat16", "float16", "float64", "int8", "uint8", "int16", "int32", "int64", "complex64")
"""Dtypes that torch copies as they are."""


def places(setting: Setting) -> dict[str, Place]:
    """Where each name has its definition."""
    found = {name: f"{PARTS}.{part}" for part, names in _parts(setting) for name in names}
    found |= dict.fromkeys(_OF_CHECKS.intersection(setting.check), f"{CHECKS}.{setting.attempt.check}")
    if setting.attempt.nans:
        found["write"] = "bucketproof.strategies.content"
    return {name: Place(where, name) for name, where in found.items()}


_OF_CHECKS = {"check", "note", "note_whose", "GIVEN", "CLOSED", "EXHAUSTED", "look_back"}
"""What others refer to of a check."""


def _parts(setting: Setting) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Parts, and what is taken from them. The last one that has a name is the one."""
    yield "memory", ("Memory", "Padded", "Shared", "Lent", "Between", "Mapped", "Through", "booleans", "finite")
    yield "memory", ("overwrite", "BUFFERS", "KEPT")
    yield "inference", ("Inference", *(("overwrite",) if setting.has_home("inference") else ()))
    yield "plain", ("write",)
    yield "producing", ("OneByOne", "AwaitedOneByOne", "arriving", "hand_over")
    yield _producer(setting), ("hand_over",)
    yield "waiting" if setting.waits else "plainly", ("step", "close", "tasks_left")
    yield "seeing", ("pairs", "difference", "differences", "promised", "addresses", "overlap")
    yield "plain_bits" if all(map(_has_plain_bits, setting.items)) else "any_bits", ("bits",)
    yield from _ending(setting)
    yield "clearing", ("consumed", "note_whose")
    if setting.attempt.counted:
        yield "births", ("note_whose",)
    yield "metadata", ("described", "offsets", "payload_bytes")
    yield "loop", ("greedy", "packing", "compacting")
    yield "loading", ("load",)
    if setting.is_coroutine:
        yield "awaited", ("buckets",)


def _producer(setting: Setting) -> str:
    if setting.attempt.counted:
        return "counted"
    return "told" if setting.options.mark else "producing" if "note" in setting.check else "bare"


def _ending(setting: Setting) -> Iterator[tuple[str, tuple[str, ...]]]:
    cancels = setting.plan.ends == "cancel" and setting.waits
    if cancels:
        yield "cancelling", ("arriving",)
    ends = "completed" if setting.plan.ends == "cancel" and not cancels else setting.plan.ends
    yield f"before_{_BEFORE.get(ends, 'failed')}", ("before",)


def _has_plain_bits(item: Item) -> bool:
    return item.dtype in _PLAIN and PROVENANCES[item.provenance].plain and LAYOUTS[item.layout].plain
