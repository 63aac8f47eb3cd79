"""The pytest plugin: `pytest --pyargs bucketproof.properties --bucketer TARGET`.

It is loaded in every run of every project that has bucketproof installed, so it imports neither torch nor
Hypothesis, changes no setting, and does nothing unless it is asked.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bucketproof.request import PROFILE_NAMES, BadRequest
from bucketproof.watch import Watch

if TYPE_CHECKING:
    from bucketproof.trial import Trial

_WATCH = pytest.StashKey[Watch]()
_FOLDER = "bucketproof_watch"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("bucketproof", "weight-sync bucketers")
    group.addoption(
        "--bucketer",
        metavar="TARGET",
        help="what to judge: package.module:attr, path/to/file.py:attr, a built-in or a release",
    )
    group.addoption("--bucketer-profile", choices=PROFILE_NAMES, default="gate", help="how long to look")
    group.addoption("--bucketer-seed", metavar="N", type=int, default=0, help="what to draw")
    group.addoption(
        "--bucketer-only",
        metavar="ID",
        action="append",
        default=[],
        help="judge only this family, property or cell; may be repeated",
    )


def pytest_configure(config: pytest.Config) -> None:
    if not config.pluginmanager.hasplugin("xdist"):
        config.addinivalue_line("markers", "xdist_group(name): tests that pytest-xdist runs in one process.")
    if folder := getattr(config, "workerinput", {}).get(_FOLDER):
        config.stash[_WATCH] = Watch(Path(folder), config.workerinput["workerid"])  # type: ignore[attr-defined]


def pytest_report_header(config: pytest.Config) -> str | None:
    if not config.getoption("bucketer"):
        return None
    target, profile, seed = (config.getoption(f"bucketer{name}") for name in ("", "_profile", "_seed"))
    return f"bucketproof: target {target}, profile {profile}, seed {seed}"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    if not node.config.getoption("bucketer"):
        return
    if _WATCH not in node.config.stash:
        node.config.stash[_WATCH] = Watch(Path(tempfile.mkdtemp(prefix="bucketproof-")), "controller")
    node.workerinput[_FOLDER] = str(node.config.stash[_WATCH].folder)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    watch = node.config.stash.get(_WATCH, None)
    if error and watch:
        watch.bury(node.gateway.id)


def pytest_unconfigure(config: pytest.Config) -> None:
    watch = config.stash.get(_WATCH, None)
    if watch and watch.worker == "controller":
        shutil.rmtree(watch.folder, ignore_errors=True)


def contract(config: pytest.Config) -> list[Any]:
    """The tests of the target that was asked for, `reference` by default."""
    try:
        trial = _trial(config)
        return trial.tests()
    except BadRequest as error:
        raise pytest.Collector.CollectError(f"bucketproof: {error}") from None


def _trial(config: pytest.Config) -> Trial:
    from bucketproof.properties import NotABucketer
    from bucketproof.targets import resolve
    from bucketproof.trial import Trial, profile_named, select

    chosen = select(config.getoption("bucketer_only"))
    target = resolve(config.getoption("bucketer") or "reference")
    profile = profile_named(config.getoption("bucketer_profile"))
    trial = Trial(target, profile, config.getoption("bucketer_seed"), chosen, config.stash.get(_WATCH, None))
    try:
        _ = trial.smoke
    except NotABucketer as error:
        raise BadRequest(str(error)) from error
    return trial
