"""Whole models: what their manifests say, how they are handed over, and that no stream costs more than linear time."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from bucketproof.properties import PROFILES, Target, cells, execute
from bucketproof.properties.campaigns import always, drawn_for
from bucketproof.properties.judging import cheap_collections, judge, survey
from bucketproof.properties.models import MODELS, MODELS_ON_META
from bucketproof.properties.promises import DEFAULT
from bucketproof.reference import compact, get_named_tensor_buckets_sync
from bucketproof.report import explain
from bucketproof.repro import scripted
from bucketproof.strategies import (
    EXPORTERS,
    PROVENANCES,
    Item,
    Lender,
    Plan,
    Stream,
    manifest,
    manifests,
    weights,
)
from bucketproof.strategies.exporters import Weights
from bucketproof.strategies.plans import LENDER_KINDS

REFERENCE = Target("reference", get_named_tensor_buckets_sync)
NAMES = {"Plan": Plan, "Item": Item, "Lender": Lender, "weights": weights}


# What the models' makers say of them: the number of weights, and of parameters in units of 10**9.
PUBLISHED = {
    "llama": (1_137, 405.9),
    "qwen-moe": (36_945, 235.1),
    "qwen-moe-fused": (1_037, 235.1),
    "deepseek": (91_991, 684.5),
    "qwen-vl": (1_353, 73.4),
    "jamba": (2_811, 398.6),
}


@pytest.mark.parametrize("id", manifests())
def test_a_manifest_has_the_published_number_of_weights_and_parameters(id: str) -> None:
    number, billions = PUBLISHED[id]
    described = manifest(id)
    assert len(described.weights) == len({each.name for each in described.weights}) == number
    assert round(sum(parameters(each) for each in described.weights) / 1e9, 1) == billions
    assert described.sentence.endswith(".")


def parameters(weight: Any) -> int:
    return 0 if weight.name.endswith("_scale_inv") else int(torch.Size(weight.shape).numel())


def test_stacked_experts_are_the_same_bytes() -> None:
    assert manifest("qwen-moe").nbytes == manifest("qwen-moe-fused").nbytes


def test_a_quantised_weight_has_a_scale_for_each_block() -> None:
    shapes = {each.name: each.shape for each in manifest("deepseek").weights}
    scaled = [name for name in shapes if f"{name}_scale_inv" in shapes]
    assert len(scaled) == 45_808
    for name in scaled:
        assert shapes[f"{name}_scale_inv"] == tuple(-(-side // 128) for side in shapes[name])


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("id", manifests())
def test_every_exporter_hands_over_what_each_weight_can_be(id: str, exporter: str) -> None:
    items = weights(id, 0, 400, exporter=exporter, factor=512)
    assert [item.name for item in items] == [each.name for each in manifest(id).weights[:400]]
    assert all(PROVENANCES[item.provenance].domain.admits(item.shape, item.dtype) for item in items)
    assert {item.provenance for item in items} - {"fresh"} <= {provenance for _, provenance, _ in EXPORTERS[exporter]}


def test_a_part_of_a_manifest_is_code_that_makes_it_again() -> None:
    long, short = weights("llama", 5, 300, exporter="split"), weights("llama", 5, 7, factor=1024)
    assert repr(long) == "weights('llama', 5, 300, exporter='split', factor=1)"
    assert repr(short).startswith("(Item(name='model.layers.0.mlp.gate_proj.weight', provenance='full-tensor'")
    assert repr(long[50:][:120]) == "weights('llama', 55, 175, exporter='split', factor=1)"
    assert long[3:9] == weights("llama", 8, 14, exporter="split")
    for items in (long, short, long[50:]):
        plan = Plan(items, 1 << 30, device="meta")
        for text in (repr(plan), str(plan)):
            assert eval(text, {"__builtins__": {}, **NAMES}) == plan


def test_sides_are_divided_and_stay() -> None:
    small = weights("deepseek", factor=4096)
    assert max(torch.Size(item.shape).numel() for item in small) == 31
    assert {len(item.shape) for item in small} == {1, 2}
    assert all(min(item.shape) >= 1 for item in small)


# In memory, and without any.

_SLOW = ("merged", "meta")


# Arithmetic on meta loads a good part of torch's compiler, which takes seconds.
@pytest.mark.parametrize(
    ("exporter", "device"),
    [(exporter, device) for exporter in EXPORTERS for device in ("cpu", "meta") if (exporter, device) != _SLOW],
)
def test_every_exporter_builds_on_both_devices(exporter: str, device: Any) -> None:
    items = weights("deepseek", 60, 160, exporter=exporter, factor=512 if device == "cpu" else 1)
    for kind in LENDER_KINDS:
        plan = Plan(items, 1 << 62, lenders=(Lender(kind, "larger"),), grad_mode="no_grad", device=device)
        with torch.no_grad():
            handed_over = [(name, tensor.device.type, tuple(tensor.shape)) for name, tensor in Stream(plan).iterable()]
        assert handed_over == [(item.name, device, item.shape) for item in items]


@pytest.mark.parametrize("campaign", [*MODELS, "llama-on-meta", "qwen-moe-fused-on-meta"])
def test_the_reference_holds_for_models(campaign: str) -> None:
    judged = [cell for cell in cells(["manifests"]) if cell.campaign == campaign]
    found = survey(REFERENCE, judged, always(campaign, DEFAULT))
    assert len(judged) == (9 if campaign in MODELS_ON_META else 17)
    assert found.broken == {}
    assert found.examples == (1 if campaign in MODELS_ON_META else 2)


def test_a_model_of_a_hundred_thousand_weights_is_looked_at_whole() -> None:
    (plan,) = always("deepseek-on-meta", DEFAULT)
    assert (len(plan.items), sum(item.nbytes for item in plan.items)) == (91_991, 688_574_839_360)
    assert plan.device == "meta"
    assert plan.bucket_bytes > 1 << 32


def test_without_the_group_there_is_no_model() -> None:
    plain = {cell.campaign for cell in cells()}
    assert not plain & {*MODELS, *MODELS_ON_META}
    assert {*MODELS, *MODELS_ON_META} <= {cell.campaign for cell in cells(["manifests"])}


def test_what_is_drawn_of_a_model_begins_with_its_first_weight() -> None:
    drawn: list[Plan] = []
    from hypothesis import HealthCheck, given, settings
    from hypothesis import strategies as st

    @settings(max_examples=30, database=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
    @given(st.data())
    def look(data: st.DataObject) -> None:
        drawn.append(data.draw(drawn_for("jamba", DEFAULT)))

    look()
    assert drawn[0].items == weights("jamba", 0, 1, factor=512)
    assert len({len(plan.items) for plan in drawn}) > 3
    assert all(isinstance(plan.items, Weights) for plan in drawn)


# Faults that only models show.

Fits = Callable[[int, int, float, int], bool]


def cut_by(fits: Fits) -> Target:
    """A sound bucketer but for where it cuts: by what is in the bucket, the item's bytes, the limit, and its items."""

    def buckets(weights: Any, limit: float) -> Iterator[Any]:
        if not limit > 0:
            raise ValueError("no room")
        bucket: list[Any] = []
        used = 0
        for name, tensor in weights:
            tensor = compact(tensor)
            if bucket and not fits(used, tensor.nbytes, limit, len(bucket)):
                yield bucket
                bucket, used = [], 0
            bucket.append((name, tensor))
            used += tensor.nbytes
            del name, tensor
        if bucket:
            yield bucket

    return Target("cuts-wrongly", buckets)


