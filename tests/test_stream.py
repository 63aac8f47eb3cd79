"""A stream lends, overwrites and lets go as its plan says, and writes content that shows where it came from."""

from __future__ import annotations

import asyncio
import gc
import math
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from bucketproof.strategies import DTYPES, PROVENANCES, Custody, Item, Lender, Plan, Provenance, Stream, content
from bucketproof.strategies.draw import MAX_ELEMENTS
from bucketproof.strategies.memory import Memory
from bucketproof.strategies.plans import GRAD_MODES, ITERABLES, LENDER_KINDS, LENDER_SIZES, Shape

MODES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "enabled": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
}
COUNT = 6
FLOATING = [name for name, dtype in DTYPES.items() if name in ("float16", "float32", "float64") or dtype.is_complex]


def several(count: int = COUNT, provenance: str = "exact-cover", **item: object) -> tuple[Item, ...]:
    """Items that differ in nothing but their names and content."""
    return tuple(Item(f"w{i}", provenance, seed=i, **item) for i in range(count))


def plan_of(items: tuple[Item, ...], *lenders: Lender, limit: float = 1 << 10, **options: object) -> Plan:
    return Plan(items, limit, lenders or (Lender(),), **options)


def bits(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().clone(memory_format=torch.contiguous_format).view(-1)
    return bytes(flat.view(torch.uint8).tolist())


def consume(stream: Stream, see: Callable[[str, torch.Tensor], None], dropped: Callable[[], None]) -> None:
    """See each weight, drop it, and say so while the producer still waits to be advanced."""
    weights = stream.iterable(asynchronous=True)
    if hasattr(weights, "__aiter__"):
        asyncio.run(_consume(weights.__aiter__(), see, dropped))
        return
    weights = iter(weights)
    while True:
        try:
            see(*next(weights))
        except StopIteration:
            return
        dropped()


async def _consume(weights, see, dropped) -> None:
    while True:
        try:
            see(*await weights.__anext__())
        except StopAsyncIteration:
            return
        dropped()


def written_at(plan: Plan) -> list[str]:
    """What had just happened when each item was seen changed. A bucket of three is delivered on the way."""
    stream, held, found = Stream(plan), [], {}

    def look(moment: str) -> None:
        for index, (tensor, before) in enumerate(held):
            if bits(tensor) != before:
                found.setdefault(index, moment)

    weights = iter(stream.iterable())
    for index in range(len(plan.items)):
        tensor = next(weights)[1]
        look(f"pull {index}")
        held.append((tensor, bits(tensor)))
        if index == 3:
            stream.delivered(3)
            look("boundary")
    next(weights, None)
    look("exhausted")
    stream.finish()
    look("finish")
    return [found.get(index, "never") for index in range(len(plan.items))]


AT_NEXT = ["pull 1", "pull 2", "pull 3", "pull 4", "pull 5", "exhausted"]
BY_TURNS = {
    "buffer": AT_NEXT,
    "per-dtype": AT_NEXT,
    "module": AT_NEXT,
    "ping-pong": ["pull 2", "pull 3", "pull 4", "pull 5", "finish", "finish"],
    "ring": ["pull 4", "pull 5", "finish", "finish", "finish", "finish"],
}


PATIENCE = [{"iterable": "list"}, {"retention": "at-flush"}]
"""What makes all lenders wait for the delivery of what they have lent."""


@pytest.mark.parametrize("size", LENDER_SIZES)
@pytest.mark.parametrize("kind", LENDER_KINDS)
class TestALenderWrites:
    def test_at_the_next_advance_of_its_turn(self, kind, size):
        assert written_at(plan_of(several(), Lender(kind, size, "next"))) == BY_TURNS[kind]

    def test_at_the_boundary_what_was_handed_over_before_the_last(self, kind, size):
        expected = ["boundary"] * 3 + ["finish"] * 3
        assert written_at(plan_of(several(), Lender(kind, size, "boundary"))) == expected

    def test_at_the_end_of_the_stream(self, kind, size):
        assert written_at(plan_of(several(), Lender(kind, size, "end"))) == ["finish"] * COUNT

    @pytest.mark.parametrize("overwrite", ["next", "boundary"])
    @pytest.mark.parametrize("patience", PATIENCE, ids=str)
    def test_nothing_before_it_was_delivered_if_it_is_patient(self, kind, size, overwrite, patience):
        expected = ["boundary"] * 3 + ["finish"] * 3
        assert written_at(plan_of(several(), Lender(kind, size, overwrite), **patience)) == expected

    @pytest.mark.parametrize("patience", PATIENCE, ids=str)
    def test_nothing_before_the_end_if_so_planned_and_it_is_patient(self, kind, size, patience):
        assert written_at(plan_of(several(), Lender(kind, size, "end"), **patience)) == ["finish"] * COUNT


def test_the_next_items_bytes_are_what_is_written_and_at_last_the_poison():
    weights = iter((stream := Stream(plan_of(several(2)))).iterable())
    first = next(weights)[1]
    second = next(weights)[1]
    assert bits(first) == bits(second) != bytes([content.POISON] * 4)
    stream.finish()
    assert bits(first) == bits(second) == bytes([content.POISON] * 4)


@pytest.mark.parametrize(("kind", "apart"), [("buffer", 1), ("per-dtype", 2), ("ping-pong", 2), ("module", 4)])
def test_buffers_are_as_many_as_the_kind_of_lender_says(kind, apart):
    items = (*several(2, dtype="float32"), *several(2, dtype="int32"))
    stream = Stream(plan_of(items, Lender(kind)))
    assert len({tensor.data_ptr() for _, tensor in stream.iterable()}) == apart
    assert len(list(stream.buffers)) == apart


def test_a_ring_has_four_buffers():
    stream = Stream(plan_of(several(COUNT), Lender("ring")))
    addresses = [tensor.data_ptr() for _, tensor in stream.iterable()]
    assert len(set(addresses)) == 4
    assert addresses[4:] == addresses[:2]


@pytest.mark.parametrize(("size", "apart"), [("exact", 3), ("larger", 1), ("bucket", 1)])
def test_weights_of_other_sizes_lie_in_the_same_larger_buffer(size, apart):
    items = tuple(Item(f"w{i}", "detach", shape=(i,)) for i in (1, 5, 30))
    stream = Stream(plan_of(items, Lender(size=size)))
    assert len({tensor.data_ptr() for _, tensor in stream.iterable()}) == apart


def test_two_lenders_have_no_buffer_in_common():
    items = (Item("a", "slice"), Item("b", "slice", lender=1))
    stream = Stream(plan_of(items, Lender(), Lender()))
    assert len({tensor.data_ptr() for _, tensor in stream.iterable()}) == 2


@pytest.mark.parametrize(
    ("size", "limit", "nbytes"),
    [
        ("exact", 100, [40]),
        ("bucket", 100, [100]),
        ("bucket", 100.5, [100]),
        ("bucket", 40, range(41, 4096)),
        ("bucket", 1 << 30, range(41, 4096)),
        ("larger", 100, range(41, 4096)),
    ],
)
def test_a_buffer_is_of_the_size_planned(size, limit, nbytes):
    stream = Stream(plan_of(several(1, "detach", shape=(10,)), Lender(size=size), limit=limit))
    ((_, tensor),) = stream.iterable()
    assert tensor.untyped_storage().nbytes() in nbytes


@pytest.mark.parametrize(
    ("lender", "iterable", "written", "at_the_end"),
    [
        (Lender(), "generator", 6, 0),
        (Lender("ping-pong"), "generator", 4, 2),
        (Lender("ring"), "generator", 2, 4),
        (Lender(overwrite="boundary"), "generator", 0, 6),
        (Lender(overwrite="end"), "generator", 0, 6),
        (Lender(), "list", 0, 6),
    ],
)
def test_it_tells_whenever_a_lender_has_written(lender, iterable, written, at_the_end):
    told = []
    plan = plan_of(several(6), lender, iterable=iterable)
    stream = Stream(plan, overwritten=lambda buffer: told.append("written"))
    assert len(list(stream.iterable())) == 6
    assert len(told) == written
    stream.finish()
    assert len(told) == written + at_the_end


def test_it_tells_of_each_hand_over_before_it_is_yielded():
    told = []
    stream = Stream(plan_of(several()), produced=lambda index, tensor: told.append((index, bits(tensor))))
    for number, (_, tensor) in enumerate(stream.iterable()):
        assert told[number:] == [(number, bits(tensor))]
        assert (stream.pulled, stream.exhausted) == (number + 1, False)
    assert (stream.pulled, stream.exhausted) == (COUNT, True)


def test_it_tells_when_it_works_and_when_it_does_not():
    log = []

    @contextmanager
    def working():
        log.append("works")
        yield
        log.append("waits")

    for _ in Stream(plan_of(several(2)), working=working).iterable():
        log.append("yielded")
    assert log == ["works", "waits", "yielded", "works", "waits", "yielded", "works", "waits"]


MIXED = tuple(
    Item(f"w{i}", provenance, shape=(2, 3), seed=i)
    for i, provenance in enumerate(["fresh", "slice", "expert", "tied", "numpy", "inference", "requires-grad"])
)


@pytest.mark.parametrize("kind", ITERABLES)
def test_every_kind_of_iterable_yields_the_same(kind):
    def seen_of(kind: str) -> list[tuple[str, bytes]]:
        seen: list[tuple[str, bytes]] = []
        stream = Stream(plan_of(MIXED, iterable=kind))
        consume(stream, lambda name, tensor: seen.append((name, bits(tensor))), lambda: None)
        return seen

    assert len(seen_of(kind)) == len(MIXED)
    # Of a list, all are made before the first is seen, and no lender writes meanwhile.
    assert seen_of(kind) == seen_of("generator")


@pytest.mark.parametrize(
    ("kind", "is_async", "has_close"),
    [
        ("generator", False, "close"),
        ("iterator", False, None),
        ("list", False, None),
        ("async-generator", True, "aclose"),
        ("async-iterator", True, None),
    ],
)
def test_each_kind_of_iterable_is_what_it_is_called(kind, is_async, has_close):
    weights = Stream(plan_of(several(), iterable=kind)).iterable(asynchronous=True)
    assert hasattr(weights, "__aiter__") == is_async
    assert isinstance(weights, list) == (kind == "list")
    assert [name for name in ("close", "aclose") if hasattr(weights, name)] == ([has_close] if has_close else [])


@pytest.mark.parametrize("kind", ITERABLES)
def test_every_kind_of_iterable_has_a_synchronous_form(kind):
    assert len(list(Stream(plan_of(several(), iterable=kind)).iterable())) == COUNT


@pytest.mark.parametrize("kind", [kind for kind in ITERABLES if kind != "list"])
def test_no_hand_over_is_held_while_the_producer_waits(kind):
    alive: list[StorageWeakRef] = []
    items = tuple(Item(id, id, shape=(2, 2)) for id in PROVENANCES if is_alone(id))
    gone = []
    consume(
        Stream(plan_of(items, iterable=kind)),
        lambda name, tensor: alive.append(StorageWeakRef(tensor.untyped_storage())),
        lambda: gone.append(alive[-1].expired()),
    )
    assert gone == [True] * len(items)


def is_alone(id: str) -> bool:
    """Whether nobody but the consumer holds what comes of a provenance, and (2, 2) float32 can."""
    provenance = PROVENANCES[id]
    alone = provenance.custody in (Custody.OWNED, Custody.PARTIAL) and provenance.group not in ("distributed", "cuda")
    return alone and provenance.domain.admits((2, 2), "float32")


def test_of_a_list_nothing_but_the_list_holds_a_hand_over():
    stream = Stream(plan_of(several(3, "fresh"), iterable="list"))
    weights = stream.iterable()
    alive = [StorageWeakRef(tensor.untyped_storage()) for _, tensor in weights]
    assert not any(each.expired() for each in alive)
    weights.clear()
    assert all(each.expired() for each in alive)


@pytest.mark.parametrize("kind", ITERABLES)
@pytest.mark.parametrize("mode", GRAD_MODES)
@pytest.mark.parametrize("planned", GRAD_MODES)
def test_the_consumers_mode_is_as_it_was_whenever_it_has_control(mode, planned, kind):
    def see(*args: object) -> None:
        assert (torch.is_grad_enabled(), torch.is_inference_mode_enabled()) == before

    with MODES[mode]():
        before = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        consume(Stream(plan_of(MIXED, iterable=kind, grad_mode=planned)), see, see)
        see()


@pytest.mark.parametrize("mode", GRAD_MODES)
def test_views_are_real_ones_whatever_the_consumers_mode(mode):
    with MODES[mode]():
        ((_, tensor),) = Stream(plan_of(several(1, "view"), grad_mode=mode)).iterable()
        assert tensor._base is not None
        assert not tensor.is_inference()


@pytest.mark.parametrize(("planned", "enabled"), [("enabled", True), ("no_grad", False), ("inference", False)])
@pytest.mark.parametrize("mode", GRAD_MODES)
def test_the_producer_works_in_the_grad_mode_of_the_plan_and_never_in_inference_mode(
    monkeypatch, mode, planned, enabled
):
    seen = []

    def looks(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
        seen.append((torch.is_grad_enabled(), torch.is_inference_mode_enabled()))
        return memory.fresh(shape, dtype)

    monkeypatch.setitem(PROVENANCES, "looks", Provenance("looks", Custody.OWNED, looks, ""))
    with MODES[mode]():
        assert len(list(Stream(plan_of(several(2, "looks"), grad_mode=planned)).iterable())) == 2
    assert seen == [(enabled, False)] * 2


def test_everything_is_dropped_when_it_lets_go():
    stream = Stream(plan_of(MIXED))
    alive = [StorageWeakRef(tensor.untyped_storage()) for _, tensor in stream.iterable()]
    assert not all(each.expired() for each in alive)
    stream.let_go()
    gc.collect()
    assert all(each.expired() for each in alive)
    assert list(stream.buffers) == []


def test_a_stream_leaves_nothing_of_itself_behind():
    stream = Stream(plan_of(MIXED))
    assert len(list(stream.iterable())) == len(MIXED)
    itself = weakref.ref(stream)
    del stream
    assert itself() is None


WORDS = 1 << 16


def numbers(raw: torch.Tensor) -> list[int]:
    return raw.clone().view(torch.int32).tolist()


def test_no_byte_of_content_is_the_poison_and_no_word_comes_twice():
    raw = content.pattern(4 * WORDS, 0)
    assert not (raw == content.POISON).any()
    assert len(set(numbers(raw))) == WORDS


@pytest.mark.parametrize("seed", [0, 1, 7, 1000, WORDS - 1])
def test_content_is_the_same_for_the_same_seed(seed):
    assert numbers(content.pattern(64, seed)) == numbers(content.pattern(64, seed))
    assert numbers(content.pattern(64, seed)) == numbers(content.pattern(4 * WORDS, seed))[:16]


def test_content_of_neighbouring_seeds_has_no_word_in_common():
    seen = [set(numbers(content.pattern(MAX_ELEMENTS * 16, seed))) for seed in range(8)]
    assert len(set().union(*seen)) == 8 * len(seen[0])


@pytest.mark.parametrize("bit", range(8))
def test_each_bit_of_the_first_byte_is_now_set_and_now_not(bit):
    first = [int(content.pattern(1, seed)) >> bit & 1 for seed in range(8)]
    on_another_rank = [int(content.pattern(1, seed + 1000)) >> bit & 1 for seed in range(8)]
    assert set(first) == {0, 1}
    assert first != on_another_rank


def test_content_goes_on_from_its_beginning_when_there_is_no_more():
    assert len(set(numbers(content.pattern(4 * WORDS, 5)))) == WORDS
    assert numbers(content.pattern(8 * WORDS, 0)) == 2 * numbers(content.pattern(4 * WORDS, 0))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", range(4))
def test_content_of_every_dtype_is_free_of_the_poison(dtype, seed):
    raw = torch.empty(1 << 15, dtype=torch.uint8)
    content.write(raw, DTYPES[dtype], seed)
    assert not (raw == content.POISON).any()
    assert set(raw.tolist()) == {0, 1} if dtype == "bool" else len(set(raw.tolist())) == 255


@pytest.mark.parametrize("dtype", FLOATING)
def test_tamed_content_is_finite_and_free_of_the_poison_also_with_its_sign_changed(dtype):
    raw = torch.empty(1 << 18, dtype=torch.uint8)
    content.write(raw, DTYPES[dtype], 0)
    assert not raw.view(DTYPES[dtype]).isfinite().all()
    content.tame(raw, DTYPES[dtype])
    assert raw.view(DTYPES[dtype]).isfinite().all()
    assert not (raw == content.POISON).any()
    negative = raw.view(DTYPES[dtype]).neg().view(torch.uint8)
    assert not (negative == content.POISON).any()


@pytest.mark.parametrize("dtype", [name for name, dtype in DTYPES.items() if dtype.itemsize >= 4])
@pytest.mark.parametrize("layout", ["contiguous", "stepped", "permuted"])
def test_every_element_of_a_weight_has_bits_of_its_own(dtype, layout):
    items = several(8, "slice", dtype=dtype, shape=(6, 6), layout=layout)
    stream = Stream(plan_of(items, Lender(overwrite="end")))
    size = DTYPES[dtype].itemsize
    elements = [
        told[i : i + size] for _, tensor in stream.iterable() for told in [bits(tensor)] for i in at(told, size)
    ]
    assert len(elements) == 8 * 36
    repeated = {element for element, count in Counter(elements).items() if count > 1}
    assert len([element for element in elements if element in repeated]) < len(elements) / 2
    assert all(any(edge in element for edge in edges(dtype)) for element in repeated)


def edges(dtype):
    """The zero and the infinity that are planted."""
    part = DTYPES[dtype].to_real() if DTYPES[dtype].is_complex else DTYPES[dtype]
    return [bits(torch.tensor(value, dtype=part)) for value in (-0.0, -math.inf)] if part.is_floating_point else []


def at(told: bytes, size: int) -> range:
    return range(0, len(told), size)


def test_poison_is_written_over_everything_of_inference_tensors_too():
    for mode in MODES.values():
        with mode():
            raw = torch.zeros(8, dtype=torch.uint8)
        content.poison(raw)
        assert raw.tolist() == [content.POISON] * 8


@pytest.mark.parametrize("provenance", ["owned-view", "slice", "dtype-view", "partial-detach"])
def test_a_bool_has_no_byte_but_zero_and_one_whatever_it_was_made_of(provenance: str) -> None:
    """A copy of any other byte is one, so that a sound copy would look like a fault."""
    item = Item("w", provenance, "bool", (3, 4), "reinterpreted")
    found = [tensor.view(torch.uint8).flatten().tolist() for _, tensor in Stream(Plan((item,), 1 << 20)).iterable()]

    assert set(found[0]) == {0, 1}
