"""Judging in processes of their own: pytest and pytest-xdist, cut off from the project around them."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from bucketproof.plugin import CAMPAIGNS
from bucketproof.progress import Progress
from bucketproof.properties.outcome import Outcome
from bucketproof.request import BadRequest, NoVerdict, Request
from bucketproof.schedule import Schedule
from bucketproof.verdict import Verdict, gathered

_REFUSAL = "bucketproof: "
_EARLY_DEATH = "the process died while the target was loaded, or while it was given a single tensor"
_ENDED = "the run ended before this cell was judged"
_INTERRUPTED = "the run was interrupted before this cell was judged"
_DIED_EARLY = (Outcome("smoke", "error", "MUST", reason=_EARLY_DEATH),)


class Interrupted(KeyboardInterrupt):
    """The run was interrupted when some cells had been judged: their verdict is not lost."""

    def __init__(self, verdict: Verdict, missing: int) -> None:
        super().__init__(f"interrupted, {missing} of {len(verdict.cells)} cells were not judged")
        self.verdict = verdict


def run(request: Request) -> Verdict:
    """Judge the target. Raises `BadRequest`, `NoVerdict`, `KeyboardInterrupt` or `Interrupted`."""
    started = time.perf_counter()
    with _cut_off() as scratch, redirect_stdout(StringIO()) as said:
        gatherer = _Gatherer(scratch)
        pytest.main(_arguments(request), plugins=[gatherer])
    gatherer.check(said.getvalue())
    verdict = gatherer.verdict(request, time.perf_counter() - started)
    if gatherer.interrupted:
        raise Interrupted(verdict, len(verdict.cells) - len(gatherer.records))
    return verdict


def _arguments(request: Request) -> list[str]:
    tests = Path(_home(), "test_contract.py")
    only = [f"--bucketer-only={each}" for each in request.only]
    known = [f"--bucketer-known={request.known}"] if request.known else []
    groups = [f"--bucketer-with={each}" for each in request.groups]
    return [
        str(tests),
        *("-c", os.devnull, "--rootdir", str(tests.parent), "--noconftest", "--import-mode=importlib"),
        *("-p", "bucketproof.plugin"),
        # What the host must not find in its folder, and what would write past the report.
        *("-p", "no:cacheprovider", "-p", "no:faulthandler"),
        # pytest-xdist would import the class of a warning here, be it the target's own or torch's.
        *("-p", "no:warnings"),
        *_distribution(request.workers),
        f"--bucketer={request.target}",
        f"--bucketer-profile={request.profile}",
        f"--bucketer-seed={request.seed}",
        *only,
        *known,
        *groups,
        f"--bucketer-device={request.device}",
        *([f"--bucketer-shard={request.shard}"] if request.shard else []),
    ]


def _home() -> str:
    # Found without importing it, for it is the workers that need torch.
    spec = find_spec("bucketproof.properties")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent)


def _distribution(workers: int) -> tuple[str, ...]:
    if not workers:
        return ()
    # A campaign kills one worker at most (see `Schedule`), and each is replaced.
    return ("-p", "xdist", "-n", str(workers), "--max-worker-restart", "1000")


@contextmanager
def _cut_off() -> Iterator[Path]:
    """Without the host's settings for pytest, without its plugins, and with a folder of its own to write to."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="bucketproof-") as scratch:
        for name in [name for name in os.environ if name.startswith("PYTEST_")]:
            del os.environ[name]
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = scratch
        os.environ["HYPOTHESIS_NO_PLUGINS"] = "1"
        try:
            yield Path(scratch)
        finally:
            os.environ.clear()
            os.environ.update(before)


