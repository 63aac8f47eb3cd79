"""A target on trial: its cells as pytest's tests, one each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, NoReturn

import pytest

from bucketproof import examples, extensions
from bucketproof.known import Known, KnownFile, must_be_cells
from bucketproof.properties import (
    PROFILES,
    PROPERTIES,
    Cell,
    NotABucketer,
    Outcome,
    Profile,
    Target,
    cells,
    judge,
    preflight,
)
from bucketproof.report import explain_alone
from bucketproof.repro import scripted, unscripted
from bucketproof.request import DEVICE_NAMES, BadRequest, near, parts_of
from bucketproof.strategies import DEVICES, GROUPS, PROVENANCES
from bucketproof.strategies.devices import CPU, CUDA

RECORD = "bucketproof"
"""The key of a test's record among its user properties, which cross process boundaries."""


def all_cells(groups: Iterable[str] = ()) -> tuple[Cell, ...]:
    """All cells, and those of these groups, with what packages outside add. Raises `BadRequest` if one is broken."""
    extensions.load()
    return cells(groups)


_ONE_PROCESS = "a script has one process, and this takes more"
_ON_DEVICE = "a script runs in memory of the host, and this takes a CUDA device"


@dataclass
class Trial:
    """One target, and the cells that it is judged by."""

    target: Target
    profile: Profile
    seed: int = 0
    cells: Sequence[Cell] = field(default_factory=all_cells)
    known: Mapping[str, Known] = field(default_factory=dict)
    """The cells that are let fail, by their ids."""
    spec: str = ""
    """The text that names the target, if it was named by one."""
    strict: bool = False
    """Whether a cell that is listed as known and passes is a failing test, as a strict xfail of pytest's is."""

    @cached_property
    def device(self) -> str:
        """Where it is first tried: on the host, unless nothing is judged there."""
        devices = {cell.device for cell in self.cells} or {CPU}
        return next(each for each in DEVICES if each in devices)

    @cached_property
    def smoke(self) -> Outcome:
        """Whether it can bucket a single tensor. Raises `NotABucketer`."""
        if lack := DEVICES[self.device].lacks():
            return Outcome("smoke", "skipped", "MUST", reason=lack)
        outcome = preflight(self.target, self.device) or Outcome("smoke", "pass", "MUST")
        return scripted(replace(outcome, cell="smoke"), self.target, self.spec)

    def judge(self, cell: Cell) -> Outcome:
        """The verdict on one cell."""
        if self.smoke.status != "pass":
            reason = self.smoke.reason if self.smoke.status == "skipped" else "not judged: the target failed smoke"
            return Outcome(cell.id, "skipped", cell.level, reason=reason)
        if not (known := self.known.get(cell.id)):
            if reason := _why_unscripted(cell):
                return unscripted(judge(cell, self.target, self.profile, self.seed), reason)
            return scripted(judge(cell, self.target, self.profile, self.seed), self.target, self.spec)
        # What is known needs no smallest plan, for which most of the time of a failing cell goes.
        return known.excuse(judge(cell, self.target, self.profile, self.seed, False))

    def tests(self) -> list[Any]:
        """What to parametrise a test function with."""
        cases = [Case(self), *(Case(self, cell) for cell in self.cells)]
        # The cells of one campaign are judged on the same runs, which one process shares among them.
        return [pytest.param(case, id=case.id, marks=pytest.mark.xdist_group(*case.groups)) for case in cases]


def _why_unscripted(cell: Cell) -> str:
    """Why there can be no script for a cell, if there is a reason."""
    provenance = PROVENANCES[cell.provenance].group if cell.provenance else ""
    if CUDA in (cell.property.group, provenance):
        return _ON_DEVICE
    return _ONE_PROCESS if cell.groups & {"distributed", "processes"} else ""


@dataclass(frozen=True)
class Case:
    """One test: a cell or, without one, the smoke test that stands before them all."""

    trial: Trial
    cell: Cell | None = None

    @property
    def id(self) -> str:
        """The cell's id."""
        return self.cell.id if self.cell else "smoke"

    @property
    def group(self) -> str:
        """Tests of one group run in one process. Ranks are more than one, and are not to be started twice.

        So do all that are of one device: each process would take a part of its memory.
        """
        return self.groups[0]

    @property
    def groups(self) -> tuple[str, ...]:
        """The same, and for a device the campaign, too: what has killed its process is not to be judged again."""
        device = self.cell.device if self.cell else self.trial.device
        campaign = "smoke" if self.cell is None else "ranks" if self.cell.sizes else self.cell.campaign
        return (campaign,) if device == CPU else (device, campaign)

    def run(self, item: pytest.Item) -> None:
        """Judge the cell, keep the outcome with the test, and say it in pytest's words."""
        try:
            outcome = self.trial.judge(self.cell) if self.cell else self.trial.smoke
        except NotABucketer as error:
            _refuse(self, error)
        item.user_properties.append((RECORD, json.dumps(record(self.cell, self.trial.target, outcome))))
        if self.trial.strict and outcome.status == "fixed":
            pytest.fail(f"[XPASS(strict)] listed as known, and passes: {_told(outcome)}", pytrace=False)
        _SAY[outcome.status](outcome)


def record(cell: Cell | None, target: Target, outcome: Outcome) -> dict[str, Any]:
    """What a verdict needs to know of a cell, as JSON has it; without a cell, of the smoke test."""
    provenance = cell.provenance if cell else None
    return {
        "place": _place(cell),
        "custody": {cell.kind: PROVENANCES[provenance].custody.value} if cell and provenance else {},
        "target": {"name": target.name, "origin": target.origin, "promises": asdict(target.promises)},
        "outcome": outcome.to_json(),
    }


