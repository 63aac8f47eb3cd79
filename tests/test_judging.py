"""A seed says what is drawn, and nothing else does."""

from __future__ import annotations

import gc
import itertools
import runpy
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import Phase
from hypothesis.internal.conjecture.providers import HypothesisProvider

from bucketproof.properties import PROFILES, Promises, Target, cells, judge, judging, limits, preflight
from bucketproof.properties.judging import cheap_collections, drawn, explore, without_constants
from bucketproof.reference import base_guard
from bucketproof.strategies import Plan
from bucketproof.targets import resolve


def test_the_same_seed_draws_the_same_plans_each_once() -> None:
    first, again, other = (drawn("mixed", Promises(), PROFILES["smoke"], seed) for seed in (3, 3, 4))
    assert first == again != other
    assert len(set(first)) == len(first) > PROFILES["smoke"].examples // 2


SOUNDNESS = runpy.run_path(str(Path(__file__).parent / "benchmarks" / "soundness.py"))


@pytest.mark.parametrize("name", SOUNDNESS["VARIANTS"])
def test_what_the_sound_variants_share_is_what_is_drawn_for_each(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    promises, profile = resolve(name).promises, replace(PROFILES["smoke"], examples=3)
    cell = next(cell for cell in cells() if not cell.unpromised(promises))
    shared = SOUNDNESS["shared"](drawn)
    monkeypatch.setattr(judging, "drawn", shared)

    assert judge(cell, resolve(name), profile, seed=5).status == "pass"
    for campaign in {cell.campaign for cell in cells() if not cell.unpromised(promises)}:
        assert shared(campaign, promises, profile, 5) == drawn(campaign, promises, profile, 5), campaign


def test_what_a_search_has_left_is_not_kept_by_the_next() -> None:
    """Else a night of searches needs gigabytes."""
    with cheap_collections():
        cycle = Cycle()
        cycle.itself = cycle
        left = weakref.ref(cycle)
        del cycle
    with cheap_collections():
        assert left() is None


def test_a_search_keeps_nothing_of_what_it_has_called() -> None:
    def looked() -> weakref.ref[Any]:
        def look(plan: Plan) -> None:
            seen.append(len(plan.items))

        explore(look, "mixed", Promises(), replace(PROFILES["smoke"], examples=5), 0, "key", Phase.generate)
        return weakref.ref(look)

    seen: list[int] = []
    gc.disable()
    try:
        assert looked()() is None
    finally:
        gc.enable()
    assert seen


class Cycle:
    """What only the garbage collector can let go of."""

    itself: Cycle


def test_no_number_from_the_source_of_local_modules_is_drawn() -> None:
    """Which modules are local depends on how the suite is installed, and a verdict must not."""
    before = HypothesisProvider._maybe_draw_constant
    with without_constants():
        assert HypothesisProvider._maybe_draw_constant(None, "integer", {}) is None  # type: ignore[arg-type]
    assert HypothesisProvider._maybe_draw_constant is before


def test_a_failing_cell_has_the_same_smallest_plan_each_time() -> None:
    cell = next(cell for cell in cells() if cell.id == "aliasing.survives-overwrite[detach]")
    first, second = (judge(cell, Target("base-guard", base_guard), PROFILES["smoke"], 0) for _ in range(2))

    assert first.failure is not None
    assert first.failure == second.failure
    assert len(first.failure.plan.split("Item(")) == 2, "one item is enough to show it"


def test_what_depends_on_the_content_is_not_blamed_on_an_earlier_sync() -> None:
    """A weight that is altered in one sync and not in the next is altered by what it holds."""

    def clears_a_bit(weights: Any, bucket_bytes: float) -> Iterator[Any]:
        for name, tensor in weights:
            copy = tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
            copy.view(-1).view(torch.uint8)[:1] &= 0x7F
            yield [(name, copy)]

    found = {cell.id: cell for cell in cells()}
    target = Target("clears-a-bit", clears_a_bit)
    assert judge(found["values.conserved[fresh]"], target, PROFILES["smoke"], 0).status == "fail"
    assert judge(found["lifecycle.reusable"], target, PROFILES["smoke"], 0).status == "pass"


def test_an_error_that_comes_anyway_is_not_blamed_on_a_cleared_bucket() -> None:
    """Of several threads that fail, another one may be the first each time."""
    number = itertools.count()

    def raises(weights: Any, bucket_bytes: float) -> Iterator[Any]:
        yield [next(iter(weights))]
        raise ArithmeticError(f"number {next(number)}")

    found = {cell.id: cell for cell in cells()}
    target = Target("raises", raises)
    assert judge(found["values.conserved[fresh]"], target, PROFILES["smoke"], 0).status == "fail"
    assert judge(found["lifecycle.bucket-is-the-consumers[cleared]"], target, PROFILES["smoke"], 0).status == "pass"


def test_a_target_that_hangs_fails_smoke_and_is_not_judged_further(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each of a hundred campaigns would wait for the end of its time."""
    monkeypatch.setattr(limits, "SECONDS", 0.2)

    def hangs(weights: object, bucket_bytes: float) -> object:
        while True:
            pass

    outcome = preflight(Target("hangs", hangs))

    assert outcome is not None
    assert outcome.status == "fail"
    assert outcome.failure is not None
    assert "did not end in time" in outcome.failure.what


def test_a_cell_whose_runs_hang_has_no_verdict_and_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not seen to the end was not judged."""
    monkeypatch.setattr(limits, "SECONDS", 0.2)

    def hangs(weights: object, bucket_bytes: float) -> object:
        while True:
            pass

    cell = next(cell for cell in cells() if cell.id == "values.order")

    assert judge(cell, Target("hangs", hangs), PROFILES["smoke"], 0).status == "error"
