"""Ranks: weights from torch's own machinery, bucketed by processes of one group, and what can go wrong there."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from bucketproof import Target
from bucketproof.properties import PROFILES, Profile, cells, judge, limits
from bucketproof.properties.outcome import Outcome
from bucketproof.properties.ranks import judging
from bucketproof.properties.ranks.judging import AGREEMENT
from bucketproof.properties.ranks.member import _done
from bucketproof.properties.ranks.pool import Lost, Pool
from bucketproof.properties.ranks.pools import close_pools, pool_of
from bucketproof.reference import get_named_tensor_buckets
from bucketproof.strategies import DTYPES, PROVENANCES, Custody, Item, Lender, Plan, Stream
from bucketproof.strategies.content import POISON
from bucketproof.strategies.memory import Private
from bucketproof.targets import resolve
from bucketproof.trial import select

# All of them in one process: ranks take seconds to start.
pytestmark = [pytest.mark.xdist_group("ranks"), pytest.mark.usefixtures("_ranks")]

IDS = [each.id for each in PROVENANCES.values() if each.group == "distributed"]
FEW = replace(PROFILES["smoke"], examples=6)
SHAPES = ((1,), (3,), (4,), (5,), (8,), (), (4, 3), (3, 3), (2, 4), (4, 2, 2), (1, 2), (5, 2))


@pytest.fixture(scope="module")
def _ranks() -> Iterator[None]:
    yield
    close_pools()


def ranked(pool: Pool, name: str, *arguments: Any) -> list[Any]:
    """What a function of this file returns on each rank."""
    code = f"__import__('runpy').run_path({__file__!r})[{name!r}](*{arguments!r})"
    return pool.call(eval, code, seconds=60)


# Custody, shown with torch alone.


def shown(id: str, mode: str) -> list[str]:
    """On a rank: what of an item of each dtype and shape is not as the provenance's custody says."""
    provenance = PROVENANCES[id]
    tried = [
        (dtype, shape)
        for dtype in provenance.domain.dtypes
        for shape in SHAPES
        if provenance.domain.admits(shape, dtype)
    ]
    assert len(tried) >= 4
    return [
        f"{dtype} {shape}: {each}"
        for dtype, shape in tried
        for each in not_as_said(Plan((Item("w", id, dtype, shape, seed=3),) * 2, 1 << 20, grad_mode=mode))
    ]


def not_as_said(plan: Plan) -> Iterator[str]:
    item, stream = plan.items[0], Stream(plan)
    pairs = stream.iterable()
    tensor = next(pairs)[1]
    content = bits(tensor)
    storage = StorageWeakRef(tensor.untyped_storage())
    held, size = tensor.untyped_storage().nbytes(), tensor.nbytes
    custody = PROVENANCES[item.provenance].custody
    if item.provenance != "broadcast-slice" and content != bits(Private(3).fresh(item.shape, DTYPES[item.dtype])):
        yield "what was sent is not what has arrived"
    if type(tensor) is not torch.Tensor:
        yield f"it is a {type(tensor)}"
    if custody in (Custody.OWNED, Custody.SHARED) and held != size:
        yield f"its storage has {held} bytes and it has {size}"
    if custody is Custody.PARTIAL and held <= size:
        yield "its storage has no byte beyond its own"
    next(pairs)
    stream.finish()
    if custody is Custody.LENT and bits(tensor) == content:
        yield "nobody has written to it"
    if custody is not Custody.LENT and bits(tensor) != content:
        yield "somebody has written to it"
    del tensor
    if custody in (Custody.OWNED, Custody.PARTIAL) and not storage.expired():
        yield "somebody else holds it"
    if custody in (Custody.LENT, Custody.SHARED) and storage.expired():
        yield "nobody else holds it"
    pairs.close()
    stream.let_go()
    if not storage.expired():
        yield "its memory outlives the producer"


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.detach().clone().reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("id", IDS)
def test_custody_is_what_it_is_said_to_be(id: str, size: int) -> None:
    for mode in ("enabled", "no_grad", "inference"):
        assert ranked(pool_of(size), "shown", id, mode) == [[]] * size


@pytest.mark.parametrize(
    ("id", "wrong"),
    [
        ("dtensor-uneven", "OWNED"),
        ("dtensor-shard0", "PARTIAL"),
        ("fsdp2-full-tensor", "LENT"),
        ("dtensor-replicate", "OWNED"),
        ("redistribute", "SHARED"),
    ],
)
def test_the_proof_rejects_a_label_that_is_wrong(id: str, wrong: str) -> None:
    assert all(ranked(pool_of(2), "shown_as", id, wrong))


def shown_as(id: str, custody: str) -> list[str]:
    """On a rank: the same, under another label."""
    true = PROVENANCES[id]
    PROVENANCES[id] = replace(true, custody=Custody[custody])
    try:
        return shown(id, "enabled")
    finally:
        PROVENANCES[id] = true