FAULTS: dict[str, tuple[Target, str]] = {
    "counts in 32 bits": (
        cut_by(lambda used, nbytes, limit, items: ctypes.c_int32(used + nbytes).value <= limit),
        "boundaries.greedy[llama-on-meta]",
    ),
    "cuts after 1024 items": (
        cut_by(lambda used, nbytes, limit, items: used + nbytes <= limit and items < 1024),
        "boundaries.greedy[jamba]",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_plain_cells_do_not_see_fails_a_model(fault: str) -> None:
    target, caught_by = FAULTS[fault]
    by_id = {cell.id: cell for cell in cells(["manifests"])}
    outcome = judge(by_id[caught_by], target, PROFILES["smoke"], 0, shrink=False)
    assert outcome.status == "fail"
    plain = [cell for cell in by_id.values() if cell.property.id.startswith("boundaries.greedy") and not cell.groups]
    assert {judge(cell, target, PROFILES["smoke"], 0).status for cell in plain} == {"pass"}


def test_the_smallest_plan_of_a_counter_of_32_bits_is_a_few_weights_and_has_no_script() -> None:
    target, caught_by = FAULTS["counts in 32 bits"]
    cell = next(each for each in cells(["manifests"]) if each.id == caught_by)
    outcome = scripted(judge(cell, target, PROFILES["smoke"], 0), target, "")
    assert outcome.failure is not None
    assert len(outcome.failure.items) <= 16
    assert outcome.failure.script == ""
    said = (
        "There is no script for it: its weights are on the meta device, and in memory they may be more than there is."
    )
    assert said in " ".join(" ".join(explain(outcome)).split())


def test_a_failure_that_takes_thousands_of_items_is_told_in_a_page() -> None:
    target, caught_by = FAULTS["cuts after 1024 items"]
    cell = next(each for each in cells(["manifests"]) if each.id == caught_by)
    failure = judge(cell, target, PROFILES["smoke"], 0, shrink=False).failure
    assert failure is not None
    assert failure.what == (
        "'model.layers.26.mamba.dt_proj.bias': it is not where first-fit in stream order has it: "
        "here are items 0 to 1023 in bucket 0, and there 0 to 1999 in bucket 0"
    )
    assert "items=weights('jamba', 0, 2000, exporter='unfused', factor=512)," in failure.plan
    assert failure.items[-1] == "… 1900 more items"
    assert len(failure.steps) < 300
    assert sum(step.text == "…" for step in failure.steps) == 2, "before the item that it is about, and after it"


def test_a_long_failure_that_is_about_an_item_tells_what_became_of_it() -> None:
    items = tuple(Item(f"w{i}", "fresh", seed=i) for i in range(1500))
    items = (*items[:700], replace(items[700], provenance="exact-cover"), *items[701:])

    def keeps_all(weights: Any, limit: float) -> Iterator[Any]:
        return get_named_tensor_buckets_sync(weights, limit, compaction=lambda tensor: tensor)

    from bucketproof.properties.story import steps

    told = steps(execute(Target("keeps-all", keeps_all), Plan(items, 40)), 700, "its bits were others")
    assert [step.text for step in told if step.wrong and "w700" in step.text]
    assert any(step.text.startswith("produced 'w700'") for step in told)
    assert len(told) < 400


def test_a_target_that_reads_what_it_is_given_is_not_judged_on_meta() -> None:
    def reads(weights: Any, limit: float) -> Iterator[Any]:
        for name, tensor in weights:
            assert tensor.tolist() is not None
            yield [(name, compact(tensor))]

    cell = next(each for each in cells(["manifests"]) if each.id == "values.order[llama-on-meta]")
    outcome = judge(cell, Target("reads", reads), PROFILES["smoke"], 0)
    assert outcome.status == "skipped"
    assert outcome.reason.startswith("the target takes no tensor on the meta device: NotImplementedError: ")
    assert "\n" not in outcome.reason


# Linear time: not by the clock, but by what is called.

STREAMS: dict[str, dict[str, Any]] = {
    "many buckets": {"provenances": ("fresh", "slice", "detach")},
    "one bucket": {"provenances": ("fresh", "slice"), "room": 1 << 30},
    "a lender with a buffer for each item": {"provenances": ("slice", "detach"), "lenders": (Lender("module"),)},
    "lenders that write at the end": {"provenances": ("detach",), "lenders": (Lender(overwrite="end"),)},
    "lenders that write at boundaries": {
        "provenances": ("detach",),
        "lenders": (Lender("ring", overwrite="boundary"),),
    },
    "what is shared": {"provenances": ("state_dict", "tied")},
    "held buckets": {"provenances": ("slice",), "consumer": "hold"},
}


@pytest.mark.parametrize("kind", STREAMS)
def test_a_stream_of_four_times_the_items_takes_four_times_the_calls(kind: str) -> None:
    few, many = (calls(stream_of(count, **STREAMS[kind])) for count in (250, 1000))
    assert many < 4.3 * few


@pytest.mark.parametrize("kind", ["many buckets", "one bucket"])
def test_a_target_that_copies_everything_takes_linear_time_too(kind: str) -> None:
    def copies(weights: Any, limit: float) -> Iterator[Any]:
        return get_named_tensor_buckets_sync(weights, limit, compaction=torch.Tensor.clone)

    few, many = (calls(stream_of(count, **STREAMS[kind]), Target("copies", copies)) for count in (250, 1000))
    assert many < 4.6 * few


def stream_of(
    count: int, *, provenances: tuple[str, ...], room: int = 400, consumer: Any = "drop", **options: Any
) -> Plan:
    items = (Item(f"w{i}", provenances[i % len(provenances)], shape=(1 + i % 4, 2), seed=i) for i in range(count))
    return Plan(tuple(items), room, consumer=consumer, **options)


def calls(plan: Plan, target: Target = REFERENCE) -> int:
    """How many functions are called to run a plan and judge the run, those of C too."""
    judged = [cell for cell in cells(["manifests"]) if cell.campaign == "llama"]
    judged = [cell for cell in judged if cell.property.id != "boundaries.rank-agreement"]  # it runs others
    number = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal number
        number += event in ("call", "c_call")

    with cheap_collections():
        sys.setprofile(count)
        try:
            run = execute(target, plan)
            for cell in judged:
                cell.problems(run)
        finally:
            sys.setprofile(None)
    return number
