"""Every alarm rings: each fault of the zoo breaks its property, and no other family but those that it must."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import cache

import pytest

from bucketproof.properties import PROFILES, PROPERTIES, Cell, Promises, Target, execute, judge, judging, limits
from bucketproof.properties.limits import Hang
from bucketproof.properties.promises import FAMILIES
from bucketproof.reference.faults import FAULTS, GROUPS
from bucketproof.reference.faults.cutting import GROUPED, grouped_buckets
from bucketproof.reference.faults.loop import async_buckets, buckets
from bucketproof.strategies import PROVENANCES
from bucketproof.targets import target_of
from bucketproof.zoo import usual_cells

SMOKE = PROFILES["smoke"]
ELSEWHERE = replace(SMOKE, examples=4)
"""Plans of a campaign that is another property's. A family that is flagged by mistake is mostly flagged at once."""
BESIDE = {"ownership": {"memory"}}
"""A copy that need not be there may also be one too many at once: it depends on what else is in the bucket."""

ALL = pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))


def family(property: str) -> str:
    return property.partition(".")[0]


# What must be said of a fault.


@ALL
def test_a_fault_has_a_docstring_of_one_line_a_property_and_an_origin(fault):
    assert fault.sentence.endswith(".")
    assert "\n" not in fault.sentence
    assert fault.property in PROPERTIES
    assert fault.origin == "synthetic" or "#" in fault.origin
    assert fault.exposed_by
    assert fault.group in GROUPS
    assert set(fault.on) <= set(PROVENANCES)
    assert set(fault.also) <= set(FAMILIES) - {family(fault.property)}


def test_no_property_is_without_a_fault():
    assert {each.id for each in PROPERTIES.values() if not each.group} == {each.property for each in FAULTS.values()}


# Judging.


@pytest.fixture(autouse=True, scope="module")
def _cheap_collections():
    """As in a search: the garbage collector, which many faults call for, looks at what is new."""
    gc.freeze()
    yield
    gc.unfreeze()


drawn = cache(judging.drawn)


def broken(target: Target, judged: Iterable[Cell], *, mainly: Collection[str] = ()) -> dict[str, str]:
    """The properties that are broken in some of these cells, each with what happened.

    It is looked for in few plans, but for the properties and families that it is mainly about.
    """
    found: dict[str, str] = {}
    cells_of: dict[str, list[Cell]] = defaultdict(list)
    for cell in judged:
        if not cell.unpromised(target.promises):
            cells_of[cell.campaign].append(cell)
    for campaign, several in cells_of.items():
        main = any(cell.property.id in mainly or family(cell.property.id) in mainly for cell in several)
        for plan in drawn(campaign, target.promises, SMOKE if main else ELSEWHERE, 0):
            run = execute(target, plan)
            for cell in several:
                if problems := cell.problems(run):
                    found.setdefault(cell.property.id, f"{cell.id}: {problems[0].what}\n{plan}")
            if isinstance(run.error, Hang):
                break
    return found


@ALL
def test_an_alarm_rings_and_only_its_family(fault, monkeypatch):
    if fault.property == "lifecycle.terminates":
        monkeypatch.setattr(limits, "SECONDS", 0.1)
    found = broken(target_of(fault), usual_cells(fault.on), mainly={fault.property, *fault.also})
    assert fault.property in found, found
    allowed = {family(fault.property), *fault.also, *BESIDE.get(family(fault.property), ())}
    # A plain loop, of which most are made, does not close its producer, and need not.
    musts = {id: what for id, what in found.items() if PROPERTIES[id].level == "MUST"}
    unexpected = {id: what for id, what in musts.items() if family(id) not in allowed}
    assert not unexpected, "\n".join(f"{id} {what}" for id, what in unexpected.items())
    assert set(fault.also) <= set(map(family, found)), f"no sign of {fault.also}"


@pytest.mark.parametrize(
    ("bucketer", "promises"),
    [(buckets, Promises()), (async_buckets, Promises()), (grouped_buckets, Promises(**GROUPED))],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_the_faults_are_made_of_rings_none(bucketer, promises):
    assert broken(Target("sound", bucketer, promises), usual_cells()) == {}


OF_EACH_FAMILY = {
    family(fault.property): fault for fault in reversed(FAULTS.values()) if "terminates" not in fault.property
}


@pytest.mark.parametrize("fault", OF_EACH_FAMILY.values(), ids=[fault.name for fault in OF_EACH_FAMILY.values()])
def test_a_verdict_says_what_an_alarm_does(fault):
    judged = (cell for cell in usual_cells(fault.on) if cell.property.id == fault.property)
    outcomes = (judge(cell, target_of(fault), SMOKE, 0) for cell in judged)
    outcome = next(outcome for outcome in outcomes if outcome.status == "fail")
    assert outcome.failure.sentence == PROPERTIES[fault.property].sentence
    assert outcome.failure.plan.startswith("Plan(")
    assert any(step.wrong for step in outcome.failure.steps)
