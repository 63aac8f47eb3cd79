"""Sound variants: bucketers that do nothing wrong, of kinds that the reference is not. None is ever flagged."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch

from bucketproof.properties import Profile, cells, judge
from bucketproof.reference import (
    ClassIterator,
    copy_at_flush,
    copy_on_arrival,
    flush_when_full,
    mapping_buckets,
    pack_aligned,
    unpack_aligned,
)
from bucketproof.targets import resolve

VARIANTS = (
    "sync-generator",
    "class-iterator",
    "mapping-buckets",
    "flush-when-full",
    "copy-on-arrival",
    "copy-at-flush",
    "aligned-packer",
)
BRIEF = Profile("smoke", 8, repeatable=True)
USUAL = ("fresh", "full-tensor", "exact-cover", "numpy", "lent-chain", "partial-slice", "state_dict")
"""Provenances of every custody. The rest are judged where a variant is checked as any other target is."""


@pytest.mark.parametrize("name", VARIANTS)
def test_a_sound_variant_is_not_flagged(name: str) -> None:
    target = resolve(name)
    judged = [cell for cell in cells() if cell.provenance in (None, *USUAL)]

    outcomes = [judge(cell, target, BRIEF, 1) for cell in judged]

    assert not [each for each in outcomes if each.status not in ("pass", "unpromised")]
    assert sum(each.status == "pass" for each in outcomes) > 40


def pairs(*sizes: int) -> Any:
    return iter([(f"w{i}", torch.arange(size, dtype=torch.float32)) for i, size in enumerate(sizes)])


def names(buckets: Any) -> list[list[str]]:
    return [[name for name, _ in bucket] for bucket in buckets]


async def collected(buckets: Any) -> list[Any]:
    return [bucket async for bucket in buckets]


def test_a_full_bucket_is_yielded_before_the_next_item_is_pulled() -> None:
    weights = pairs(1, 1, 1)

    assert names([next(flush_when_full(weights, 8))]) == [["w0", "w1"]]
    assert next(weights)[0] == "w2"


def test_a_class_iterator_gives_what_the_generator_does() -> None:
    assert names(asyncio.run(collected(ClassIterator(pairs(1, 3, 1, 1, 0), 8)))) == [["w0"], ["w1"], ["w2", "w3", "w4"]]
    assert asyncio.run(collected(ClassIterator(pairs(), 8))) == []


def test_a_class_iterator_stays_at_its_end() -> None:
    async def three_times() -> list[Any]:
        buckets = ClassIterator(pairs(1), 8)
        return [await anext(buckets, None) for _ in range(3)]

    first, *rest = asyncio.run(three_times())

    assert len(first) == 1
    assert rest == [None, None]


def test_a_class_iterator_that_is_closed_pulls_no_more() -> None:
    weights = pairs(1, 1, 1)

    async def closed_after_one() -> tuple[Any, Any]:
        buckets = ClassIterator(weights, 4)
        first = await anext(buckets)
        await buckets.aclose()
        return first, await anext(buckets, None)

    first, after = asyncio.run(closed_after_one())

    assert names([first]) == [["w0"]]
    assert after is None
    assert names([weights]) == [["w2"]]  # the second had been pulled to find that it does not fit


class Closable:
    """An iterator that is no generator: nothing closes it unless it is told to."""

    def __init__(self) -> None:
        self.is_closed = False

    def __iter__(self) -> Closable:
        return self

    def __next__(self) -> tuple[str, torch.Tensor]:
        return "w", torch.ones(1)

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("bucketer", [mapping_buckets, flush_when_full, copy_on_arrival, copy_at_flush])
def test_a_variant_that_is_closed_closes_its_producer(bucketer: Any) -> None:
    producer = Closable()
    buckets = bucketer(producer, 4)
    next(buckets)
    assert not producer.is_closed

    buckets.close()

    assert producer.is_closed


def test_a_class_iterator_that_is_closed_closes_its_producer() -> None:
    producer = Closable()

    async def close_after_one() -> None:
        buckets = ClassIterator(producer, 4)
        await anext(buckets)
        assert not producer.is_closed
        await buckets.aclose()

    asyncio.run(close_after_one())

    assert producer.is_closed


def test_a_mapping_holds_a_name_once() -> None:
    twice = [("w", torch.ones(1)), ("w", torch.ones(1))]

    assert [list(bucket) for bucket in mapping_buckets(iter(twice), 4)] == [["w"], ["w"]]
    with pytest.raises(ValueError, match=r"^a name came twice in one bucket$"):
        list(mapping_buckets(iter(twice), 8))


@pytest.mark.parametrize("copying", [copy_on_arrival, copy_at_flush])
def test_what_copies_keeps_nothing(copying: Any) -> None:
    tensor = torch.ones(3)

    ((name, copy),) = next(iter(copying([("w", tensor)], 64)))

    assert (name, copy.tolist()) == ("w", tensor.tolist())
    assert copy.data_ptr() != tensor.data_ptr()


def test_a_payload_stays_on_its_device() -> None:
    flat, _ = pack_aligned([("a", torch.ones(3, device="meta"))])

    assert flat.device.type == "meta"


def test_a_payload_is_aligned_for_any_dtype() -> None:
    named = [("a", torch.ones(3, dtype=torch.bfloat16)), ("b", torch.ones(2, dtype=torch.complex128).conj())]

    flat, metadata = pack_aligned(named)
    unpacked = unpack_aligned((flat, metadata))

    assert flat.numel() == 16 + 32
    assert [tensor.storage_offset() * tensor.itemsize for _, tensor in unpacked] == [0, 16]
    assert all(torch.equal(given, found) for (_, given), (_, found) in zip(named, unpacked, strict=True))
