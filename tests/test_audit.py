"""Watching producers: each kind of finding rings for a real one, and its clean counterpart is silent."""

from __future__ import annotations

import asyncio
import gc
import itertools
import re
import sys
import threading
import warnings
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import bucketproof
from bucketproof import audit
from bucketproof.auditing import AuditError, AuditWarning, Finding, Summary, reading
from bucketproof.reference import get_named_tensor_buckets_sync, owns_its_memory
from bucketproof.reference.generations import fills_its_storage, has_no_base
from bucketproof.strategies import PROVENANCES, Custody, Item, Plan, Stream

Pair = tuple[str, torch.Tensor]


def consume(weights: Any, use: Callable[[torch.Tensor], object] = torch.Tensor.clone, **options: Any) -> Summary:
    """Audit a stream whose consumer copies each weight and keeps nothing; every weight is looked at closely."""
    watched = audit(weights, on_finding=options.pop("on_finding", lambda finding: None), sample=0, **options)
    for _, tensor in watched:
        use(tensor)
        del tensor
    return watched.summary


def kinds(summary: Summary) -> set[str]:
    assert not summary.troubles
    return set(summary.counts)


def weight(number: int, size: int = 64) -> torch.Tensor:
    return torch.arange(size, dtype=torch.float32) + 1000 * number


# Receive buffers.


