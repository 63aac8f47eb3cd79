"""Promises are checked when they are made, decide what is judged, and are held to."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch

from bucketproof.properties import PROFILES, PROPERTIES, Cell, Promises, Target, cells, judge
from bucketproof.properties.promises import promises
from bucketproof.reference import compact
from bucketproof.reference import get_named_tensor_buckets_sync as sound
from bucketproof.reference.faults.loop import closes_its_stream
from bucketproof.reference.variants import copy_at_flush, copy_on_arrival, mapping_buckets
from bucketproof.strategies import GROUPS

SMOKE = PROFILES["smoke"]
QUICK = replace(SMOKE, examples=6)


# Promises that cannot be made.


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"retentoin": "at-flush"}, "no promise 'retentoin'; did you mean 'retention'?"),
        ({"look_ahead": 2}, "no promise 'look_ahead'; did you mean 'lookahead'?"),
        ({"x": 1}, "no promise 'x'; choose from ['retention', "),
        ({"retention": "at_flush"}, "promise retention='at_flush' is none of 'on-arrival', 'at-flush', "),
        ({"copies": "never"}, "promise copies='never' is none of 'when-needed', 'always', or None"),
        ({"bound": True}, "promise bound=True is none of 'hard', 'strict', 'soft', or None"),
        ({"oversize": "drop"}, "promise oversize='drop' is none of "),
        ({"order": "sorted"}, "promise order='sorted' is none of 'kept', or None"),
        ({"duplicates": ["error"]}, "promise duplicates=['error'] is none of 'kept', 'error', or None"),
        ({"dtype": "float33"}, "promise dtype='float33' is none of 'kept', "),
        ({"dtype": torch.bfloat16}, "promise dtype=torch.bfloat16 is none of 'kept', "),
        ({"layout": "channels-last"}, "promise layout='channels-last' is none of 'dense', 'contiguous', or None"),
        ({"lookahead": -1}, "promise lookahead=-1 is no number of items; give 0, 1, … or None"),
        ({"lookahead": 1.5}, "promise lookahead=1.5 is no number of items"),
        ({"lookahead": True}, "promise lookahead=True is no number of items"),
        ({"padding": "16"}, "promise padding='16' is no number of bytes"),
        ({"scope": "values"}, "promise scope='values' must be a tuple of some of 'aliasing', "),
        ({"scope": ("value",)}, "promise scope=('value',) must be a tuple of some of 'aliasing', "),
        ({"atomic_groups": 3}, "promise atomic_groups=3 is no tuple of groups"),
        ({"atomic_groups": [("a", "b")]}, "promise atomic_groups=[('a', 'b')] is no tuple of groups"),
        ({"atomic_groups": ("q_proj", "k_proj")}, "promise atomic_groups has 'q_proj'; a group is a tuple of two "),
        ({"atomic_groups": (("q_proj",),)}, "promise atomic_groups has ('q_proj',); a group is a tuple of two "),
        ({"atomic_groups": (("q", "q"),)}, "promise atomic_groups has ('q', 'q'); a group is a tuple of two "),
        ({"atomic_groups": (("q", ""),)}, "promise atomic_groups has ('q', ''); a group is a tuple of two "),
        ({"atomic_groups": (("q", "k"),)}, "promises lookahead=1 and atomic_groups contradict each other: "),
        ({"atomic_groups": (("q", "k", "v"),), "lookahead": 2}, "promises lookahead=2 and atomic_groups contradict"),
    ],
    ids=str,
)
def test_a_promise_that_cannot_be_made_is_an_error_of_one_line_that_names_it(given, said):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        promises(given)
    assert str(error.value).startswith(said)
    assert "\n" not in str(error.value)


def test_promises_that_are_made_can_be_told_apart_and_used_as_keys():
    made = promises({"atomic_groups": (("q", "k"),), "lookahead": 2})
    assert made == Promises(atomic_groups=(("q", "k"),), lookahead=2) != Promises()
    assert hash(made) == hash(Promises(atomic_groups=(("q", "k"),), lookahead=2))


# Promises that are not made.


CHOSEN = sorted({name for prop in PROPERTIES.values() for name in prop.needs})
NOT_MADE = {name: () if name == "atomic_groups" else None for name in CHOSEN}


def first_cell(property: str) -> Cell:
    return next(cell for cell in cells(GROUPS) if cell.property.id == property)


def test_every_promise_selects_some_property():
    assert {field.name for field in fields(Promises)} - {"scope"} == set(CHOSEN)


@pytest.mark.parametrize("promise", CHOSEN)
def test_what_rests_on_a_promise_that_is_not_made_is_unpromised_and_no_pass(promise):
    target = Target("mine", sound, Promises(**{promise: NOT_MADE[promise]}))
    for prop in PROPERTIES.values():
        if promise in prop.needs:
            outcome = judge(first_cell(prop.id), target, SMOKE, 0)
            assert (outcome.status, outcome.examples) == ("unpromised", 0)
            assert outcome.reason


@pytest.mark.parametrize("promise", [name for name in CHOSEN if name not in ("atomic_groups", "padding")])
def test_the_reason_names_the_promise(promise):
    target = Target("mine", sound, Promises(**{promise: None}))
    reasons = [judge(first_cell(p.id), target, SMOKE, 0).reason for p in PROPERTIES.values() if promise in p.needs]
    assert f"the target promises nothing of {promise}" in reasons


def test_families_out_of_scope_are_unpromised():
    target = Target("mine", sound, Promises(scope=("aliasing", "values")))
    outcome = judge(first_cell("boundaries.greedy"), target, SMOKE, 0)
    assert (outcome.status, outcome.reason) == ("unpromised", "the target answers for aliasing, values alone")


def half(tensor: torch.Tensor) -> torch.Tensor:
    return compact(tensor).to(torch.bfloat16) if tensor.dtype is torch.float32 else compact(tensor)


def casts_some(weights, limit):
    return sound(weights, limit, compaction=half)


# Promises that are made.


def refusing(limit):
    def keep(tensor):
        if tensor.nbytes > limit:
            raise ValueError("too large")
        return compact(tensor)

    return keep


def cast_to_bfloat16(weights, limit):
    return sound(weights, limit, compaction=as_bfloat16)


def as_bfloat16(tensor: torch.Tensor) -> torch.Tensor:
    # What has the dtype already stays the very object: a detached alias of it would look shared, and be copied.
    return compact(tensor if tensor.dtype is torch.bfloat16 else tensor.detach().to(torch.bfloat16))


def refuses_oversize(weights, limit):
    return sound(weights, limit, compaction=refusing(limit))


@closes_its_stream
def closes(weights, limit, *, is_full):
    """A bucketer with another bound: `is_full(used, size, limit)`, of the open bucket and the next item."""
    if not limit > 0:
        raise ValueError("limit")
    bucket, used = [], 0
    for name, tensor in weights:
        tensor = compact(tensor)
        full, bucket = (bucket, []) if bucket and is_full(used, tensor.nbytes, limit) else ([], bucket)
        used = tensor.nbytes + (0 if full else used)
        bucket.append((name, tensor))
        del name, tensor
        if full:
            yield full.copy()
        del full
    if bucket:
        yield bucket


def stays_below(weights, limit):
    return closes(weights, limit, is_full=lambda used, size, limit: used + size >= limit)


def closes_when_full(weights, limit):
    return closes(weights, limit, is_full=lambda used, size, limit: used >= limit)


def loses_duplicates(weights, limit):
    return map(dict, sound(weights, limit))


def keeps_strides(weights, limit):
    """Copies what is permuted as it is."""

    def keep(tensor):
        is_plain = tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg()
        return compact(tensor) if is_plain else tensor.detach().clone()

    return sound(weights, limit, compaction=keep)


def reversed_buckets(weights, limit):
    return map(reversed_list, sound(weights, limit))


def reversed_list(bucket):
    return bucket[::-1]


def eager(weights, limit):
    return list(sound(weights, limit))


BROKEN = [
    ({"retention": "on-arrival", "copies": "always"}, copy_at_flush, "aliasing.survives-overwrite[slice]"),
    ({"copies": "when-needed"}, copy_on_arrival, "ownership.no-copy[fresh]"),
    ({"bound": "strict"}, sound, "boundaries.limit[several]"),
    ({"bound": "hard"}, closes_when_full, "boundaries.limit[several]"),
    ({"bound": "soft"}, eager, "memory.lookahead"),
    ({"oversize": "error"}, sound, "boundaries.oversize"),
    ({"oversize": "singleton"}, refuses_oversize, "boundaries.oversize"),
    ({"order": "kept"}, reversed_buckets, "values.order[several]"),
    ({"duplicates": "kept"}, mapping_buckets, "values.duplicates"),
    ({"duplicates": "error"}, loses_duplicates, "values.duplicates"),
    ({"dtype": "bfloat16"}, sound, "values.conserved[fresh]"),
    ({"dtype": "kept"}, cast_to_bfloat16, "values.conserved[fresh]"),
    ({"layout": "contiguous"}, keeps_strides, "values.self-contained[transpose]"),
    ({"lookahead": 1}, eager, "memory.lookahead"),
    ({"lookahead": 0}, sound, "memory.lookahead"),
    ({"atomic_groups": (("q", "k"),), "lookahead": None}, sound, "boundaries.atomic-groups"),
]
KEPT = [
    ({"retention": "at-flush", "copies": "always"}, copy_at_flush),
    ({"copies": "always"}, copy_on_arrival),
    ({"bound": "strict"}, stays_below),
    ({"bound": "soft"}, closes_when_full),
    ({"oversize": "error"}, refuses_oversize),
    ({"order": None}, reversed_buckets),
    ({"duplicates": "error"}, mapping_buckets),
    ({"dtype": "bfloat16"}, cast_to_bfloat16),
    ({"layout": "dense"}, keeps_strides),
    ({"layout": "contiguous"}, sound),
    ({"lookahead": None}, eager),
]


def named(value: object) -> str:
    return getattr(value, "__name__", str(value))


@pytest.mark.parametrize(("made", "bucketer", "cell"), BROKEN, ids=named)
def test_a_promise_that_is_not_kept_is_a_failure(made, bucketer, cell):
    target = Target("mine", bucketer, promises(made))
    (judged,) = (each for each in cells() if each.id == cell)
    outcome = judge(judged, target, SMOKE, 0)
    assert outcome.status == "fail"
    assert outcome.failure.plan.startswith("Plan(")


@pytest.mark.parametrize(("made", "bucketer"), KEPT, ids=named)
def test_a_promise_that_is_kept_is_no_failure_anywhere(made, bucketer):
    assert flagged(Target("mine", bucketer, promises(made))) == set()


NOT_JUDGED = [
    ({"retention": None, "copies": "always"}, copy_at_flush),
    ({"copies": None}, copy_on_arrival),
    ({"bound": None, "oversize": None}, closes_when_full),
    ({"oversize": None}, refuses_oversize),
    ({"order": None}, reversed_buckets),
    ({"duplicates": None}, loses_duplicates),
    ({"dtype": None}, casts_some),
    ({"layout": None}, keeps_strides),
    ({"lookahead": None}, eager),
]


@pytest.mark.parametrize(("made", "bucketer"), NOT_JUDGED, ids=named)
def test_what_is_not_promised_is_held_against_a_target_nowhere(made, bucketer):
    assert flagged(Target("mine", bucketer, promises(made))) == set()


def flagged(target: Target) -> set[str]:
    judged = [cell for cell in cells() if cell.provenance in (None, "fresh", "slice", "transpose")]
    return {cell.id for cell in judged if judge(cell, target, QUICK, 0).status not in ("pass", "unpromised")}
