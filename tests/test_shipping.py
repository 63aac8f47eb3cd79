"""A consumer in another process, which is sent buckets through torch's shared memory and reads them late."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from bucketproof import Target
from bucketproof.properties import PROFILES, Run, execute, judge
from bucketproof.properties.ranks import shipping
from bucketproof.properties.ranks.pools import close_pools, pool_of
from bucketproof.reference import base_guard, get_named_tensor_buckets
from bucketproof.strategies import Item, Lender, Plan
from bucketproof.strategies.content import POISON
from bucketproof.targets import resolve
from bucketproof.trial import select

pytestmark = [pytest.mark.xdist_group("ranks"), pytest.mark.usefixtures("_consumer")]

SHIPPED = "aliasing.ships-only-its-bytes"


@pytest.fixture(scope="module")
def _consumer() -> Iterator[None]:
    yield
    close_pools()


def run_of(call: Any, *items: Item, **changes: Any) -> Run:
    plan = Plan(items, 1 << 20, (Lender(size="larger"),), consumer="ship", **changes)
    return execute(Target("mine", call), plan)


def keeping(weights: Any, limit: float) -> Any:
    yield list(weights)


def test_what_was_kept_is_mapped_with_the_buffer_it_lies_in_and_read_after_it_was_written() -> None:
    run = run_of(keeping, Item("w", "slice", shape=(4,)))

    (delivered,) = run.delivered
    assert delivered.there is not None
    assert delivered.there.nbytes == 16
    assert delivered.there.storage.nbytes > 16
    assert delivered.there.bits == bytes([POISON]) * 16
    assert delivered.later[-1] == ("elsewhere", delivered.there.bits)


def test_what_was_copied_is_mapped_alone_and_read_as_it_was_handed_over() -> None:
    run = run_of(get_named_tensor_buckets, Item("w", "slice", shape=(4,)), Item("v", "fresh", "bfloat16", (3, 2)))

    assert run.error is None
    for delivered, given in run.matched():
        assert delivered.there is not None
        assert delivered.there.bits == given.facts.bits
        assert delivered.there.storage.nbytes == delivered.there.nbytes == given.facts.nbytes


def test_the_other_process_is_another_one_and_holds_nothing_once_it_was_read() -> None:
    run_of(get_named_tensor_buckets, Item("w", "fresh"))

    assert pool_of(1).call(os.getpid, seconds=10) != [os.getpid()]
    assert pool_of(1).call(shipping.tell, seconds=10) == [[]]


@pytest.mark.parametrize("dtype", ["float32", "bool", "uint16", "float8_e4m3fn", "complex32", "complex64"])
@pytest.mark.parametrize("shape", [(2, 3), (), (0,)])
def test_every_kind_of_tensor_can_be_sent(dtype: str, shape: tuple[int, ...]) -> None:
    items = [Item(id, id, dtype, shape) for id in ("fresh", "owned-as_subclass", "owned-parameter", "inference-tensor")]

    assert all(each.there is not None for each in run_of(get_named_tensor_buckets, *items).delivered)


@pytest.mark.parametrize(
    ("target", "statuses"),
    [
        ("reference", {"pass"}),
        ("copy-at-flush", {"pass"}),
        ("base-guard", {"fail"}),
        ("storage-size", {"fail", "pass"}),
    ],
)
def test_what_ships_more_than_its_bytes_is_told(target: str, statuses: set[str]) -> None:
    judged = select([SHIPPED, "aliasing.survives-overwrite[shipped]"], ["processes"])
    found = [judge(cell, resolve(target), PROFILES["smoke"], 0) for cell in judged]

    assert {each.status for each in found} <= statuses, found
    if "fail" in statuses:
        assert any(each.status == "fail" for each in found)


def test_a_failing_cell_says_how_much_is_mapped() -> None:
    (cell,) = select([SHIPPED], ["processes"])
    run = run_of(base_guard, Item("w", "detach", shape=(2,)))

    (problem,) = cell.problems(run)
    assert problem.item == 0
    assert problem.what == f"another process maps {1 << 11} bytes to read 8"


def test_a_consumer_that_dies_is_no_fault_of_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "tell", os.abort)
    (cell,) = select([SHIPPED], ["processes"])

    found = judge(cell, Target("mine", get_named_tensor_buckets), PROFILES["smoke"], 0)

    assert found.status == "error"
    assert "rank 0 of 1 died: exit code -6" in found.reason


def test_what_cannot_be_sent_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> Any:
        raise OSError("no descriptor is left")

    monkeypatch.setattr(shipping, "ForkingPickler", SimpleNamespace(dumps=refuse))
    (cell,) = select([SHIPPED], ["processes"])

    found = judge(cell, Target("mine", get_named_tensor_buckets), PROFILES["smoke"], 0)

    assert found.status == "error"
    assert "a bucket cannot be sent: OSError: no descriptor is left" in found.reason


def test_nothing_is_left_behind() -> None:
    run_of(get_named_tensor_buckets, Item("w", "fresh"))
    processes = pool_of(1).call(os.getpid, seconds=10)

    close_pools()

    assert not any(os.path.exists(f"/proc/{each}") for each in processes)
    assert not [each.name for each in threading.enumerate() if "_serve" in each.name]
