"""The pytest plugin: `pytest --pyargs bucketproof.properties --bucketer TARGET`.

It is loaded in every run of every project that has bucketproof installed, so it imports neither torch nor
Hypothesis, changes no setting, and does nothing unless it is asked.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bucketproof.request import DEVICE_NAMES, PROFILE_NAMES, BadRequest, placed, split

if TYPE_CHECKING:
    from bucketproof.trial import Trial


CAMPAIGNS = "bucketproof_campaigns"
"""The key under which a worker is told the file in which to note the campaign of each test, a line each."""


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
    group.addoption(
        "--bucketer-with",
        metavar="GROUP",
        action="append",
        default=[],
        help="judge this group of cells, too; several with commas, or repeated",
    )
    group.addoption("--bucketer-device", choices=DEVICE_NAMES, default="cpu", help="where weights are made")
    group.addoption("--bucketer-shard", metavar="K/N", help="judge only the K-th of N parts of these")
    group.addoption("--bucketer-known", metavar="F", help="let the cells fail that this TOML file lists as known")


def pytest_configure(config: pytest.Config) -> None:
    if not config.pluginmanager.hasplugin("xdist"):
        config.addinivalue_line("markers", "xdist_group(name): tests that pytest-xdist runs in one process.")


def pytest_report_header(config: pytest.Config) -> str | None:
    if not config.getoption("bucketer"):
        return None
    target, profile, seed = (config.getoption(f"bucketer{name}") for name in ("", "_profile", "_seed"))
    return f"bucketproof: target {target}, profile {profile}, seed {seed}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    if note := getattr(session.config, "workerinput", {}).get(CAMPAIGNS):
        marks = [item.get_closest_marker("xdist_group") for item in session.items]
        Path(note).write_text("\n".join("/".join(mark.args) for mark in marks if mark), encoding="utf-8")


def pytest_unconfigure() -> None:
    # Only if there are any, for it would be imported first.
    if ranks := sys.modules.get("bucketproof.properties.ranks.pools"):
        ranks.close_pools()


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
    from bucketproof.trial import Trial, known_to_fail, profile_named, select

    asked: Any = config.getoption
    groups, device = placed(split(asked("bucketer_with")), asked("bucketer_device"))
    chosen = select(asked("bucketer_only"), groups, asked("bucketer_shard"), device)
    known = known_to_fail(asked("bucketer_known"))
    spec = "reference" if asked("bucketer") is None else asked("bucketer")
    target = resolve(spec)
    profile = profile_named(asked("bucketer_profile"))
    trial = Trial(target, profile, asked("bucketer_seed"), chosen, known, spec)
    try:
        _ = trial.smoke
    except NotABucketer as error:
        raise BadRequest(f"{target.name}: {error}") from error
    return trial
