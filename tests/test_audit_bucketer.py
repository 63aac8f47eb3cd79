"""Watching bucketers: sound ones are silent, and a wrong one of the zoo rings for what it does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from bucketproof import audit_bucketer
from bucketproof.auditing import AuditError, AuditWarning, Summary
from bucketproof.auditing.findings import SENTENCES
from bucketproof.reference import always_clone, base_guard, get_named_tensor_buckets, get_named_tensor_buckets_sync
from bucketproof.targets import BUILT_IN, resolve

Pair = tuple[str, torch.Tensor]
LIMIT = 768


def weights(count: int = 12) -> Iterator[Pair]:
    for number in range(count):
        yield f"w{number}", torch.arange(64.0) + 1000 * number


def lent(count: int = 12) -> Iterator[Pair]:
    buffer = torch.empty(64)
    for number in range(count):
        yield f"w{number}", buffer.copy_(torch.arange(64.0) + 1000 * number).detach()


def watch(bucketer: Callable[..., Any], stream: Iterator[Pair], *, hold: bool = False) -> tuple[Summary, list[Any]]:
    """What an audit says of a sync, and the buckets if they are held."""
    told: list[Summary] = []
    held: list[Any] = []
    audited = audit_bucketer(bucketer, on_finding=lambda finding: None, on_summary=told.append, sample=0)
    buckets = audited(stream, LIMIT)

    async def consume() -> None:
        async for bucket in buckets:
            if hold:
                held.append(bucket)
            del bucket

    if hasattr(buckets, "__aiter__"):
        asyncio.run(consume())
    else:
        for bucket in buckets:
            if hold:
                held.append(bucket)
            del bucket
    assert len(told) == 1
    assert told[0] == buckets.summary
    return told[0], held


SOUND = [
    name for name in BUILT_IN if name not in ("aligned-packer", "always-clone", "copy-on-arrival", "copy-at-flush")
]


@pytest.mark.parametrize("hold", [False, True])
@pytest.mark.parametrize("name", SOUND)
def test_a_sound_bucketer_of_owned_weights_is_silent(name: str, hold: bool) -> None:
    summary, held = watch(resolve(name).call, weights(), hold=hold)

    assert not summary.findings
    assert not summary.troubles
    assert (summary.items, summary.ended, summary.bucketer) == (12, "completed", True)
    assert [len(bucket) for bucket in held] == ([3] * 4 if hold else [])


CAUGHT = [
    ("drops-the-second-of-a-bucket", "lost"),
    ("loses-a-last-bucket-that-is-full", "lost"),
    ("invents-an-item", "lost"),
    ("delivers-twice", "lost"),
    ("reverses-each-bucket", "reordered"),
    ("counts-elements", "over-limit"),
    ("always-clone", "copied"),
    ("names-the-flushed-bucket", "bucket-kept"),
    ("compacts-in-a-generator-expression", "bucket-kept"),
]


@pytest.mark.parametrize(("name", "kind"), CAUGHT)
def test_a_wrong_bucketer_rings(name: str, kind: Any) -> None:
    target = resolve(name)
    summary, _ = watch(target.call, weights())

    assert kind in summary.counts
    assert any(finding.level == "MUST" for finding in summary.findings)
    cells = {cell.cell: cell.status for cell in summary.verdict().cells}
    assert cells[SENTENCES[kind].cell] == "fail"


def test_a_consumer_that_holds_its_buckets_is_no_bucketer_that_keeps_them() -> None:
    summary, held = watch(get_named_tensor_buckets_sync, weights(), hold=True)

    assert len(held) == 4
    assert "bucket-kept" not in summary.counts


def casts(stream: Iterator[Pair], limit: float) -> Iterator[list[Pair]]:
    for name, tensor in stream:
        yield [(name, tensor.double())]


def spoils(stream: Iterator[Pair], limit: float) -> Iterator[list[Pair]]:
    for name, tensor in stream:
        copy = tensor.clone()
        copy[0] = -1
        yield [(name, copy)]


def pins(stream: Iterator[Pair], limit: float) -> Iterator[list[Pair]]:
    for name, tensor in stream:
        yield [(name, torch.cat([tensor, tensor])[:64])]


def flattens(stream: Iterator[Pair], limit: float) -> Iterator[list[Pair]]:
    for name, tensor in stream:
        yield [(name, tensor.view(8, 8))]


@pytest.mark.parametrize(
    ("bucketer", "kind"), [(casts, "altered"), (spoils, "altered"), (flattens, "altered"), (pins, "bucket-pins")]
)
def test_what_is_not_as_it_was_handed_over_rings(bucketer: Callable[..., Any], kind: str) -> None:
    summary, _ = watch(bucketer, weights(2))

    assert kind in summary.counts


def test_a_copy_of_a_strided_weight_is_the_same_weight() -> None:
    def strided() -> Iterator[Pair]:
        for number in range(6):
            yield f"w{number}", (torch.arange(800.0) + number).view(10, 80)[:, ::2].t()

    summary, _ = watch(get_named_tensor_buckets, strided())
    assert set(summary.counts) == {"pinned"}


@pytest.mark.parametrize(("bucketer", "altered"), [(base_guard, True), (get_named_tensor_buckets, False)])
def test_a_rule_that_keeps_lent_memory_delivers_other_bits(bucketer: Callable[..., Any], altered: bool) -> None:
    summary, _ = watch(bucketer, lent())

    assert summary.counts["written"] == 11
    assert ("altered" in summary.counts) is altered


async def a_list_later(stream: Iterator[Pair], limit: float) -> list[list[Pair]]:
    return list(get_named_tensor_buckets_sync(stream, limit))


def test_a_coroutine_that_returns_buckets_is_watched() -> None:
    summary, held = watch(a_list_later, weights(), hold=True)

    assert len(held) == 4
    assert not summary.findings


def test_buckets_are_passed_on_as_the_objects_they_are() -> None:
    made = [[pair] for pair in weights(3)]

    passed = list(audit_bucketer(lambda stream, limit: iter(made), on_finding=lambda finding: None)(iter([]), 1))

    assert all(given is got for given, got in zip(made, passed, strict=True))


def test_a_bucketer_that_yields_no_buckets_is_passed_on_with_a_note() -> None:
    buckets = audit_bucketer(lambda stream, limit: iter([3]), on_finding=lambda finding: None)(iter([]), 1)

    assert list(buckets) == [3]
    assert any("bucket 0 is an int" in trouble for trouble in buckets.summary.troubles)


def test_without_an_audit_there_is_nothing_in_between() -> None:
    assert audit_bucketer(base_guard, on_finding=None) is base_guard


def test_failing_closed_and_abandoned_syncs_give_their_summary() -> None:
    told: list[Summary] = []
    audited = audit_bucketer(get_named_tensor_buckets_sync, on_finding=lambda finding: None, on_summary=told.append)

    def failing() -> Iterator[Pair]:
        yield from weights(4)
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        list(audited(failing(), LIMIT))
    closed, abandoned = audited(weights(), LIMIT), audited(weights(), LIMIT)
    next(closed)
    closed.close()
    next(abandoned)
    del abandoned
    assert [each.ended for each in told] == ["failed: OSError: gone", "closed", "abandoned"]


def test_an_error_of_the_bucketers_own_is_told_as_a_failure() -> None:
    told: list[Summary] = []
    audited = audit_bucketer(get_named_tensor_buckets_sync, on_summary=told.append)

    with pytest.raises(ValueError, match="bucket_bytes must be positive"):
        list(audited(weights(), 0))
    assert told[0].ended.startswith("failed: ValueError: bucket_bytes must be positive")


def test_what_is_found_is_raised_or_warned_of() -> None:
    with pytest.raises(AuditError, match="its bytes were copied"):
        asyncio.run(_drain(audit_bucketer(always_clone, on_finding="raise")(weights(), LIMIT)))
    with pytest.warns(AuditWarning, match="its bytes were copied") as caught:
        asyncio.run(_drain(audit_bucketer(always_clone)(weights(), LIMIT)))
    assert len(caught) == 1


async def _drain(buckets: Any) -> None:
    async for bucket in buckets:
        del bucket
