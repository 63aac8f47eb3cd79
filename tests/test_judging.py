"""A seed says what is drawn, and nothing else does."""

from __future__ import annotations

import pytest
from hypothesis.internal.conjecture.providers import HypothesisProvider

from bucketproof.properties import PROFILES, Promises, Target, cells, judge, limits, preflight
from bucketproof.properties.judging import drawn, without_constants
from bucketproof.reference import base_guard


def test_the_same_seed_draws_the_same_plans_each_once() -> None:
    first, again, other = (drawn("mixed", Promises(), PROFILES["smoke"], seed) for seed in (3, 3, 4))
    assert first == again != other
    assert len(set(first)) == len(first) > PROFILES["smoke"].examples // 2


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
