"""The custody of every provenance is what its label says, shown with torch alone."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from bucketproof.strategies import (
    CHAINS,
    DTYPES,
    LAYOUTS,
    PROVENANCES,
    Custody,
    Item,
    Lender,
    Plan,
    Provenance,
    Stream,
)
from bucketproof.strategies.content import POISON
from bucketproof.strategies.memory import Memory
from bucketproof.strategies.plans import GRAD_MODES, LENDER_KINDS, LENDER_SIZES, OVERWRITES, Shape

MODES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "enabled": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
}
SHAPES: tuple[Shape, ...] = (
    (1,),
    (2, 3),
    (),
    (0,),
    (3,),
    (2, 2),
    (2, 0, 3),
    (1, 2, 2),
    (2, 3, 1),
    (2, 1, 1, 3),
    (1, 2, 1, 2, 1, 2),
)
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
SHAPES_EACH = 3
"""Shapes of each layout and dtype. The next layout or dtype takes the next ones, so all of them have their turn."""
TRIPLES = 700
"""Chains of three that are tried of each kind, spread over all of them."""


EXPORTED = (
    *("dlpack", "numpy", "frombuffer", "shared-memory", "memory-mapped", "chain", "exported-to-numpy"),
    *(id for id, each in PROVENANCES.items() if each.group in ("files", "safetensors")),
)
"""Provenances in which memory is more than torch's own."""


def ids(*custodies: Custody) -> list[str]:
    """Those of these custodies, or all, that one process can make in memory of the host."""
    alone = [each for each in PROVENANCES.values() if each.group not in ("distributed", "cuda")]
    return [each.id for each in alone if each.custody in custodies or not custodies]


def taken(values: list[Shape], number: int, start: int) -> list[Shape]:
    """So many of the values, or all there are, counted round from one of them."""
    return [values[(start + i) % len(values)] for i in range(min(number, len(values)))]


def plain_items(provenance: Provenance) -> Iterator[Item]:
    """Items of every layout and dtype that a provenance admits."""
    start = 0
    for layout, dtype in itertools.product(provenance.layouts, provenance.domain.dtypes):
        admitted = [
            shape
            for shape in SHAPES
            if provenance.domain.admits(shape, dtype) and LAYOUTS[layout].domain.admits(shape, dtype)
        ]
        for shape in taken(admitted, SHAPES_EACH, start):
            yield Item("w", provenance.id, dtype, shape, layout)
        start += SHAPES_EACH