def in_flight() -> list[tuple[bool, bool]]:
    """On a rank: whether, while the second of a pair is consumed, the first has been written, or will have been."""
    found = []
    for _ in range(20):
        items = tuple(Item(f"w{i}", "broadcast", shape=(4096,), seed=i) for i in range(3))
        stream = Stream(Plan(items, 1 << 30, lenders=(Lender("ping-pong"),)))
        pairs = stream.iterable()
        first, second = next(pairs)[1], next(pairs)[1]
        is_there = bool((second.view(torch.uint8) != POISON).all())
        (sending,) = [buffer._sending for buffer in stream.buffers if buffer._sending is not None]
        sending.wait()
        found.append((is_there, bool((first.view(torch.uint8) == POISON).all())))
        stream.finish()
    return found


def test_the_next_broadcast_of_a_pair_is_under_way_while_its_weight_is_consumed() -> None:
    assert ranked(pool_of(2), "in_flight") == [[(True, True)] * 20] * 2


# Verdicts.


def outcome(target: str, cell: str, profile: Profile = FEW) -> Outcome:
    (judged,) = select([cell], ["distributed"])
    return judge(judged, resolve(target), profile, 0)


@pytest.mark.parametrize("cell", cells(["distributed"])[len(cells()) :], ids=lambda cell: cell.id)
def test_the_reference_keeps_every_promise_on_ranks(cell: Any) -> None:
    found = judge(cell, resolve("reference"), FEW, 0)

    assert found.status == "pass", found
    assert found.examples >= 4


@pytest.mark.parametrize(
    ("target", "cell", "status"),
    [
        ("base-guard", "ownership.no-copy[fsdp2-full-tensor]", "fail"),
        ("base-guard", "ownership.no-copy[functional-all-gather]", "pass"),
        ("storage-size", "ownership.no-copy[fsdp2-full-tensor]", "pass"),
        ("storage-size", "aliasing.survives-overwrite[broadcast]", "fail"),
        ("storage-size", "aliasing.no-pinned-storage[dtensor-uneven]", "pass"),
        ("always-clone", "ownership.no-copy[fsdp1-state_dict]", "fail"),
        ("keeps-lent-views", "aliasing.survives-overwrite[all-gather-into]", "fail"),
    ],
)
def test_the_generations_of_one_bucketer_are_told_apart_by_what_ranks_gather(
    target: str, cell: str, status: str
) -> None:
    found = outcome(target, cell)

    assert found.status == status, found
    if found.failure:
        assert found.failure.what.startswith("on rank ")
        assert found.failure.steps
        assert len(eval(found.failure.plan, {"Plan": Plan, "Item": Item, "Lender": Lender}).items) <= 2


# Agreement.


def test_ranks_that_cut_at_other_places_are_shown_with_both_partitions() -> None:
    found = outcome("cuts-by-values", AGREEMENT, PROFILES["smoke"])

    assert found.status == "fail"
    assert found.failure is not None
    assert re.match(r"rank 0 cut at \[.+\] and rank [1-3] at \[", found.failure.what)


WAITS = """
from bucketproof.reference import get_named_tensor_buckets_sync

def cuts_by_bits(weights, limit):
    '''Yields a bucket early where a weight's first byte is even, so that ranks come to wait for each other.'''
    bucket = []
    for name, tensor in weights:
        bucket.append((name, tensor.detach().clone().contiguous()))
        if tensor.numel() and bucket[-1][1].view(-1).view(__import__('torch').uint8)[0] % 2 == 0:
            yield bucket
            bucket = []
    if bucket:
        yield bucket
"""


def test_ranks_that_wait_for_each_other_end_as_a_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "waits.py").write_text(WAITS)
    target = resolve(f"{tmp_path}/waits.py:cuts_by_bits")
    # What all ranks make together comes between what each has for itself: some are in it while others meet.
    items = tuple(Item(f"w{i}", "dtensor-shard0" if i % 2 else "fresh", shape=(4,), seed=i) for i in range(8))
    close_pools()
    monkeypatch.setattr(limits, "SECONDS", 2.0)
    started = time.monotonic()

    reports = judging.run_on(2, target, Plan(items, 64, consumer="gather"), select([AGREEMENT], ["distributed"]))

    assert time.monotonic() - started < 60
    assert judging.are_apart(reports)
    what = reports[0].broken[AGREEMENT].what
    assert "rank 0 cut at " in what
    assert "and waited for each other: " in what
    close_pools()


# What can go wrong.

KILLS = """
import os, signal
import torch.distributed as dist

def killed(weights, limit):
    if dist.is_initialized() and dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return [list(weights)]

def hangs(weights, limit):
    if dist.is_initialized() and dist.get_rank() == 1:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})  # as code that does not come back to Python
        __import__('time').sleep(600)
    return [list(weights)]

def raises_on_one(weights, limit):
    if dist.is_initialized() and dist.get_rank() == 1:
        raise OSError('no such device')
    return [list(weights)]
"""


