"""What the pages on oracles and limits say that an oracle, or the suite, does not see: wrong bucketers show it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from bucketproof.properties import PROPERTIES, Run, Target, cells, execute
from bucketproof.properties.judging import drawn
from bucketproof.properties.profiles import PROFILES
from bucketproof.properties.promises import DEFAULT
from bucketproof.reference import copy_at_flush, get_named_tensor_buckets_sync
from bucketproof.strategies import Item, Lender, Plan

ITEMS = tuple(Item(f"w{i}", "fresh", shape=(4,), seed=i) for i in range(4))
OWNED = Plan(ITEMS, bucket_bytes=32, consumer="drop")
LENT = Plan(tuple(Item(f"w{i}", "slice", shape=(4,), seed=i) for i in range(4)), bucket_bytes=32)


def compacting(compaction: Callable[[torch.Tensor], torch.Tensor]) -> Target:
    """A sound bucketer around a compaction."""
    return Target("mine", lambda weights, limit: get_named_tensor_buckets_sync(weights, limit, compaction=compaction))


def broken(run: Run) -> set[str]:
    """The properties that a run has broken, of those that are judged on any run."""
    return {each.id for each in PROPERTIES.values() if each.id in _OF_A_RUN and list(each.judge(run))}


_OF_A_RUN = {name for name in PROPERTIES if name.partition(".")[0] in ("aliasing", "ownership", "values", "memory")} - {
    "memory.steady"
}


def test_bits_do_not_show_a_needless_copy_which_the_ledger_and_addresses_do() -> None:
    run = execute(compacting(torch.clone), OWNED)

    assert broken(run) == {"ownership.no-copy", "memory.peak"}
    assert len(run.copies) == len(ITEMS)


def test_bits_do_not_show_memory_that_is_held_for_nothing_which_lifetimes_do() -> None:
    held = Plan(tuple(Item(f"w{i}", "expert", shape=(4,), seed=i) for i in range(4)), bucket_bytes=32)

    run = execute(compacting(torch.detach), held)

    assert broken(run) == {"aliasing.no-pinned-storage"}
    assert run.pinned or any(each.facts.storage.nbytes > each.facts.nbytes for each in run.delivered)


def test_addresses_do_not_show_a_copy_that_came_too_late_which_bits_do() -> None:
    run = execute(Target("mine", copy_at_flush), LENT)

    assert "aliasing.survives-overwrite" in broken(run)
    assert "aliasing.no-lent-memory" not in broken(run)


def test_bits_do_not_show_lent_memory_that_nobody_has_written_to_yet_which_addresses_do() -> None:
    # The bucket is dropped by its consumer before the lender writes again, so nobody reads what would be wrong.
    late = Plan(LENT.items, bucket_bytes=32, lenders=(Lender("module", overwrite="end"),), consumer="drop")

    run = execute(compacting(torch.detach), late)

    assert "aliasing.survives-overwrite" not in broken(run)
    assert "aliasing.no-lent-memory" in broken(run)


def through_numpy(tensor: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(tensor.detach().numpy().copy())


def test_the_ledger_does_not_show_what_numpy_allocates_of_which_addresses_show_the_copy() -> None:
    run = execute(compacting(through_numpy), OWNED)

    assert run.copies == []
    assert run.peaks == []
    assert broken(run) == {"ownership.no-copy"}


def test_lifetimes_do_not_show_a_copy_that_was_let_go_of_in_time_which_the_ledger_does() -> None:
    def copies_and_drops(tensor: torch.Tensor) -> torch.Tensor:
        tensor.clone()
        return tensor.detach()

    run = execute(compacting(copies_and_drops), OWNED)

    assert not run.stale
    assert not run.pinned
    assert broken(run) == {"ownership.no-copy"}


def test_whoever_hands_over_all_buckets_at_the_end_shows_not_what_it_keeps() -> None:
    collected = Target("mine", lambda weights, limit: list(get_named_tensor_buckets_sync(weights, limit)))

    assert "memory.released-after-flush" not in broken(execute(collected, OWNED))
    assert "memory.lookahead" in broken(execute(collected, OWNED))


def above(nbytes: int) -> Target:
    """Keeps lent memory of tensors that are larger."""
    return compacting(lambda tensor: tensor.detach() if tensor.nbytes > nbytes else tensor.detach().clone())


def largest() -> int:
    """Bytes of the largest tensor that is drawn for any cell, at smoke."""
    campaigns = {cell.campaign for cell in cells() if cell.provenance is None and not cell.unpromised(DEFAULT)}
    plans = [plan for campaign in campaigns for plan in drawn(campaign, DEFAULT, PROFILES["smoke"], 0)]
    return max(item.nbytes for plan in plans for item in plan.items)


def test_a_rule_for_tensors_of_many_mebibytes_is_not_seen() -> None:
    assert 1 << 20 < largest() < 1 << 22


@pytest.mark.parametrize(("threshold", "is_seen"), [(1 << 20, True), (1 << 22, False)])
def test_a_threshold_above_what_is_drawn_hides_a_fault(threshold: int, is_seen: bool) -> None:
    plans = drawn("large-lent", DEFAULT, PROFILES["smoke"], 0)

    assert any("aliasing.no-lent-memory" in broken(execute(above(threshold), plan)) for plan in plans) is is_seen
