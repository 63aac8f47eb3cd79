"""The adapters: what each makes a target of, what it can see, and what it leaves unpromised."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from bucketproof.adapters import compaction, packer, sender
from bucketproof.cli import main
from bucketproof.properties import PROFILES, PROPERTIES, Promises, Run, Target, cells, execute, judge, preflight
from bucketproof.properties.evidence import Facts, facts, is_as_due
from bucketproof.properties.payload import Entry, entries_of, flat_of
from bucketproof.properties.promises import FAMILIES
from bucketproof.reference import (
    compact,
    get_named_tensor_buckets,
    get_named_tensor_buckets_sync,
    pack_aligned,
    unpack_aligned,
)
from bucketproof.request import BadRequest
from bucketproof.strategies import GROUPS, Item, Plan
from bucketproof.targets import resolve

Named = list[tuple[str, torch.Tensor]]

ODD = Plan((Item("a", "fresh", "bfloat16", (3,)), Item("b", "fresh", "float32", (2,))), 1 << 10, retention="at-flush")
"""What cannot be packed back to back: the second item would begin at byte 6."""
MIXED = Plan(
    (
        Item("scalar", "fresh", "float64", ()),
        Item("odd", "fresh", "bool", (3,), seed=1),
        Item("transposed", "fresh", "float32", (2, 3), "permuted", seed=2),
        Item("conj", "fresh", "complex64", (2,), "conjugated", seed=3),
        Item("fp8", "fresh", "float8_e4m3fn", (5,), seed=4),
        Item("none", "fresh", "float32", (0, 2), seed=5),
    ),
    1 << 10,
    retention="at-flush",
)
EMPTY_TAIL = Plan((Item("a", "fresh"), Item("b", "fresh", shape=(0,)), Item("c", "fresh", shape=(2, 0))), 4)
TWO_BUCKETS = Plan((Item("a", "fresh"), Item("b", "fresh", seed=1)), 4, retention="at-flush")


def flagged(target: Target, plan: Plan) -> set[str]:
    """The properties, of those for any plan, that a run breaks."""
    return broken(execute(target, plan))


def broken(run: Run) -> set[str]:
    judged = (each for each in PROPERTIES.values() if not each.unpromised(run.promises))
    return {each.id for each in judged if (each.custodies or "mixed" in each.campaigns) and list(each.judge(run))}


def unpromised(target: Target) -> set[str]:
    return {each.id for each in PROPERTIES.values() if each.unpromised(target.promises)}


# Packers.


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of the bytes of a tensor."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    return plain.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8)


def described(named: Named) -> list[tuple[str, torch.dtype, torch.Size]]:
    return [(name, tensor.dtype, tensor.shape) for name, tensor in named]


def back_to_back(named: Named) -> Any:
    return torch.cat([raw(tensor) for _, tensor in named]), described(named)


def slices(payload: Any) -> Iterator[tuple[str, torch.dtype, torch.Size, torch.Tensor]]:
    flat, metadata = payload
    start = 0
    for name, dtype, shape in metadata:
        end = start + shape.numel() * dtype.itemsize
        yield name, dtype, shape, flat[start:end]
        start = end


def as_views(payload: Any) -> Named:
    return [(name, part.view(dtype).view(shape)) for name, dtype, shape, part in slices(payload)]


def as_copies(payload: Any) -> Named:
    return [(name, part.clone().view(dtype).view(shape)) for name, dtype, shape, part in slices(payload)]


def as_misaligned(payload: Any) -> Named:
    """Through numpy, which does not mind where a number lies."""
    return [
        (name, torch.from_numpy(np.frombuffer(bytearray(b"..." + part.numpy().tobytes()), np.float32, offset=3)))
        for name, _, _, part in slices(payload)
    ]


def as_mapping(payload: Any) -> dict[str, torch.Tensor]:
    return dict(as_copies(payload))


def drops_what_is_empty(named: Named) -> Any:
    return back_to_back([(name, tensor) for name, tensor in named if tensor.numel()])


def forgets_strides(named: Named) -> Any:
    flat = [torch.frombuffer(bytearray(storage_of(tensor)), dtype=torch.uint8) for _, tensor in named]
    return torch.cat(flat), described(named)


def storage_of(tensor: torch.Tensor) -> bytes:
    storage = tensor.detach().resolve_conj().resolve_neg().untyped_storage()
    return bytes(torch.tensor(storage, dtype=torch.uint8).numpy()) or b"."


def casts(named: Named) -> Any:
    return back_to_back([(name, tensor.to(torch.bfloat16)) for name, tensor in named])


def swaps_metadata(named: Named) -> Any:
    flat, metadata = back_to_back(named)
    return flat, metadata[::-1]


def sends_all_of_a_buffer(named: Named) -> Any:
    flat, metadata = back_to_back(named)
    return torch.cat([flat, torch.zeros(64, dtype=torch.uint8)]), metadata


def refuses_empty_payloads(named: Named) -> Any:
    if not sum(tensor.numel() for _, tensor in named):
        raise ValueError("nothing to pack")
    return back_to_back(named)


ROUND_TRIP, ALIGNMENT, METADATA = (f"packing.{each}" for each in ("round-trip", "alignment", "metadata"))
NOT_AS_GIVEN = {ROUND_TRIP, "values.conserved"}
"""What does not come out does not arrive, whoever is asked."""


@pytest.mark.parametrize(
    ("pack", "unpack", "plan", "expected"),
    [
        (back_to_back, as_views, ODD, {ALIGNMENT, *NOT_AS_GIVEN}),
        (back_to_back, as_misaligned, TWO_BUCKETS, {ALIGNMENT}),
        (drops_what_is_empty, as_copies, MIXED, {METADATA, *NOT_AS_GIVEN}),
        (refuses_empty_payloads, as_copies, EMPTY_TAIL, set()),
        (casts, as_copies, TWO_BUCKETS, {METADATA, *NOT_AS_GIVEN}),
        (swaps_metadata, as_copies, ODD, {METADATA, "values.order", *NOT_AS_GIVEN}),
        (sends_all_of_a_buffer, as_copies, ODD, {METADATA}),
        (back_to_back, as_copies, MIXED, set()),
        (back_to_back, as_mapping, MIXED, set()),
        (pack_aligned, unpack_aligned, MIXED, set()),
        (pack_aligned, unpack_aligned, EMPTY_TAIL, set()),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_packer_is_flagged_for_what_it_does(
    pack: Callable[[Named], Any], unpack: Callable[[Any], Any], plan: Plan, expected: set[str]
) -> None:
    padding = 15 if pack is pack_aligned else 0

    assert flagged(packer(pack, unpack, padding=padding), plan) == expected


def test_duplicates_that_a_packer_loses_do_not_come_out() -> None:
    plan = Plan((Item("a", "fresh"), Item("a", "fresh", seed=1)), 1 << 10, retention="at-flush")

    assert ROUND_TRIP in flagged(packer(back_to_back, as_mapping, padding=0), plan)
    assert ROUND_TRIP not in flagged(packer(back_to_back, as_copies, padding=0), plan)


def test_metadata_may_say_where_each_item_lies() -> None:
    def at(*offsets: int) -> Target:
        return packer(
            back_to_back,
            as_copies,
            padding=0,
            entries=lambda payload: [("a", 6, offsets[0]), ("b", 8, offsets[1])],
        )

    run = execute(at(0, 6), ODD)

    assert broken(run) == {ALIGNMENT}  # that is where it is, and no float32 can be viewed there
    assert [each.offset for each in run.packings[0].entries or ()] == [0, 6]
    assert flagged(at(0, 8), ODD) == {METADATA}


def test_metadata_is_found_wrong_in_its_sizes() -> None:
    target = packer(back_to_back, as_copies, padding=0, entries=lambda payload: [("a", 3), ("b", 2)])

    assert flagged(target, ODD) == {METADATA}


def test_what_cannot_be_seen_of_a_payload_is_not_judged() -> None:
    class Payload:
        def __init__(self, named: Named) -> None:
            self.parts = sends_all_of_a_buffer(named)

    seen = packer(Payload, lambda payload: as_copies(payload.parts), padding=0, flat=lambda payload: payload.parts[0])

    assert flagged(packer(Payload, lambda payload: as_copies(payload.parts), padding=0), ODD) == set()
    assert flagged(seen, ODD) == {METADATA}


def test_padding_may_look_like_an_item() -> None:
    plan = Plan(tuple(Item(f"{i}", "fresh", "bool", (1,), seed=i) for i in range(6)), 1 << 10, retention="at-flush")

    assert flagged(packer(pack_aligned, unpack_aligned), plan) == set()


def test_a_packer_pins_no_more_than_its_padding() -> None:
    plan = Plan((Item("a", "fresh", shape=(3,)), Item("b", "fresh", "float64", seed=1)), 1 << 10, retention="at-flush")

    assert flagged(packer(pack_aligned, unpack_aligned, padding=15), plan) == set()
    assert flagged(packer(pack_aligned, unpack_aligned, padding=0), plan) == {METADATA, "aliasing.no-pinned-storage"}


def test_a_packer_that_casts_promises_so() -> None:
    target = packer(casts, as_copies, padding=0, promises={"dtype": "bfloat16"})

    assert flagged(target, TWO_BUCKETS) == set()


def test_what_was_packed_is_kept_as_data() -> None:
    run = execute(packer(pack_aligned, unpack_aligned), MIXED)

    (packing,) = run.packings
    assert [name for name, _ in packing.given] == [item.name for item in MIXED.items]
    assert packing.payload is not None
    assert len(packing.payload) % 16 == 0
    assert packing.entries is not None
    assert not any(isinstance(each, torch.Tensor) for each in (*vars(packing).values(), *packing.entries))
    assert run.alive() == 0


def test_an_error_of_a_packer_says_which_half_it_was() -> None:
    target = packer(back_to_back, lambda payload: [("a", 1)])

    assert "unpack() raised Malformed: bucket 0 holds (a str, an int)" in execute(target, ODD).events[-1].text


def test_a_packer_promises_what_packing_is() -> None:
    made = packer(back_to_back, as_views).promises

    assert (made.copies, made.retention, made.padding) == ("always", "at-flush", 15)
    assert {"boundaries.greedy", "ownership.no-copy"} <= unpromised(packer(back_to_back, as_views))
    assert packer(back_to_back, as_views, promises={"order": None}).promises.order is None
    with pytest.raises(ValueError, match="no promise 'ordr'; did you mean 'order'"):
        packer(back_to_back, as_views, promises={"ordr": None})
    with pytest.raises(ValueError, match="padding=-1 is no number of bytes"):
        packer(back_to_back, as_views, padding=-1)


def test_only_packers_are_judged_by_packing() -> None:
    packing = {id for id in PROPERTIES if id.startswith("packing.")}

    assert packing == {ROUND_TRIP, ALIGNMENT, METADATA}
    assert packing <= unpromised(Target("plain", get_named_tensor_buckets))
    assert not packing & unpromised(packer(back_to_back, as_views))


class Meta(NamedTuple):
    name: str
    shape: torch.Size
    dtype: torch.dtype
    start: int


FLAT = torch.zeros(4, dtype=torch.uint8)
A = Entry("a", 8)


@pytest.mark.parametrize(
    ("payload", "entries"),
    [
        ((FLAT, [("a", torch.float32, torch.Size([2]))]), [A]),
        ((FLAT, [("a", (2,), torch.float32, 64, 2)]), [A]),
        ((FLAT, [Meta("a", torch.Size([2]), torch.float32, 0)]), [A]),
        ((FLAT, [{"name": "a", "shape": [2], "dtype": torch.float32}]), [A]),
        ((FLAT, {"a": {"shape": (2,), "dtype": torch.float32}}), [A]),
        (({"a": (torch.float32, (2,))}, FLAT), [A]),
        ((FLAT, []), []),
        ((FLAT, [("a", 8)]), None),
        ((FLAT, ["a"]), None),
        ((FLAT, 3), None),
        ((FLAT, FLAT), None),
        (FLAT, None),
        (b"1234", None),
        ({"a": FLAT}, None),
    ],
)
def test_metadata_of_the_usual_forms_is_read(payload: Any, entries: Any) -> None:
    assert entries_of(payload) == entries


def test_the_bytes_of_usual_payloads_are_found() -> None:
    assert flat_of(FLAT) is FLAT
    assert flat_of((FLAT, [])) is FLAT
    assert flat_of(([], b"1")) == b"1"
    assert flat_of((FLAT, FLAT)) is None
    assert flat_of({"a": FLAT}) is None


def test_metadata_that_is_named_but_not_understood_is_an_error() -> None:
    run = execute(packer(back_to_back, as_copies, entries=lambda payload: ["a"]), ODD)

    assert "entries() gave 'a': give (name, bytes)" in run.events[-1].text


# Senders.


def send(weights: Any, bucket_bytes: Any, deliver: Any) -> None:
    for bucket in get_named_tensor_buckets_sync(weights, bucket_bytes):
        deliver(bucket)


async def send_async(weights: Any, bucket_bytes: Any, deliver: Any) -> None:
    async for bucket in get_named_tensor_buckets(weights, bucket_bytes):
        await asyncio.sleep(0)
        deliver(bucket)


def send_in_one_list(weights: Any, bucket_bytes: Any, deliver: Any) -> None:
    reused: Named = []
    for bucket in get_named_tensor_buckets_sync(weights, bucket_bytes):
        reused[:] = bucket
        deliver(reused)
        reused.clear()


def send_in_one_buffer(weights: Any, bucket_bytes: Any, deliver: Any) -> None:
    reused = torch.zeros(64, dtype=torch.uint8)
    for bucket in get_named_tensor_buckets_sync(weights, bucket_bytes):
        flat, metadata = back_to_back(bucket)
        reused[: len(flat)] = flat
        deliver((reused, metadata))


class Sending:
    async def __call__(self, weights: Any, bucket_bytes: Any, deliver: Any) -> None:
        await send_async(weights, bucket_bytes, deliver)


FEW = ("values.conserved[slice]", "boundaries.greedy", "lifecycle.producer-error", "memory.peak", "lifecycle.reusable")


@pytest.mark.parametrize("sending", [send, send_async, Sending(), functools.partial(send_async), send_in_one_list])
def test_a_sound_sender_passes(sending: Any) -> None:
    target = sender(sending)

    assert target.is_async is (sending not in (send, send_in_one_list))
    assert preflight(target) is None
    assert statuses(target, FEW) == dict.fromkeys(FEW, "pass")


def statuses(target: Target, ids: Iterable[str]) -> Mapping[str, str]:
    profile = PROFILES["smoke"]
    return {cell.id: judge(cell, target, profile, 0).status for cell in cells() if cell.id in ids}


def test_how_far_a_sender_runs_ahead_cannot_be_seen() -> None:
    hidden = {"memory.lookahead", "memory.released-after-flush"}

    assert hidden <= unpromised(sender(send))
    assert hidden <= unpromised(sender(send, promises={"lookahead": 1}))
    assert not hidden & unpromised(Target("plain", get_named_tensor_buckets))


def test_a_receiver_makes_pairs_of_messages() -> None:
    plan = Plan(TWO_BUCKETS.items, 4)

    copies = {"copies": "always"}

    assert flagged(sender(send_in_one_buffer, as_copies, promises=copies), plan) == set()
    assert "values.conserved" in flagged(sender(send_in_one_buffer, as_views, promises=copies), plan)


def test_what_was_delivered_before_an_error_comes_before_it() -> None:
    plan = Plan((*TWO_BUCKETS.items, Item("c", "fresh")), 4, ends="error", ends_at=2)

    run = execute(sender(send), plan)

    assert [delivered.name for delivered in run.delivered] == ["a"]
    assert run.error is run.raised is not None


def test_a_sender_that_delivers_no_bucket_is_told_so() -> None:
    run = execute(sender(lambda weights, limit, deliver: deliver(torch.ones(1))), TWO_BUCKETS)

    assert "bucket 0 is a Tensor: yield a sequence" in run.events[-1].text


# Compaction functions.


def test_a_compaction_function_answers_for_what_it_does() -> None:
    judged = {id for id in PROPERTIES if id.split(".")[0] in ("aliasing", "ownership", "values")}

    assert unpromised(compaction(compact)) == set(PROPERTIES) - judged
    assert {cell.property.id for cell in cells(GROUPS)} >= judged


LENT = "aliasing.no-lent-memory[detach]"
OWNED = "ownership.no-copy[full-tensor]"
PINNED = "aliasing.no-pinned-storage[partial-slice]"


@pytest.mark.parametrize(
    ("function", "failing"),
    [
        (compact, set()),
        (lambda tensor: tensor, {LENT, PINNED}),
        (lambda tensor: tensor.detach().clone(), {OWNED}),
        (lambda tensor: tensor if tensor._base is None else tensor.clone(), {LENT, OWNED}),
    ],
    ids=["sound", "keeps", "copies", "base-guard"],
)
def test_a_compaction_function_is_flagged_for_what_it_does(function: Any, failing: set[str]) -> None:
    found = statuses(compaction(function), [LENT, OWNED, PINNED])

    assert {id for id, status in found.items() if status == "fail"} == failing


def test_a_target_has_the_name_of_its_function() -> None:
    assert compaction(compact).name == "compact"
    assert packer(back_to_back, as_views).name == "back_to_back"
    assert sender(send, name="mine").name == "mine"


# The promises behind them.


def test_families_are_those_that_there_are() -> None:
    assert {id.partition(".")[0] for id in PROPERTIES} <= set(FAMILIES)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"scope": ("alias",)}, "scope=.* must be a tuple of some of 'aliasing'"),
        ({"scope": "aliasing"}, "scope='aliasing' must be a tuple"),
        ({"padding": -1}, "padding=-1 is no number of bytes"),
        ({"padding": 0.5}, "padding=0.5 is no number of bytes"),
    ],
)
def test_a_promise_that_is_none_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Promises(**given)


# At the door.


def test_a_compaction_function_is_named_as_any_other_target() -> None:
    target = resolve("compaction=bucketproof.reference:compact")

    assert target.name == "compaction=bucketproof.reference:compact"
    assert target.promises == compaction(compact).promises
    assert preflight(target) is None
    with pytest.raises(BadRequest, match="no attribute 'compat'; did you mean 'compact'"):
        resolve("compaction=bucketproof.reference:compat")


def test_either_a_target_or_a_compaction_function_is_judged(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "reference", "--compaction", "bucketproof.reference:compact"]) == 2
    assert "--compaction: not allowed with argument TARGET" in capsys.readouterr().err


# Casts, which packers mostly do.


def test_two_casts_may_differ_in_the_payload_of_a_nan_and_in_nothing_else() -> None:
    def seen(*bits: int) -> Facts:
        return facts(torch.tensor(bits, dtype=torch.int16).view(torch.bfloat16))

    assert is_as_due(seen(0x7FC0, 1), seen(0x7FC1, 1), is_cast=True)
    assert not is_as_due(seen(0x7FC0, 1), seen(0x7FC1, 1), is_cast=False)
    assert not is_as_due(seen(0x7FC0, 2), seen(0x7FC1, 1), is_cast=True)
    assert not is_as_due(seen(0), seen(-0x8000), is_cast=True)


def test_a_cast_may_allocate_what_arrives() -> None:
    def widened(weights: Any, bucket_bytes: float) -> Any:
        return get_named_tensor_buckets_sync(weights, bucket_bytes, compaction=torch.Tensor.float)

    items = tuple(Item(f"{i}", "fresh", "bfloat16", (4,), seed=i) for i in range(4))
    run = execute(Target("widened", widened, Promises(dtype="float32")), Plan(items, 1 << 10, grad_mode="no_grad"))

    assert not list(PROPERTIES["memory.peak"].judge(run))
    assert not run.peaks
    assert [nbytes for _, nbytes in run.watched] == 4 * [8] + 4 * [16]