class _Gatherer:
    """A plugin of the controlling process, which takes the cells' records from the tests' reports."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self.records: dict[str, dict[str, Any]] = {}
        self.cells: tuple[str, ...] = ()
        self.failed: dict[str, str] = {}
        self.refusals: list[str] = []
        self.errors: list[str] = []
        self.interrupted = False
        self.ready: set[object] = set()
        self.schedule = Schedule()
        self.died_early = False
        self.failing = 0
        self.progress = Progress("cells")

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self) -> Schedule:
        return self.schedule

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._collected([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[CAMPAIGNS] = str(self._campaigns_of(node))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        self.ready.add(node)
        campaigns = self._campaigns_of(node).read_text(encoding="utf-8").split("\n")
        self.schedule.campaigns.update(zip(ids, campaigns, strict=False))
        self._collected(ids)

    def _campaigns_of(self, node: Any) -> Path:
        return self._scratch / str(node.gateway.id)

    def _collected(self, ids: list[str]) -> None:
        self.cells = self.cells or tuple(map(_cell_of, ids))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            line = str(report.longrepr)
            (self.refusals if line.startswith(_REFUSAL) else self.errors).append(line)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        cell = _cell_of(report.nodeid)
        for key, value in report.user_properties:
            if key == "bucketproof":
                self.records[cell] = json.loads(str(value))
                self.failing += self.records[cell]["outcome"]["status"] == "fail"
                self.progress.show(len(self.records), len(self.cells), self.failing)
        if report.failed:
            self.failed[cell] = f"the suite itself failed: {_last_words(str(report.longrepr))}"

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object, error: object) -> None:
        if error and node not in self.ready:
            self.died_early = True
            pytest.exit(_EARLY_DEATH)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        # pytest, too, raises kinds of it: to leave early, or after errors of collection.
        self.interrupted = excinfo.type is KeyboardInterrupt

    def pytest_internalerror(self, excrepr: object) -> None:
        self.errors.append(str(excrepr))

    def check(self, said: str) -> None:
        """Raise what kept the run from a verdict."""
        self.progress.clear()
        if self.refusals:
            raise BadRequest(self.refusals[0].removeprefix(_REFUSAL))
        if self.interrupted and not self.records:
            raise KeyboardInterrupt
        if self.errors or not (self.cells or self.died_early):
            raise NoVerdict(f"the suite itself failed: {_last_words(self.errors[0] if self.errors else said)}")

    def verdict(self, request: Request, seconds: float) -> Verdict:
        """All that was gathered; a cell without a record is one without a verdict."""
        known = [record["target"] for record in self.records.values()]
        target = known[0] if known else {"name": request.target, "origin": {}, "promises": {}}
        verdict = gathered(self._all_records(request.target), target, request.profile, request.seed, seconds)
        verdict = replace(verdict, groups=request.groups, device=request.device, shard=request.shard)
        return replace(verdict, cells=verdict.cells or _DIED_EARLY)

    def _all_records(self, target: str) -> list[dict[str, Any]]:
        """What the tests have reported, and what is known of those that did not."""
        if not (missing := self._missing()):
            return list(self.records.values())
        # Only now, for it imports torch.
        from bucketproof.trial import without_verdict

        return [*self.records.values(), *without_verdict(missing, target)]

    def _missing(self) -> dict[str, str]:
        """The cells that have no record, and why."""
        lost = {_cell_of(test): _death(_cell_of(test), _cell_of(victim)) for test, victim in self.schedule.lost.items()}
        ended = _INTERRUPTED if self.interrupted else _ENDED
        reasons = {**dict.fromkeys(self.cells, ended), **self.failed, **lost}
        return {cell: reason for cell, reason in reasons.items() if cell not in self.records}


def _death(cell: str, victim: str) -> str:
    if cell == victim:
        return "the process died while this cell was judged"
    return f"not judged: the process died while {victim} was judged on the same plans"


def _cell_of(nodeid: str) -> str:
    """The part of a node id in its outermost brackets."""
    return nodeid[nodeid.index("[") + 1 : nodeid.rindex("]")]


def _last_words(text: str) -> str:
    """What an exception said, out of pytest's account of it, or whatever was said last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line[1:].strip() for line in lines if line.startswith("E ")]
    return (errors or lines or ["it said nothing"])[-1]