def chained_items(provenance: Provenance) -> Iterator[Item]:
    """Items of every chain of two, and of some chains of three, whose layouts, dtypes and shapes take turns."""
    nearest, further = CHAINS[provenance.id]
    triples = list(itertools.product(nearest, further, further))
    chains = [*itertools.product(nearest, further), *triples[:: max(1, len(triples) // TRIPLES)]]
    admitted = [shape for shape in SHAPES if provenance.domain.admits(shape, "float32")]
    turns = zip(
        itertools.cycle(provenance.domain.dtypes),
        itertools.cycle(provenance.layouts),
        itertools.cycle(admitted),
        strict=False,
    )
    for ops, (dtype, layout, shape) in zip(chains, turns, strict=False):
        yield Item("w", provenance.id, dtype, shape, layout, ops)


def items_of(id: str) -> list[Item]:
    provenance = PROVENANCES[id]
    return list((chained_items if id in CHAINS else plain_items)(provenance))


def plans_of(id: str) -> Iterator[Plan]:
    """Plans of one item each; the lenders and grad modes take turns, so that each meets each."""
    lenders = itertools.product(LENDER_KINDS, LENDER_SIZES, OVERWRITES)
    settings = itertools.cycle(list(itertools.product(lenders, GRAD_MODES)))
    for number, (item, (lender, mode)) in enumerate(zip(items_of(id), settings, strict=False)):
        yield Plan((replace(item, seed=number),), bucket_bytes=512, lenders=(Lender(*lender),), grad_mode=mode)


def some_plans_of(id: str) -> Iterator[Plan]:
    """A few plans of every layout, for what does not depend on the dtype."""
    return itertools.islice(plans_of(id), 0, None, 7)


def hand_over(stream: Stream) -> torch.Tensor:
    """The first weight of a stream. Nothing of it is held here."""
    with MODES[stream.plan.grad_mode]():
        return next(stream.iterable())[1]


def bits(tensor: torch.Tensor) -> bytes:
    """The bits of the elements in order, as integers: to copy a bool, torch may make 1 of any other byte."""
    plain = tensor.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg()
    parts = torch.view_as_real(plain) if plain.dtype.is_complex else plain
    copied = parts.view(INTEGERS[parts.itemsize]).clone(memory_format=torch.contiguous_format)
    return bytes(copied.view(-1).view(torch.uint8).tolist())


def addresses(tensor: torch.Tensor) -> set[int]:
    """Where each element begins."""
    steps = [[stride * i for i in range(size)] for stride, size in zip(tensor.stride(), tensor.shape, strict=True)]
    start = tensor.untyped_storage().data_ptr() + tensor.storage_offset() * tensor.itemsize
    return {start + sum(place) * tensor.itemsize for place in itertools.product(*steps)}


def nbytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.itemsize


def asks_for(tensor: torch.Tensor, item: Item) -> None:
    assert tensor.shape == item.shape
    assert tensor.dtype is DTYPES[item.dtype]


def is_lent(plan: Plan) -> None:
    """Writing the lender's memory writes the tensor, wherever it came from and whatever torch knows of it."""
    stream = Stream(plan)
    tensor = hand_over(stream)
    asks_for(tensor, plan.items[0])
    lies_in_a_buffer(tensor, stream)
    is_overwritten_with(stream, tensor)
    own, whole = StorageWeakRef(tensor.untyped_storage()), watch_buffers(stream)
    del tensor
    assert whole
    assert not any(each.expired() for each in whole)
    stream.let_go()
    assert all(each.expired() for each in (own, *whole))


def lies_in_a_buffer(tensor: torch.Tensor, stream: Stream) -> None:
    if where := addresses(tensor):
        first, last = min(where), max(where) + tensor.itemsize
        assert any(start <= first and last <= end for start, end in (buffer.place for buffer in stream.buffers))


def is_overwritten_with(stream: Stream, tensor: torch.Tensor) -> None:
    before = bits(tensor)
    assert POISON not in before
    stream.finish()
    after, size = bits(tensor), tensor.itemsize
    assert len(after) == nbytes(tensor)
    assert all(before[at : at + size] != after[at : at + size] for at in range(0, len(after), size))
    if not tensor.is_conj() and not tensor.is_neg():
        assert set(after) <= {POISON}


def watch_buffers(stream: Stream) -> list[StorageWeakRef]:
    return [StorageWeakRef(buffer.raw.untyped_storage()) for buffer in stream.buffers]


def is_owned(plan: Plan) -> None:
    """The storage is the tensor's bytes, and is gone with the tensor."""
    stream = Stream(plan)
    tensor = hand_over(stream)
    asks_for(tensor, plan.items[0])
    assert tensor.untyped_storage().nbytes() == len(addresses(tensor)) * tensor.itemsize == nbytes(tensor)
    own = StorageWeakRef(tensor.untyped_storage())
    del tensor
    assert own.expired()


def is_partial(plan: Plan) -> None:
    """The storage is larger than what the tensor shows of it, and is gone with the tensor."""
    stream = Stream(plan)
    tensor = hand_over(stream)
    asks_for(tensor, plan.items[0])
    assert tensor.untyped_storage().nbytes() > len(addresses(tensor)) * tensor.itemsize
    assert not list(stream.buffers)
    own = StorageWeakRef(tensor.untyped_storage())
    del tensor
    assert own.expired()


def is_shared(plan: Plan) -> None:
    """The storage is the tensor's bytes, is never written, and outlives the tensor until the producer lets go."""
    stream = Stream(plan)
    tensor = hand_over(stream)
    asks_for(tensor, plan.items[0])
    assert tensor.untyped_storage().nbytes() == len(addresses(tensor)) * tensor.itemsize == nbytes(tensor)
    before = bits(tensor)
    stream.finish()
    assert bits(tensor) == before
    own = StorageWeakRef(tensor.untyped_storage())
    del tensor
    assert not own.expired()
    stream.let_go()
    assert own.expired()


SHOWN = {
    Custody.LENT: is_lent,
    Custody.OWNED: is_owned,
    Custody.PARTIAL: is_partial,
    Custody.SHARED: is_shared,
}


def is_another_object(plan: Plan) -> None:
    """The producer does not hold the tensor object that it hands over: nobody could tell it from an owned one."""
    stream = Stream(plan)
    tensor = hand_over(stream)
    assert tensor._cdata not in [buffer.raw._cdata for buffer in stream.buffers]
    itself = weakref.ref(tensor)
    del tensor
    assert itself() is None


def is_shown_for_all(plans: Iterator[Plan], shown: Callable[[Plan], None]) -> None:
    for plan in plans:
        try:
            shown(plan)
        except AssertionError as error:
            raise AssertionError(f"{plan!r}: {error}") from error


@pytest.mark.parametrize("id", ids())
def test_a_provenance_has_the_custody_that_it_says(id):
    is_shown_for_all(plans_of(id), SHOWN[PROVENANCES[id].custody])


@pytest.mark.parametrize("id", ids(Custody.LENT, Custody.OWNED, Custody.PARTIAL))
def test_the_producer_does_not_hold_the_object_it_hands_over(id):
    is_shown_for_all(some_plans_of(id), is_another_object)


@pytest.mark.parametrize("id", ids())
def test_every_layout_dtype_and_grad_mode_is_among_what_is_tried(id):
    provenance, tried = PROVENANCES[id], items_of(id)
    assert {item.layout for item in tried} == set(provenance.layouts)
    assert {item.dtype for item in tried} == set(provenance.domain.dtypes)
    assert {plan.grad_mode for plan in plans_of(id)} == set(GRAD_MODES)


def test_every_shape_is_among_what_is_tried():
    assert {item.shape for item in items_of("fresh")} == set(SHAPES)


def test_every_operation_of_a_chain_is_tried_in_every_place():
    for id, (nearest, further) in CHAINS.items():
        chains = {item.ops for item in items_of(id)}
        assert {ops for ops in chains if len(ops) == 2} == set(itertools.product(nearest, further))
        triples = {ops for ops in chains if len(ops) == 3}
        assert [{ops[i] for ops in triples} for i in range(3)] == [set(nearest), set(further), set(further)]


@pytest.mark.parametrize(
    ("id", "wrong"),
    [
        ("fresh", Custody.LENT),
        ("fresh", Custody.PARTIAL),
        ("fresh", Custody.SHARED),
        ("tied", Custody.OWNED),
        ("tied", Custody.PARTIAL),
        ("tied", Custody.LENT),
        ("live-parameter", Custody.OWNED),
        ("expert", Custody.OWNED),
        ("expert", Custody.SHARED),
        ("slice", Custody.OWNED),
        ("dlpack", Custody.PARTIAL),
        ("chain", Custody.OWNED),
    ],
)
def test_a_wrong_label_is_found_out(monkeypatch, id, wrong):
    monkeypatch.setitem(PROVENANCES, id, replace(PROVENANCES[id], custody=wrong))
    with pytest.raises(AssertionError):
        is_shown_for_all(plans_of(id), SHOWN[wrong])


def test_a_provenance_that_hands_over_what_it_keeps_is_found_out(monkeypatch):
    def keeps(shape: Shape, dtype: torch.dtype, memory: Memory) -> torch.Tensor:
        return memory.keep("itself", lambda: memory.take(shape, dtype))

    monkeypatch.setitem(PROVENANCES, "keeps", Provenance("keeps", Custody.LENT, keeps, ""))
    is_shown_for_all(plans_of("keeps"), is_lent_but_for_its_lifetime)
    with pytest.raises(AssertionError):
        is_shown_for_all(plans_of("keeps"), is_another_object)


def is_lent_but_for_its_lifetime(plan: Plan) -> None:
    stream = Stream(plan)
    tensor = hand_over(stream)
    lies_in_a_buffer(tensor, stream)
    is_overwritten_with(stream, tensor)


def test_an_exact_cover_is_all_of_its_buffer_whatever_the_lenders_size():
    for plan in plans_of("exact-cover"):
        stream = Stream(plan)
        tensor = hand_over(stream)
        assert tensor.untyped_storage().nbytes() == len(addresses(tensor)) * tensor.itemsize == nbytes(tensor)


@pytest.mark.parametrize("id", [each for each in ids() if each not in EXPORTED])
def test_the_suite_exports_no_memory_and_so_leaves_it_as_torch_made_it(id):
    for plan in some_plans_of(id):
        stream = Stream(plan)
        tensor = hand_over(stream)
        assert tensor.untyped_storage().resizable(), plan


def test_a_sentence_says_what_each_provenance_is():
    sentences = [each.sentence for each in PROVENANCES.values()]
    assert all(sentence.endswith(".") for sentence in sentences)
    assert len(set(sentences)) == len(sentences)
