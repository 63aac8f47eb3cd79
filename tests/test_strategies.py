"""What the strategies reach, refuse and leave alone."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from functools import cache

import pytest
import torch
from hypothesis import HealthCheck, Phase, find, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from bucketproof.properties.judging import without_constants
from bucketproof.strategies import (
    CHAINS,
    DTYPES,
    LAYOUTS,
    PROVENANCES,
    UNIQUE_NAMES,
    Custody,
    Item,
    Lender,
    Plan,
    Stream,
    budgets,
    dtypes,
    items,
    lenders,
    name_of,
    names,
    plans,
    shapes,
)
from bucketproof.strategies.draw import MAX_ELEMENTS
from bucketproof.strategies.plans import (
    CONSUMERS,
    GRAD_MODES,
    ITERABLES,
    LENDER_KINDS,
    LENDER_SIZES,
    OVERWRITES,
)

SEEDS, EXAMPLES = 4, 300
"""So many times so many plans are drawn, once for all that should be reached: what is not among them is too rare."""
LENDERS = [Lender(*parts) for parts in itertools.product(LENDER_KINDS, LENDER_SIZES, OVERWRITES)]
REPEATABLE = settings(
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def drawn_from(strategy: st.SearchStrategy, examples: int = 100, with_seed: int = 0) -> list:
    """What a strategy draws, the same for the same seed."""
    seen = []

    @seed(with_seed)
    @settings(REPEATABLE, max_examples=examples)
    @given(strategy)
    def see(value):
        seen.append(value)

    with without_constants():
        see()
    return seen


@cache
def survey() -> tuple[Plan, ...]:
    return tuple(plan for number in range(SEEDS) for plan in drawn_from(plans(), EXAMPLES, number))


def find_any(holds: Callable[[Plan], bool]) -> Plan:
    """A plan that was drawn by default and for which something holds."""
    found = next((plan for plan in survey() if holds(plan)), None)
    assert found is not None, f"none of {SEEDS * EXAMPLES} plans"
    return found


def find_any_item(holds: Callable[[Item], bool]) -> Plan:
    return find_any(lambda plan: any(holds(item) for item in plan.items))


def runs(plan: Plan, *, of: int = 2) -> set[int]:
    """Sums in bytes of so many neighbouring items or more, where all of them have some."""
    sizes = [item.nbytes for item in plan.items]
    pieces = (sizes[i:j] for i, j in itertools.combinations(range(len(sizes) + 1), 2) if j - i >= of)
    return {sum(piece) for piece in pieces if all(piece)}


def prefixes(plan: Plan) -> list[int]:
    return list(itertools.accumulate(item.nbytes for item in plan.items))


def borrowed(plan: Plan) -> list[Lender]:
    """The lenders that somebody borrows from."""
    indices = {item.lender for item in plan.items if custody(item) is Custody.LENT}
    return [plan.lenders[index] for index in sorted(indices)]


def custody(item: Item) -> Custody:
    return PROVENANCES[item.provenance].custody


def built(plan: Plan) -> Iterator[torch.Tensor]:
    yield from (tensor for _, tensor in Stream(plan).iterable())


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_dtype_is_reached(dtype):
    find_any_item(lambda item: item.dtype == dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_layout_is_reached(layout):
    find_any_item(lambda item: item.layout == layout)


@pytest.mark.parametrize("provenance", [id for id, each in PROVENANCES.items() if not each.group])
def test_each_provenance_is_reached(provenance):
    find_any_item(lambda item: item.provenance == provenance)


@pytest.mark.parametrize("provenance", [id for id, each in PROVENANCES.items() if each.group])
def test_a_provenance_of_a_group_is_reached_where_it_is_asked_for(provenance):
    drawn = drawn_from(plans(provenances=[provenance], min_items=1), 5, 0)

    assert {item.provenance for plan in drawn for item in plan.items} == {provenance}
    assert not any(item.provenance == provenance for plan in survey() for item in plan.items)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("kind", kind) for kind in LENDER_KINDS),
        *(("size", size) for size in LENDER_SIZES),
        *(("overwrite", schedule) for schedule in OVERWRITES),
    ],
)
def test_each_kind_size_and_schedule_of_lenders_is_reached_by_somebody_who_borrows(field, value):
    find_any(lambda plan: any(getattr(lender, field) == value for lender in borrowed(plan)))


@pytest.mark.parametrize("dimensions", range(7))
def test_each_number_of_dimensions_is_reached(dimensions):
    find_any_item(lambda item: len(item.shape) == dimensions)


@pytest.mark.parametrize("size", range(9))
def test_each_number_of_items_is_reached(size):
    find_any(lambda plan: len(plan.items) == size)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("grad_mode", mode) for mode in GRAD_MODES),
        *(("iterable", kind) for kind in ITERABLES),
        *(("consumer", consumer) for consumer in CONSUMERS),
    ],
)
def test_each_way_to_run_is_reached(field, value):
    find_any(lambda plan: bool(plan.items) and getattr(plan, field) == value)


@pytest.mark.parametrize("chain", CHAINS)
def test_each_kind_of_chain_is_reached_in_both_lengths(chain):
    assert {len(item.ops) for item in drawn_from(items(provenances=[chain]))} == {2, 3}


@pytest.mark.parametrize(
    "holds",
    [
        pytest.param(lambda item: 0 in item.shape, id="no element"),
        pytest.param(lambda item: 0 in item.shape and item.shape[0] > 0, id="no element, but some rows"),
        pytest.param(lambda item: item.nbytes >= 256, id="many bytes"),
        pytest.param(lambda item: custody(item) is Custody.LENT and item.shape == (), id="no dimension and lent"),
        pytest.param(lambda item: custody(item) is Custody.LENT and 0 in item.shape, id="nothing, and lent"),
        pytest.param(lambda item: item.layout == "odd-strides" and item.shape[-1] == 1, id="odd strides"),
    ],
)
def test_each_extreme_of_an_item_is_reached(holds):
    find_any_item(holds)


@pytest.mark.parametrize(
    "holds",
    [
        pytest.param(lambda plan: plan.bucket_bytes in runs(plan), id="a run to the byte"),
        pytest.param(lambda plan: plan.bucket_bytes in runs(plan, of=3), id="a run of three to the byte"),
        pytest.param(lambda plan: plan.bucket_bytes in prefixes(plan)[1:-1], id="the first few to the byte"),
        pytest.param(lambda plan: plan.bucket_bytes in prefixes(plan)[1:][-1:], id="all to the byte"),
        pytest.param(lambda plan: plan.bucket_bytes + 1 in runs(plan), id="a byte too few"),
        pytest.param(lambda plan: plan.bucket_bytes - 1 in runs(plan), id="a byte to spare"),
        pytest.param(
            lambda plan: any(plan.bucket_bytes == item.nbytes for item in plan.items), id="one item to the byte"
        ),
        pytest.param(
            lambda plan: len(plan.items) > 1 and plan.bucket_bytes == max(i.nbytes for i in plan.items),
            id="the largest to the byte",
        ),
        pytest.param(
            lambda plan: len(plan.items) > 1 and plan.bucket_bytes < min(i.nbytes or 16 for i in plan.items),
            id="below the smallest",
        ),
        pytest.param(lambda plan: plan.bucket_bytes == 1 and plan.items, id="one byte"),
        pytest.param(lambda plan: plan.bucket_bytes == 1 << 30 and plan.items, id="huge"),
        pytest.param(lambda plan: plan.bucket_bytes == 0.5 * 2**20 and plan.items, id="half a MiB, as a float"),
        pytest.param(lambda plan: plan.bucket_bytes % 1 == 0.5, id="no whole number of bytes"),
    ],
)
def test_each_limit_that_matters_is_reached(holds):
    find_any(holds)


@pytest.mark.parametrize(
    "holds",
    [
        pytest.param(lambda plan: len(borrowed(plan)) == 2, id="two lenders"),
        pytest.param(lambda plan: len(plan.lenders) == 1 and sum(map(lent, plan.items)) > 1, id="one for several"),
        pytest.param(lambda plan: {custody(item) for item in plan.items} == set(Custody), id="every custody"),
        pytest.param(
            lambda plan: any(lender.size == "bucket" and plan.bucket_bytes <= 4096 for lender in borrowed(plan)),
            id="a lender of the bucket's size",
        ),
        pytest.param(lambda plan: "" in [item.name for item in plan.items], id="an empty name"),
        pytest.param(lambda plan: "<script>" in [item.name for item in plan.items], id="markup as a name"),
        pytest.param(lambda plan: any(not item.name.isascii() for item in plan.items), id="a Unicode name"),
        pytest.param(lambda plan: any("experts" in item.name for item in plan.items), id="a realistic name"),
    ],
)
def test_each_kind_of_plan_is_reached(holds):
    find_any(holds)


def lent(item: Item) -> bool:
    return custody(item) is Custody.LENT


def test_names_twice_are_reached_when_asked_for():
    assert any(len({i.name for i in p.items}) < len(p.items) for p in drawn_from(plans(name_kinds=["duplicates"])))


def test_one_weight_under_two_names_is_reached():
    drawn = drawn_from(plans(provenances=["tied"], min_items=2))
    assert any(len({(item.shape, item.dtype) for item in plan.items}) == 1 for plan in drawn)


def test_every_plan_is_drawn_as_its_docstring_says():
    for plan in survey():
        assert len(plan.items) <= 8
        assert len({item.name for item in plan.items}) == len(plan.items)
        assert [item.seed for item in plan.items] == list(range(len(plan.items)))
        assert all(item.lender < len(plan.lenders) for item in plan.items)
        assert plan.bucket_bytes > 0
        assert all(admitted(item) for item in plan.items)


def admitted(item: Item) -> bool:
    provenance, layout = PROVENANCES[item.provenance], LAYOUTS[item.layout]
    return (
        item.layout in provenance.layouts
        and provenance.domain.admits(item.shape, item.dtype)
        and layout.domain.admits(item.shape, item.dtype)
        and bool(item.ops) == (item.provenance in CHAINS)
    )


def test_every_plan_can_be_built():
    for plan in survey():
        tensors = list(built(plan))
        assert [tuple(tensor.shape) for tensor in tensors] == [item.shape for item in plan.items]
        assert [tensor.dtype for tensor in tensors] == [DTYPES[item.dtype] for item in plan.items]


def test_odd_strides_are_contiguous_to_torch_and_yet_not_to_be_viewed_as_bytes():
    (tensor,) = built(Plan((Item("w", "detach", shape=(3, 1), layout="odd-strides"),), 1 << 10))
    assert tensor.is_contiguous()
    with pytest.raises(RuntimeError):
        tensor.view(torch.uint8)


@pytest.mark.parametrize("layout", [each for each in LAYOUTS if each != "contiguous"])
def test_each_layout_looks_as_it_is_called(layout):
    dtype = "complex64" if layout == "conjugated" else "float32"
    (tensor,) = built(Plan((Item("w", "detach", dtype, (2, 3, 2), layout),), 1 << 10))
    looks = {
        "offset": tensor.is_contiguous() and tensor.storage_offset() > 0,
        "permuted": tensor.stride() == (1, 2, 6),
        "channels-last": tensor.stride() == (6, 1, 3),
        "reinterpreted": tensor.is_contiguous() and tensor.storage_offset() == 0,
        "stepped": tensor.stride()[-1] == 2,
        "odd-strides": tensor.is_contiguous(),
        "expanded": tensor.stride()[0] == 0,
        "overlapping": tensor.stride()[-2:] == (1, 1),
        "diagonal": tensor.stride()[-1] == 3,
        "conjugated": tensor.is_conj(),
        "negated": tensor.is_neg(),
    }
    assert looks[layout]


def test_items_are_of_the_provenances_asked_for():
    assert {item.provenance for item in drawn_from(items(provenances=["dlpack", "fresh"]))} == {"dlpack", "fresh"}
    drawn = drawn_from(plans(provenances={"dlpack", "fresh"}))
    assert {item.provenance for plan in drawn for item in plan.items} == {"dlpack", "fresh"}


def test_plans_are_what_was_asked_for():
    drawn = drawn_from(
        plans(
            min_items=2,
            max_items=3,
            limits=lambda items: st.just(len(items)),
            name_kinds=["terse"],
            iterables=["list"],
            grad_modes=["no_grad"],
        )
    )
    assert {len(plan.items) for plan in drawn} == {2, 3}
    for plan in drawn:
        assert plan.bucket_bytes == len(plan.items)
        assert [item.name for item in plan.items] == ["a", "b", "c"][: len(plan.items)]
        assert (plan.iterable, plan.grad_mode) == ("list", "no_grad")


def test_shapes_have_the_dimensions_and_elements_asked_for():
    every = drawn_from(shapes(), 1000)
    assert {len(shape) for shape in every} == set(range(7))
    assert any(0 in shape for shape in every)
    assert max(torch.Size(shape).numel() for shape in every) == MAX_ELEMENTS
    some = drawn_from(shapes(min_dims=3, empty=False), 1000)
    assert {len(shape) for shape in some} == {3, 4, 5, 6}
    assert not any(0 in shape for shape in some)


def test_lenders_are_of_every_kind_size_and_schedule():
    assert set(drawn_from(lenders(), 1000)) == set(LENDERS)


def test_limits_are_the_sums_that_matter_and_those_beside_them():
    sizes = (4, 12, 20)
    drawn = set(drawn_from(budgets([Item("w", "fresh", shape=(size // 4,)) for size in sizes]), 1000))
    sums = {4, 12, 20, 16, 32, 36}
    beside = {each + off for each in sums for off in (1, -1, 0.5, -0.5)}
    assert drawn == {*sums, *beside, 1, 1 << 30, 0.5 * 2**20, 1 << 31, (1 << 32) + 1}


@pytest.mark.parametrize("sizes", [(), (0,), (0, 0)])
def test_limits_of_nothing_are_limits_too(sizes):
    drawn = drawn_from(budgets([Item("w", "fresh", shape=(size,)) for size in sizes]))
    assert min(drawn) == 1


@pytest.mark.parametrize("kind", UNIQUE_NAMES)
def test_no_name_occurs_twice_in_a_stream_of_any_length(kind):
    assert len({name_of(kind, index) for index in range(300)}) == 300


def smallest(strategy: st.SearchStrategy) -> object:
    """What a strategy shrinks towards."""
    thorough = settings(REPEATABLE, derandomize=True, phases=[Phase.generate, Phase.shrink])
    return find(strategy, lambda value: True, settings=thorough)


@pytest.mark.parametrize(
    ("strategy", "simplest"),
    [
        (dtypes(), "float32"),
        (shapes(), (1,)),
        (shapes(min_dims=2), (1, 1)),
        (lenders(), Lender("buffer", "exact", "next")),
        (items(), Item("", "fresh", "float32", (1,), "contiguous")),
        (items(provenances=["slice", "detach"]), Item("", "slice")),
        (budgets([Item("w", "fresh")]), 1 << 30),
        (names(), "realistic"),
        (names(kinds=["odd", "terse"]), "odd"),
        (plans(), Plan((), 1 << 30)),
        (plans(min_items=1), Plan((Item("layers.0.weight", "fresh"),), 1 << 30)),
        (plans(provenances=["fresh"]), Plan((), 1 << 30)),
    ],
)
def test_each_strategy_shrinks_towards_what_its_docstring_says(strategy, simplest):
    assert smallest(strategy) == simplest


@pytest.mark.parametrize(("wanted", "simplest"), [(Custody.LENT, "exact-cover"), (Custody.SHARED, "state_dict")])
@pytest.mark.parametrize("with_seed", range(12))
def test_items_shrink_towards_the_first_of_their_custody_past_all_that_have_another(wanted, simplest, with_seed):
    thorough = settings(REPEATABLE, phases=[Phase.generate, Phase.shrink])
    found = find(items(), lambda item: custody(item) is wanted, settings=thorough, random=random.Random(with_seed))
    assert found == Item("", simplest)


@pytest.mark.parametrize(
    ("argument", "make"),
    [
        ("provenances", lambda: items(provenances=["nonesuch"])),
        ("provenances", lambda: items(provenances=[])),
        ("provenances", lambda: items(provenances="fresh")),
        ("provenances", lambda: plans(provenances=["fresh", "nonesuch"])),
        ("provenances", lambda: plans(provenances=())),
        ("provenances", lambda: plans(provenances="fresh")),
        ("min_items", lambda: plans(min_items=-1)),
        ("min_items", lambda: plans(min_items=9)),
        ("max_items", lambda: plans(max_items=-1)),
        ("max_items", lambda: plans(min_items=3, max_items=2)),
        ("name_kinds", lambda: plans(name_kinds=[])),
        ("name_kinds", lambda: plans(name_kinds=["nonesuch"])),
        ("name_kinds", lambda: plans(name_kinds="odd")),
        ("iterables", lambda: plans(iterables=[])),
        ("iterables", lambda: plans(iterables=["set"])),
        ("iterables", lambda: plans(iterables="list")),
        ("grad_modes", lambda: plans(grad_modes=[])),
        ("grad_modes", lambda: plans(grad_modes=["enabled", "disabled"])),
        ("grad_modes", lambda: plans(grad_modes="enabled")),
        ("kinds", lambda: names(kinds=[])),
        ("kinds", lambda: names(kinds=["nonesuch"])),
        ("kinds", lambda: names(kinds="odd")),
        ("min_dims", lambda: shapes(min_dims=-1)),
        ("min_dims", lambda: shapes(min_dims=7)),
        ("min_dims", lambda: shapes(min_dims=1.5)),
    ],
)
def test_an_argument_that_makes_no_sense_is_named(argument, make):
    with pytest.raises(InvalidArgument, match=rf"\b{argument}="):
        make()


def test_torchs_random_state_is_left_alone():
    before = torch.get_rng_state()
    for plan in drawn_from(plans(), 50):
        assert all(tensor is not None for tensor in built(plan))
    assert torch.equal(torch.get_rng_state(), before)