class Ranks:
    """Two ranks of gloo in two threads: the first sends, the second is this one."""

    def __init__(self, weights: list[torch.Tensor]) -> None:
        self._store, self.weights = dist.HashStore(), weights
        self._sender = threading.Thread(target=self._send)
        self._sender.start()
        self.group = dist.ProcessGroupGloo(self._store, 1, 2)

    def _send(self) -> None:
        group = dist.ProcessGroupGloo(self._store, 0, 2)
        for tensor in self.weights:
            group.broadcast(tensor, root=0).wait()

    def received(self, buffer: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[Pair]:
        for number, tensor in enumerate(self.weights):
            here = buffer(tensor)
            self.group.broadcast(here, root=0).wait()
            yield f"layers.{number}.weight", here.view(tensor.shape)
        self._sender.join()


@pytest.fixture
def ranks() -> Ranks:
    return Ranks([weight(number).view(8, 8) for number in range(6)])


def test_a_broadcast_into_one_buffer_is_found_with_both_names_and_places(ranks: Ranks) -> None:
    buffer = torch.empty(64)

    summary = consume(ranks.received(lambda sent: buffer.view(8, 8)))

    assert kinds(summary) == {"written"}
    assert summary.counts["written"] == 5
    first = summary.findings[0]
    assert [(item.index, item.name) for item in first.items] == [(0, "layers.0.weight"), (1, "layers.1.weight")]
    assert all(re.search(r"test_audit\.py:\d+ in received$", item.where[-1]) for item in first.items)
    assert first.nbytes == 256
    [lent] = summary.lent
    assert (lent.address, lent.nbytes, lent.handed_over, lent.period) == (buffer.data_ptr(), 256, 6, 1)


def test_a_broadcast_into_new_memory_is_silent(ranks: Ranks) -> None:
    assert not consume(ranks.received(torch.empty_like)).findings


def test_addresses_that_come_round_again_by_the_allocator_are_silent() -> None:
    addresses = []

    summary = consume(
        ((f"w{number}", weight(number)) for number in range(1000)),
        lambda tensor: addresses.append(tensor.data_ptr()),
    )

    assert not summary.findings
    assert len(set(addresses)) < 1000  # else this shows nothing


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_ring_of_buffers_has_its_period(size: int) -> None:
    buffers = [torch.empty(64) for _ in range(size)]

    def producer() -> Iterator[Pair]:
        for number in range(4 * size):
            buffers[number % size].copy_(weight(number))
            yield f"w{number}", buffers[number % size].detach()

    summary = consume(producer())

    assert summary.counts == {"written": 3 * size}
    assert [lent.period for lent in summary.lent] == [size] * size
    assert {rule.rule: rule.spoiled for rule in summary.rules} == {
        "base-guard": 3 * size,
        "storage-size": 3 * size,
        "reference": 0,
    }


def test_one_object_handed_over_again_and_again_is_a_case_for_no_rule() -> None:
    pair = [torch.empty(64), torch.empty(64)]

    def producer() -> Iterator[Pair]:
        for number in range(6):
            pair[number % 2].copy_(weight(number))
            yield f"w{number}", pair[number % 2]

    summary = consume(producer())

    assert summary.counts == {"written": 4}
    assert {rule.spoiled for rule in summary.rules} == {4}
    assert "No rule could have known" in summary.findings[0].what


def test_a_buffer_of_other_sizes_and_dtypes_is_one_lender() -> None:
    raw = torch.empty(4096, dtype=torch.uint8)
    dtypes = [torch.float32, torch.bfloat16, torch.float64, torch.int8]

    def producer() -> Iterator[Pair]:
        for number, dtype in enumerate(dtypes):
            part = raw[: 64 * dtype.itemsize].view(dtype)
            part.copy_(weight(number) % 100)
            yield f"w{number}", part

    summary = consume(producer())

    assert kinds(summary) == {"written", "pinned"}
    assert len(summary.lent) == 1


def test_what_is_written_without_coming_again_is_found_where_somebody_else_held_it() -> None:
    live = torch.nn.Linear(8, 8, bias=False)

    def producer() -> Iterator[Pair]:
        yield "weight", live.state_dict()["weight"]
        live.weight.data.add_(1)  # an optimizer that does not wait
        yield "other", weight(1)

    summary = consume(producer())

    assert summary.counts == {"written": 1}
    assert "'weight' (item 0" in summary.findings[0].what
    assert summary.findings[0].items[0].name == "weight"


def test_a_consumer_may_write_what_it_owns() -> None:
    held = []

    def scale(tensor: torch.Tensor) -> None:
        held.append(tensor.mul_(2))

    def producer() -> Iterator[Pair]:
        for number in range(8):
            yield f"w{number}", weight(number)

    assert not consume(producer(), scale).findings
    assert len(held) == 8


def test_writing_between_the_elements_that_were_handed_over_is_no_finding() -> None:
    both = torch.zeros(64, 2)

    def producer() -> Iterator[Pair]:
        for number in range(2):
            both[:, number].copy_(weight(number))
            yield f"w{number}", both[:, number]

    assert set(consume(producer()).counts) == {"pinned"}


def test_a_write_that_changes_no_sampled_byte_is_told_by_the_version_counter() -> None:
    same = weight(1)

    def producer() -> Iterator[Pair]:
        for name in ("a", "b"):
            same.copy_(weight(1))
            yield name, same

    assert consume(producer()).counts == {"written": 1}


def test_all_bytes_are_read_if_that_is_asked_for() -> None:
    large = torch.zeros(1 << 12)

    def producer() -> Iterator[Pair]:
        yield "a", large.data
        large[1000] = 1
        yield "b", large.data

    for sample, found in ((0, {"tied"}), (None, {"written"})):
        large.zero_()
        watched = audit(producer(), on_finding=lambda finding: None, sample=sample)
        assert len(list(watched)) == 2
        assert kinds(watched.summary) == found


def test_what_is_beyond_the_window_is_forgotten() -> None:
    buffers = [torch.empty(64) for _ in range(4)]

    def producer() -> Iterator[Pair]:
        for number in range(8):
            yield f"w{number}", buffers[number % 4].fill_(number)

    assert consume(producer(), window=4).counts == {"written": 4}
    assert not consume(producer(), window=3).findings


def test_a_numpy_buffer_is_one_lender_however_many_storages_show_it() -> None:
    array = np.zeros(64, dtype=np.float32)

    def producer() -> Iterator[Pair]:
        for number in range(5):
            array[:] = number
            yield f"w{number}", torch.from_numpy(array)

    watched = audit(producer(), on_finding=lambda finding: None)
    for _, tensor in watched:
        tensor.clone()  # the loop still names the tensor when the next one is produced
    assert watched.summary.counts == {"foreign": 5, "written": 4}
    [lent] = watched.summary.lent
    assert (lent.handed_over, lent.written, lent.period) == (5, 4, 1)

    # If all is dropped in between, it cannot be told from arrays that are made anew.
    summary = consume(producer())
    assert summary.counts == {"foreign": 5}
    assert summary.came_round == 1


def test_numpy_arrays_that_are_dropped_are_foreign_and_no_lenders() -> None:
    def producer() -> Iterator[Pair]:
        for number in range(5):
            yield f"w{number}", torch.from_numpy(np.full(64, number, dtype=np.float32))

    summary = consume(producer())

    assert summary.counts == {"foreign": 5}
    assert not summary.lent
    assert summary.clean


def test_memory_that_a_storage_has_given_up_is_neither_read_nor_found() -> None:
    held = [torch.ones(1 << 16), torch.ones(64)]

    def producer() -> Iterator[Pair]:
        for number, tensor in enumerate(held):
            yield f"w{number}", tensor.detach()
            tensor.untyped_storage().resize_(0)  # as a sharded parameter is freed, whoever names it
        yield "freed", held[0].detach()

    for sample in (0, None):
        watched = audit(producer(), sample=sample, on_finding="raise")
        assert len(list(watched)) == 3
        assert not watched.summary.troubles


# What is shared, and what is pinned.


def test_tied_names_and_partial_overlaps_are_told_with_both_names() -> None:
    model = torch.nn.ModuleDict({"embed": torch.nn.Embedding(8, 4), "head": torch.nn.Linear(4, 8, bias=False)})
    model["head"].weight = model["embed"].weight

    def producer() -> Iterator[Pair]:
        yield from model.state_dict().items()
        yield "first_rows", model["embed"].weight.detach()[:2]

    summary = consume(producer())

    assert summary.counts == {"tied": 1, "overlap": 1, "pinned": 1}
    tied, pinned, overlap = sorted(summary.findings, key=lambda each: each.kind, reverse=True)
    assert [item.name for item in tied.items] == ["embed.weight", "head.weight"]
    assert [item.name for item in overlap.items] == ["head.weight", "first_rows"]
    assert (tied.nbytes, overlap.nbytes, pinned.nbytes) == (128, 32, 96)
    assert summary.clean


def test_the_state_dict_of_a_live_module_in_eval_is_silent() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)).eval()

    assert not consume(iter(model.state_dict().items())).findings