@pytest.fixture
def kills(tmp_path: Path) -> str:
    (tmp_path / "kills.py").write_text(KILLS)
    return f"{tmp_path}/kills.py"


def test_a_rank_that_dies_is_said_to_have(kills: str) -> None:
    found = outcome(f"{kills}:killed", "ownership.no-copy[dtensor-shard0]")

    assert found.status == "error"
    assert found.reason == "rank 1 of 2 died: exit code -9"


def test_a_rank_that_hangs_is_ended_and_said_to_have(kills: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pool_of(2)
    monkeypatch.setattr(limits, "SECONDS", 1.0)

    found = outcome(f"{kills}:hangs", "ownership.no-copy[dtensor-shard0]")

    assert found.status == "error"
    # The other one may wait for it, in what they gather together.
    assert re.fullmatch("rank (0, )?1 of 2 did not answer in 3 s", found.reason)


def test_ranks_that_come_apart_have_no_verdict(kills: str) -> None:
    found = outcome(f"{kills}:raises_on_one", "ownership.no-copy[fsdp1-state_dict]")

    assert found.status == "error"
    assert found.reason.startswith("the ranks came apart: rank 0: ")
    assert "rank 1: 0 items, OSError: no such device" in found.reason


def test_a_target_that_was_not_named_is_skipped() -> None:
    (cell,) = select(["ownership.no-copy[dtensor-shard0]"], ["distributed"])
    found = judge(cell, Target("mine", get_named_tensor_buckets), FEW, 0)

    assert found.status == "skipped"
    assert "by which ranks could load it" in found.reason


def test_a_target_that_ranks_cannot_load_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "gone.py").write_text("def f(weights, limit):\n    return [list(weights)]\n")
    target = resolve(f"{tmp_path}/gone.py:f")
    (tmp_path / "gone.py").unlink()
    (cell,) = select(["ownership.no-copy[dtensor-shard0]"], ["distributed"])

    found = judge(cell, target, FEW, 0)

    assert found.status == "error"
    assert "failed: BadRequest: there is no file" in found.reason


@pytest.fixture
def pool() -> Iterator[Pool]:
    made = Pool(2, collectives=5)
    yield made
    made.close()


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text() if Path("/proc").exists() else True


def test_a_pool_answers_in_the_order_of_its_ranks_and_leaves_nothing_behind(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = pool.call(os.getpid, seconds=10)
    assert pool.call_each(divmod, [(7, 2), (9, 4)], seconds=10) == [(3, 1), (2, 1)]
    assert all(map(is_running, processes))

    pool.close()

    assert not any(map(is_running, processes))
    with pytest.raises(Lost, match="the ranks have ended"):
        pool.call(os.getpid, seconds=1)


@pytest.mark.parametrize(
    ("function", "arguments", "line"),
    [
        (time.sleep, (600,), r"rank 0, 1 of 2 did not answer in 1 s"),
        (os._exit, (3,), r"rank [01] of 2 died: exit code 3"),
        (divmod, (1, 0), r"rank [01] of 2 failed: ZeroDivisionError: .+"),
    ],
)
def test_what_goes_wrong_ends_all_ranks_with_one_line(function: Any, arguments: Any, line: str) -> None:
    pool = Pool(2, collectives=5)
    processes = pool.call(os.getpid, seconds=10)

    with pytest.raises(Lost, match=f"^{line}$"):
        pool.call(function, *arguments, seconds=1)

    assert not pool.is_open
    assert not any(map(is_running, processes))


def test_ranks_end_when_whoever_has_started_them_is_killed() -> None:
    code = (
        "import os, sys, signal\n"
        "from bucketproof.properties.ranks.pool import Pool\n"
        "pool = Pool(2, collectives=5)\n"
        "print(*pool.call(os.getpid, seconds=20), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    processes = [int(each) for each in done.stdout.split()]
    assert len(processes) == 2
    assert done.returncode == -signal.SIGKILL

    end = time.monotonic() + 20
    while any(map(is_running, processes)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(is_running, processes))


def test_a_port_in_use_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(taken.getsockname()[1]))
        pool = Pool(2, collectives=5)
        try:
            assert len(pool.call(os.getpid, seconds=10)) == 2
        finally:
            pool.close()


def test_a_store_that_cannot_have_its_port_says_so_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        store = partial(torch.distributed.TCPStore, "127.0.0.1", taken.getsockname()[1], 2, True)
        is_done, said = _done(store, ())

    assert not is_done
    assert "\n" not in said
    assert "EADDRINUSE" in said or "address already in use" in said


def test_a_run_of_the_gate_ends_its_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bucketproof.cli import main

    processes = [*pool_of(2).call(os.getpid, seconds=10), *pool_of(4).call(os.getpid, seconds=10)]
    monkeypatch.chdir(tmp_path)
    only = "--only=ownership.no-copy[dtensor-shard0]"

    assert main(["check", "reference", "--with=distributed", only, "--profile=smoke", "-n", "0"]) == 0

    assert not any(map(is_running, processes))