def without_verdict(reasons: Mapping[str, str], target: str) -> list[dict[str, Any]]:
    """Records of cells that nobody could judge, by their ids."""
    named = Target(target, without_verdict)
    by_id = {cell.id: cell for cell in all_cells(GROUPS)}
    return [
        record(by_id.get(id), named, Outcome(id, "error", by_id[id].level if id in by_id else "MUST", reason=reason))
        for id, reason in reasons.items()
    ]


def _place(cell: Cell | None) -> tuple[int, int, int, str]:
    """Where the cell stands in a verdict: as the contract has it, whatever the order of judging."""
    if cell is None:
        return -1, -1, -1, ""
    property_, provenance = _rank(cell.property.id, PROPERTIES), _rank(cell.provenance, PROVENANCES)
    return _rank(cell.device, DEVICES), property_, provenance, cell.id


def in_order(ids: Iterable[str]) -> list[str]:
    """Ids of cells as a verdict has them; those that nobody here knows are the last."""
    places = {"smoke": _place(None), **{cell.id: _place(cell) for cell in all_cells(GROUPS)}}
    last = len(DEVICES), 0, 0, ""
    return sorted(ids, key=lambda id: places.get(id, last))


def _rank(name: str | None, register: Iterable[str]) -> int:
    return -1 if name is None else list(register).index(name)


def profile_named(name: str) -> Profile:
    """The profile of that name. Raises `BadRequest`."""
    if name not in PROFILES:
        raise BadRequest(f"no profile {name!r}{near(name, PROFILES)} There are {', '.join(PROFILES)}")
    if not PROFILES[name].repeatable:
        examples.use()
    return PROFILES[name]


def known_to_fail(path: str | None) -> dict[str, Known]:
    """The cells that a file lists as known to fail; without one, none. Raises `BadRequest`."""
    if path is None:
        return {}
    listed = KnownFile.read(path).entries()
    must_be_cells(path, listed, [cell.id for cell in all_cells(GROUPS)])
    return listed


def select(
    only: Iterable[str], groups: Iterable[str] = (), shard: str | None = None, device: str = CPU
) -> tuple[Cell, ...]:
    """The cells of the families, properties and cells named, or all of them, of these groups too, or a part of these.

    They are those on the host, on a device, or on `all` of them. Raises `BadRequest`.
    """
    if device not in DEVICE_NAMES:
        raise BadRequest(f"no device {device!r}: there are {', '.join(DEVICE_NAMES)}")
    wanted, devices = {only} if isinstance(only, str) else set(only), tuple(DEVICES) if device == "all" else (device,)
    every = all_cells((*must_be_groups(groups), *(each for each in devices if each != CPU)))
    everything = [cell for cell in every if cell.device in devices]
    known = [name for cell in everything for name in _names(cell)]
    for name in sorted(wanted.difference(known)):
        hint = _in_a_group(name) or f"{near(name, known)} See: bucketproof list properties"
        raise BadRequest(f"no property, family or cell {name!r}{hint}")
    chosen = [cell for cell in everything if not wanted or wanted.intersection(_names(cell))]
    mine = _part(dict.fromkeys(cell.campaign for cell in chosen), shard)
    return tuple(cell for cell in chosen if cell.campaign in mine)


def _part(campaigns: Iterable[str], shard: str | None) -> set[str]:
    """Every N-th campaign: cells of one campaign share their runs, and so stay together."""
    number, of = parts_of(shard) if shard else (1, 1)
    return set([*campaigns][number - 1 :: of])


def must_be_groups(names: Iterable[str]) -> tuple[str, ...]:
    """The groups of these names, each once. Raises `BadRequest`."""
    chosen = tuple(dict.fromkeys(names))
    for name in chosen:
        if name not in GROUPS:
            raise BadRequest(f"no group {name!r}{near(name, GROUPS, '')}: there are {', '.join(GROUPS)}")
    return chosen


def _in_a_group(name: str) -> str:
    """How to ask for a cell that is of a group, if it is."""
    found = next((cell for cell in all_cells(GROUPS) if name in _names(cell)), None)
    if found is None:
        return ""
    needed = {*found.groups} - {found.device}
    groups = f" --with {','.join(sorted(needed))}" if needed else ""
    # Of what is on several devices, that of the host comes first.
    return f" without{groups}" if found.device == CPU and groups else f" without --device {found.device}{groups}"


def _names(cell: Cell) -> tuple[str, str, str]:
    return cell.property.id.partition(".")[0], cell.property.id, cell.id


def _refuse(case: Case, error: NotABucketer) -> NoReturn:
    if case.cell:
        pytest.skip("not judged: what the target returns is no iterable of buckets")
    pytest.fail(f"bucketproof: {error}", pytrace=False)


def _fail(outcome: Outcome) -> None:
    text = "\n".join(explain_alone(outcome))
    if outcome.level == "SHOULD":
        _xfail(text)
    pytest.fail(text, pytrace=False)


def _told(outcome: Outcome) -> str:
    return f"{outcome.reason} {outcome.link}".strip()


def _xfail(text: str) -> NoReturn:
    # What `pytest.xfail` does, without the traceback, which nobody would read and which takes its time.
    raise pytest.xfail.Exception(text, pytrace=False)


_SAY: dict[str, Callable[[Outcome], None]] = {
    "pass": lambda outcome: None,
    "fail": _fail,
    "known": lambda outcome: _xfail(f"known: {_told(outcome)}"),
    "fixed": lambda outcome: None,
    "error": lambda outcome: pytest.fail(f"no verdict: {outcome.reason}", pytrace=False),
    "skipped": lambda outcome: pytest.skip(outcome.reason),
    "unpromised": lambda outcome: pytest.skip(f"unpromised: {outcome.reason}"),
}
