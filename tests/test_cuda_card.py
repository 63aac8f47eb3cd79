"""What takes a CUDA device: custody of all that is made there, shown with torch alone, and experiments with streams.

Where there is none, each of these is skipped, with the reason.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

import pytest
import test_custody
import torch
from test_custody import SHOWN, is_another_object, is_shown_for_all, plans_of

from bucketproof.properties import PROFILES, Target, cells, execute, judge
from bucketproof.properties.cuda.sanitized import races
from bucketproof.properties.cuda.unwaited import unwaited
from bucketproof.properties.ranks.pools import close_pools
from bucketproof.reference import compact, get_named_tensor_buckets_sync, owns_its_memory
from bucketproof.reference.faults import DEVICE_FAULTS
from bucketproof.strategies import DEVICES, PROVENANCES, Custody, Item, Plan, Stream
from bucketproof.strategies.devices import CUDA, exists_on
from bucketproof.targets import resolve, target_of

LACK = DEVICES[CUDA].lacks()
pytestmark = [pytest.mark.skipif(bool(LACK), reason=LACK), pytest.mark.xdist_group(CUDA)]

THERE = [id for id, each in PROVENANCES.items() if exists_on(each, CUDA) and each.group in ("", CUDA)]
PLAN = Plan(tuple(Item(f"w{i}", "slice", shape=(8,), seed=i) for i in range(3)), bucket_bytes=64)
SOME = 40
"""Plans of each provenance."""


@pytest.fixture(autouse=True, scope="module")
def _cold_start() -> Iterator[None]:
    if not LACK:
        DEVICES[CUDA].get_ready()
    yield
    close_pools()


@pytest.fixture
def on_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams of the tests of custody are built on the card."""
    monkeypatch.setattr(test_custody, "Stream", partial(Stream, device=CUDA))
    if not LACK:
        from bucketproof.properties.cuda import lender

        lender.get_ready(CUDA)


@pytest.mark.usefixtures("on_the_card")
@pytest.mark.parametrize("id", THERE)
def test_a_provenance_has_the_custody_that_it_says(id: str) -> None:
    is_shown_for_all(itertools.islice(plans_of(id), SOME), SHOWN[PROVENANCES[id].custody])


@pytest.mark.usefixtures("on_the_card")
@pytest.mark.parametrize("id", [id for id in THERE if PROVENANCES[id].custody is not Custody.SHARED])
def test_the_producer_does_not_hold_the_object_it_hands_over(id: str) -> None:
    is_shown_for_all(itertools.islice(plans_of(id), SOME // 4), is_another_object)


@pytest.mark.parametrize("id", [id for id in THERE if PROVENANCES[id].group == CUDA])
def test_a_weight_is_on_the_card_but_for_pinned_memory_of_the_host(id: str) -> None:
    [(_, tensor)] = Stream(Plan((Item("w", id, shape=(4,)),), 64), device=CUDA).iterable()

    assert tensor.device.type == ("cpu" if id == "pinned" else "cuda")
    assert tensor.is_pinned() is (id == "pinned")
    assert owns_its_memory(tensor) is (PROVENANCES[id].custody is Custody.OWNED)


def test_the_reference_tells_on_a_card_what_it_owns() -> None:
    own = torch.zeros(4, device="cuda")
    kept = own.detach()

    assert not owns_its_memory(own)
    del kept
    assert owns_its_memory(own)
    assert compact(own) is own
    assert not owns_its_memory(torch.zeros(4, device="cuda")[1:])


def test_an_expandable_segment_is_one() -> None:
    [(_, tensor)] = Stream(Plan((Item("w", "expandable-segment", shape=(4,)),), 64), device=CUDA).iterable()

    segments = [each for each in torch.cuda.memory_snapshot() if each["is_expandable"]]
    assert any(each["address"] <= tensor.data_ptr() < each["address"] + each["total_size"] for each in segments)


def on_its_own_stream(tensor: torch.Tensor) -> torch.Tensor:
    mine, theirs = torch.cuda.Stream(), torch.cuda.current_stream()
    mine.wait_stream(theirs)
    with torch.cuda.stream(mine):
        copy = compact(tensor)
    theirs.wait_stream(mine)
    copy.record_stream(theirs)
    return copy


SOUND = {
    "reference": lambda: resolve("reference"),
    "always-clone": lambda: resolve("always-clone"),
    "own-stream": lambda: Target(
        "mine", lambda weights, limit: get_named_tensor_buckets_sync(weights, limit, compaction=on_its_own_stream)
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_what_is_ordered_is_not_flagged(name: str) -> None:
    target = SOUND[name]()
    seen = [unwaited(target, PLAN, CUDA) for _ in range(2)][-1]

    assert (seen.spoiled, seen.waited, seen.error) == ({}, [], "")
    assert races(target, PLAN, CUDA) == ""


@pytest.mark.parametrize("name", ["copies-before-it-is-written", "lets-the-lender-go-on"])
def test_what_is_not_ordered_is_seen_by_its_bytes_and_by_the_sanitizer(name: str) -> None:
    target = target_of(DEVICE_FAULTS[name])

    assert unwaited(target, PLAN, CUDA).spoiled
    assert races(target, PLAN, CUDA)


@pytest.mark.parametrize("fault", DEVICE_FAULTS.values(), ids=list(DEVICE_FAULTS))
def test_a_fault_of_the_device_is_caught_by_its_property(fault) -> None:  # type: ignore[no-untyped-def]
    judged = [cell for cell in cells([CUDA]) if cell.property.id == fault.property]

    outcomes = [judge(cell, target_of(fault), PROFILES["smoke"], 0, shrink=False) for cell in judged]

    assert {each.status for each in outcomes} == {"fail"}


@pytest.mark.parametrize("cell", [c for c in cells([CUDA]) if c.property.group == CUDA], ids=lambda cell: cell.id)
def test_the_reference_keeps_what_only_a_device_can_break(cell) -> None:  # type: ignore[no-untyped-def]
    outcome = judge(cell, resolve("reference"), PROFILES["smoke"], 0)

    assert (outcome.status, outcome.reason) == ("pass", "")


def test_a_run_leaves_the_device_and_stream_as_they_were() -> None:
    before = DEVICES[CUDA].state()

    run = execute(resolve("reference"), PLAN, device=CUDA)

    assert DEVICES[CUDA].state() == before
    assert run.traces == []
    assert {given.facts.device for given in run.handed_over} == {f"cuda:{torch.cuda.current_device()}"}