def test_a_split_and_detached_parameter_pins_all_of_it_as_megatron_yields_it() -> None:
    fused = torch.nn.Parameter(torch.randn(3 * 16, 8))

    def producer(own: bool) -> Iterator[Pair]:
        for name, part in zip("qkv", fused.split(16), strict=True):
            yield f"{name}_proj.weight", part.detach().clone() if own else part.detach()

    summary = consume(producer(own=False))

    assert summary.counts == {"pinned": 3}
    assert [each.nbytes for each in summary.findings] == [2 * 16 * 8 * 4] * 3
    assert summary.pinned == 0  # together they show all of it
    assert not consume(producer(own=True)).findings


def test_a_padded_gather_pins_its_padding() -> None:
    summary = consume(iter([("w", torch.empty(10, 4).narrow(0, 0, 7))]))

    assert summary.counts == {"pinned": 1}
    assert summary.pinned == 3 * 4 * 4


def test_a_graph_is_found_and_a_leaf_that_requires_grad_noted() -> None:
    model = torch.nn.Linear(4, 4, bias=False)

    assert consume(model.named_parameters()).counts == {"requires-grad": 1}
    summary = consume((name, each * 1) for name, each in model.named_parameters())
    assert summary.counts == {"graph": 1}
    assert "MulBackward0" in summary.findings[0].what
    with torch.no_grad():
        assert not consume((name, each * 1) for name, each in model.named_parameters()).findings


def test_an_inference_tensor_that_hides_its_base_is_told_from_one_whose_base_is_gone() -> None:
    with torch.inference_mode():
        base = torch.ones(64)
        hidden, alone = base.view(8, 8), torch.ones(64).view(8, 8)
    assert hidden._base is None

    assert consume(iter([("w", hidden)])).counts == {"hidden-base": 1}
    del hidden
    holder = [("w", alone)]
    del alone
    assert not consume(holder.pop() for _ in range(1)).findings


def test_safetensors_are_foreign_memory_and_nothing_to_be_warned_of(tmp_path: Path) -> None:
    save_file({f"w{number}": weight(number) for number in range(4)}, tmp_path / "model.safetensors")

    def producer() -> Iterator[Pair]:
        yield from load_file(tmp_path / "model.safetensors").items()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        summary = consume(producer(), on_finding="warn")
    assert summary.counts == {"foreign": 4}
    assert not consume((name, tensor.clone()) for name, tensor in producer()).findings


@pytest.fixture(scope="module")
def sharded() -> Iterator[torch.nn.Module]:
    """A module that FSDP2 has sharded over a mesh of one rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
        fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
        yield model
    finally:
        dist.destroy_process_group()


def test_full_tensors_of_fsdp_are_silent_and_their_graph_is_not(sharded: torch.nn.Module) -> None:
    def gathered() -> Iterator[Pair]:
        for name, shard in sharded.named_parameters():
            yield name, shard.full_tensor()  # type: ignore[operator]

    with torch.no_grad():
        assert not consume(gathered()).findings
    assert consume(gathered()).counts["graph"] == 4


def test_shards_have_no_memory_to_look_at_and_say_so(sharded: torch.nn.Module) -> None:
    with torch.no_grad():
        summary = consume(sharded.named_parameters(), use=lambda tensor: None)

    assert (summary.items, summary.unreadable, summary.looked) == (4, 4, 0)


# What is passed on is as it was.


@pytest.mark.parametrize("kind", [id for id, each in PROVENANCES.items() if not each.group])
@pytest.mark.parametrize("sample", [0, None])
def test_the_reference_decides_behind_an_audit_as_it_does_without_one(kind: str, sample: int | None) -> None:
    domain = PROVENANCES[kind].domain
    dtype = "float32" if "float32" in domain.dtypes else domain.dtypes[0]
    plan = Plan(tuple(Item(f"w{number}", kind, dtype, (2, 2), ops=_ops(kind)) for number in range(3)), bucket_bytes=64)

    def kept(watch: Callable[[Any], Any]) -> list[bool]:
        addresses: list[int] = []
        stream = Stream(plan, produced=lambda index, tensor: addresses.append(tensor.data_ptr()))
        delivered = [
            tensor.data_ptr()
            for bucket in get_named_tensor_buckets_sync(watch(stream.iterable()), 64)
            for _, tensor in bucket
        ]
        return [here == there for here, there in zip(addresses, delivered, strict=True)]

    audited = kept(lambda weights: audit(weights, sample=sample, on_finding=lambda finding: None))

    assert audited == kept(lambda weights: weights)
    if PROVENANCES[kind].custody is Custody.LENT:
        assert audited == [False] * 3


@pytest.mark.parametrize("kind", [id for id, each in PROVENANCES.items() if not each.group])
def test_rules_are_said_to_keep_what_they_do_keep(kind: str) -> None:
    domain = PROVENANCES[kind].domain
    dtype = "float32" if "float32" in domain.dtypes else domain.dtypes[0]
    plan = Plan((Item("w", kind, dtype, (2, 2), ops=_ops(kind)),), bucket_bytes=64)
    decided: dict[str, bool] = {}

    def decide(index: int, tensor: torch.Tensor) -> None:
        decided["base-guard"] = has_no_base(tensor)
        decided["storage-size"] = fills_its_storage(tensor)

    summary = consume(Stream(plan, produced=decide).iterable())

    assert summary.looked == 1
    assert {rule.rule: rule.kept == 1 for rule in summary.rules if rule.rule in decided} == decided
    assert all(rule.kept + rule.copied == 1 for rule in summary.rules)


def _ops(kind: str) -> tuple[str, ...]:
    return ("view", "detach") if kind.endswith("chain") else ()


def test_what_is_lent_is_lent_behind_an_audit() -> None:
    base = torch.ones(16)
    for view in (base.view(4, 4), base.detach(), base[2:]):
        [(_, tensor)] = audit(iter([("w", view)]), sample=0, on_finding=lambda finding: None)
        assert tensor is view
        assert not owns_its_memory(tensor)


@pytest.mark.parametrize("sample", [None, 0, 1 << 20])
def test_nothing_of_a_hand_over_is_held_while_the_producer_works(sample: int | None) -> None:
    refs: list[weakref.ref[torch.Tensor]] = []
    living = []

    def producer() -> Iterator[Pair]:
        for number in range(4):
            living.append(sum(ref() is not None for ref in refs))
            tensor = weight(number)
            refs.append(weakref.ref(tensor))
            pair = [(f"w{number}", tensor)]
            del tensor
            yield pair.pop()

    watched = audit(producer(), sample=sample)
    for _ in range(4):
        next(watched)

    assert living == [0, 0, 0, 0]


def test_pairs_are_passed_on_as_the_objects_they_are() -> None:
    pairs: list[Any] = [("a", weight(1)), ["b", weight(2)], ("c", None), "no pair at all"]

    watched = audit(iter(pairs))

    assert all(given is passed for given, passed in zip(pairs, watched, strict=True))


def test_without_an_audit_there_is_nothing_in_between() -> None:
    weights = iter([("w", weight(0))])

    assert audit(weights, on_finding=None) is weights


# Async streams, and how streams end.


async def lending(count: int = 4, fails: bool = False) -> AsyncIterator[Pair]:
    buffer = torch.empty(64)
    for number in range(count):
        await asyncio.sleep(0)
        yield f"w{number}", buffer.copy_(weight(number)).detach()
    if fails:
        raise OSError("gone")


def lending_sync(count: int = 4) -> Iterator[Pair]:
    buffer = torch.empty(64)
    for number in range(count):
        yield f"w{number}", buffer.copy_(weight(number)).detach()


@pytest.mark.asyncio
async def test_an_async_producer_is_watched_too() -> None:
    watched = audit(lending(), on_finding=lambda finding: None)
    names = [name async for name, _ in watched]

    assert names == ["w0", "w1", "w2", "w3"]
    assert watched.summary.counts == {"written": 3}
    assert watched.summary.ended == "completed"
    assert "in lending" in watched.summary.findings[0].items[0].where[-1]


@pytest.mark.asyncio
async def test_a_cancelled_stream_gives_its_summary() -> None:
    told: list[Summary] = []
    is_waiting = asyncio.Event()

    async def producer() -> AsyncIterator[Pair]:
        async for pair in lending():
            yield pair
        is_waiting.set()
        await asyncio.sleep(3600)

    async def sync() -> None:
        async for _ in audit(producer(), on_finding=lambda finding: None, on_summary=told.append):
            pass

    task = asyncio.ensure_future(sync())
    await is_waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [(each.ended, each.items, each.counts) for each in told] == [("cancelled", 4, {"written": 3})]


@pytest.mark.asyncio
async def test_a_failing_stream_gives_its_summary_and_its_error_unchanged() -> None:
    told: list[Summary] = []
    with pytest.raises(OSError, match=r"^gone$"):
        async for _ in audit(lending(fails=True), on_finding=lambda finding: None, on_summary=told.append):
            pass
    assert [each.ended for each in told] == ["failed: OSError: gone"]

    error = ValueError("no\nsecond line")

    def producer() -> Iterator[Pair]:
        yield "w", weight(0)
        raise error

    with pytest.raises(ValueError, match="no") as caught:
        list(audit(producer(), on_summary=told.append))
    assert caught.value is error
    assert told[1].ended == "failed: ValueError: no"


@pytest.mark.asyncio
async def test_closing_closes_the_producer_and_gives_the_summary() -> None:
    producer, other = lending_sync(), lending()
    told: list[Summary] = []
    watched = audit(producer, on_finding=lambda finding: None, on_summary=told.append)
    next(watched)
    watched.close()
    assert producer.gi_frame is None  # type: ignore[attr-defined]

    also = audit(other, on_finding=lambda finding: None, on_summary=told.append)
    await also.__anext__()
    await also.aclose()
    assert other.ag_frame is None  # type: ignore[attr-defined]
    assert [(each.ended, each.items) for each in told] == [("closed", 1), ("closed", 1)]


def test_an_abandoned_stream_gives_its_summary() -> None:
    told: list[Summary] = []
    watched = audit(lending_sync(), on_finding=lambda finding: None, on_summary=told.append)
    for _ in itertools.islice(watched, 2):
        pass
    assert watched.summary.ended == ""
    assert watched.summary.counts == {"written": 1}
    assert not told
    del watched
    gc.collect()
    assert [(each.ended, each.counts) for each in told] == [("abandoned", {"written": 1})]


# Who is told.


def test_a_lender_is_warned_of_once_where_the_stream_is_consumed() -> None:
    with pytest.warns(AuditWarning) as caught:
        for _ in audit(lending_sync(8)):
            pass
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert "'w0' (item 0" in str(caught[0].message)
    assert "'w1' (item 1" in str(caught[0].message)


def test_a_warning_that_is_made_an_error_does_not_break_the_sync() -> None:
    told: list[Summary] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        names = [name for name, _ in audit(lending_sync(), on_summary=told.append)]
    assert names == ["w0", "w1", "w2", "w3"]
    assert any("a warning was made an error" in trouble for trouble in told[0].troubles)


def test_a_callback_that_raises_does_not_break_the_sync() -> None:
    def broken(told: object) -> None:
        raise RuntimeError("broken")

    watched = audit(lending_sync(), on_finding=broken, on_summary=broken)
    with pytest.warns(AuditWarning, match="on_summary raised RuntimeError: broken"):
        names = [name for name, _ in watched]
    assert names == ["w0", "w1", "w2", "w3"]
    assert watched.summary.troubles[0] == "on_finding: RuntimeError: broken"


@pytest.mark.parametrize("on_finding", ["raise", "callable"])
def test_what_is_found_is_raised_before_the_hand_over_at_which_it_was(on_finding: Any) -> None:
    def only_written(finding: Finding) -> None:
        if finding.kind == "written":
            raise AuditError(finding)

    producer, seen, told = lending_sync(), [], []
    watched = audit(
        producer, on_finding=only_written if on_finding == "callable" else on_finding, on_summary=told.append
    )
    with pytest.raises(AuditError, match="'w0'") as caught:
        seen.extend(name for name, _ in watched)
    assert caught.value.finding.items[1].name == "w1"
    assert producer.gi_frame is None  # type: ignore[attr-defined]
    assert len(told) == 1
    assert told[0].ended.startswith("failed: AuditError")
    with pytest.raises(StopIteration):
        next(watched)


def test_what_is_found_at_the_end_is_raised_in_its_place() -> None:
    live = torch.ones(8)

    def producer() -> Iterator[Pair]:
        yield "w", live.detach()
        live.zero_()

    with pytest.raises(AuditError, match="'w'"):
        list(audit(producer(), on_finding="raise"))


def test_notes_are_neither_warned_of_nor_raised() -> None:
    fused = torch.ones(8)

    def producer() -> Iterator[Pair]:
        yield "a", fused[:4]
        yield "b", fused[:4]

    watched = audit(producer(), on_finding="raise")
    assert len(list(watched)) == 2
    assert watched.summary.counts == {"tied": 1, "pinned": 2}
    assert watched.summary.clean


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"on_finding": "shout"}, "on_finding='shout' is none of 'warn', 'raise', a callable, or None"),
        ({"window": 0}, "window=0 is no whole number from 1 on"),
        ({"sample": -1}, "sample=-1 is no whole number from 0 on"),
        ({"sample": 0.5}, "sample=0.5 is no whole number"),
        ({"rules": ["base_guard"]}, "no compaction rule 'base_guard'; choose from base-guard, storage-size, reference"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        audit(iter([]), **options)


@pytest.mark.parametrize(
    ("weights", "complaint"), [({"w": 1}, r"got a mapping: give its \.items\(\)"), (3, "got int"), (None, "NoneType")]
)
def test_what_is_no_stream_is_refused(weights: Any, complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        audit(weights)


# Sampling.


def test_what_is_small_and_plain_is_looked_at_now_and_then() -> None:
    def producer() -> Iterator[Pair]:
        for number in range(1000):
            yield f"w{number}", weight(number)

    watched = audit(producer(), sample=64 * 256)
    for _ in watched:
        pass
    summary = watched.summary

    assert (summary.items, summary.nbytes) == (1000, 1000 * 256)
    assert 32 + 14 <= summary.looked <= 32 + 16


def test_a_lender_is_found_behind_many_owned_weights() -> None:
    def producer() -> Iterator[Pair]:
        buffer = torch.empty(64)
        for number in range(1000):
            yield f"w{number}", weight(number)
        for number in range(200):
            yield f"lent{number}", buffer.copy_(weight(number))

    watched = audit(producer(), on_finding=lambda finding: None, sample=64 * 256)
    for _ in watched:
        pass

    # The next close look is at one of 64 weights, a glance at its memory follows within 61, and then each is looked at.
    assert watched.summary.counts["written"] >= 200 - 64 - 61 - 1
    assert [lent.period for lent in watched.summary.lent] == [1]


# Devices: the same kernels run on a CPU.


def test_on_a_device_samples_are_compared_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "ON_HOST", set())
    live, buffer = torch.arange(24.0).view(4, 6).t(), torch.empty(64)

    def producer() -> Iterator[Pair]:
        yield "strided", live[1:, 1:]
        for number in range(3):
            yield f"w{number}", buffer.copy_(weight(number)).data
        live[1, 1] = -1

    watched = audit(producer(), on_finding=lambda finding: None, sample=0)
    for _ in watched:
        assert "written" not in watched.summary.counts
    assert watched.summary.counts["written"] == 3
    assert {finding.items[0].name for finding in watched.summary.findings if finding.kind == "written"} == {
        "strided",
        "w0",
        "w1",
    }


def test_on_a_device_what_is_not_written_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "ON_HOST", set())
    held = [torch.randn(4, 6), torch.randn(4, 6).t(), torch.tensor(1.0), torch.ones(3, dtype=torch.bool)]

    for sample in (0, None):
        watched = audit(iter([(str(n), each.detach()) for n, each in enumerate(held)]), sample=sample)
        assert len(list(watched)) == 4
        assert not watched.summary.findings
        assert not watched.summary.troubles


# The package.


def test_the_plugin_stays_light() -> None:
    import subprocess

    code = "import bucketproof.plugin, sys; assert not {'torch', 'bucketproof.auditing'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert callable(bucketproof.audit)


def test_an_audit_brings_no_hypothesis_into_a_trainer() -> None:
    import subprocess

    code = (
        "import sys, torch\nfrom bucketproof import audit\n"
        "list(audit(iter([('w', torch.ones(1))]), on_summary=str))\n"
        "assert not {'hypothesis', 'pytest'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
