"""The survey: releases of other projects, each taken from its published wheel and judged, and kept when it is.

A target is judged in a process of its own, since it is third-party code; what becomes of one says nothing of others.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from bucketproof.output import destination
from bucketproof.reference import released
from bucketproof.reference.released import Unavailable, registry
from bucketproof.request import BadRequest, near
from bucketproof.verdict import Verdict, environment

_AT_MOST = 4 * 3600
"""Seconds for one target. It has limits of its own, of seconds; this is for what they do not reach."""


@dataclass(frozen=True)
class Entry:
    """One target, and what became of it: a verdict, or the reason why there is none."""

    spec: str
    project: str
    which: str
    version: str
    source: str
    why: str
    history: str
    """Where its code has changed from release to release."""
    reasons: dict[str, str] = field(hash=False)
    """Where the project says what it promises otherwise than a plain bucketer does."""
    verdict: Verdict | None = None
    problem: str = ""

    @property
    def name(self) -> str:
        """What it is called without its release."""
        return f"{self.project}:{self.which}".removesuffix(":")


@dataclass(frozen=True)
class Order:
    """What is to be judged, how, and where wheels and verdicts are kept."""

    specs: tuple[str, ...]
    profile: str
    seed: int
    cache: Path
    workers: int


def cache_folder(path: str | None) -> Path:
    """Where wheels and verdicts are kept, by default where released targets are. Raises `BadRequest`."""
    try:
        folder = Path(path).expanduser().absolute() if path else released.default_cache()
        folder.mkdir(parents=True, exist_ok=True)
    except (Unavailable, RuntimeError) as error:
        raise BadRequest(str(error)) from None
    except OSError as error:
        raise BadRequest(
            f"nothing can be kept in {path or 'the cache'}: {error.strerror}; name a folder with --cache"
        ) from None
    return folder


def chosen(names: Sequence[str]) -> tuple[str, ...]:
    """The specs of these projects, releases and targets; of all that are known, if none is named.

    Raises `BadRequest` for a name that is none.
    """
    known = released.known()
    found = [spec for name in names for spec in _named(name, known)] if names else known
    return tuple(dict.fromkeys(found))


def _named(name: str, known: Sequence[str]) -> Sequence[str]:
    project, _, version = name.partition("@")
    specs = [spec for spec in known if name in (spec, spec.partition("@")[0], spec.partition(":")[0])]
    if specs:
        return specs
    projects = [spec.partition("@")[0] for spec in known]
    if version and released.is_spec(name) and project in projects:
        return [name]  # a release that nobody has tried
    hint = near(name, [*projects, *known])
    raise BadRequest(f"no project, release or target {name!r}{hint} See: bucketproof list targets")


def survey(order: Order) -> Iterator[Entry]:
    """Fetch and judge, and give each target as soon as it is through. What is kept is not judged again."""
    unfetched: dict[tuple[str, str], str] = {}
    with ThreadPoolExecutor(max(1, order.workers)) as pool:
        waiting: list[Future[Entry]] = []
        try:
            for spec in order.specs:
                waiting.append(_begun(spec, order, unfetched, pool))
                yield from _through(waiting, more=spec != order.specs[-1])
        finally:
            for each in waiting:
                each.cancel()


def _through(waiting: list[Future[Entry]], *, more: bool) -> Iterator[Entry]:
    """In the order in which they were asked for, so that a table made of them is the same each time."""
    while waiting and (waiting[0].done() or not more):
        yield waiting.pop(0).result()


def _begun(spec: str, order: Order, unfetched: dict[tuple[str, str], str], pool: ThreadPoolExecutor) -> Future[Entry]:
    """The wheel, fetched one after the other, and the judging, which others wait for."""
    adapter, version = _adapter(spec)
    key = adapter.project, version
    try:
        if key in unfetched:
            raise Unavailable(unfetched[key])
        wheel = released.fetch(adapter.project, version, order.cache, releases=adapter.releases)
    except Unavailable as error:
        unfetched[key] = str(error)
        return pool.submit(_entry, adapter, version, None, str(error))
    return pool.submit(_judge, adapter, wheel, order)


def _adapter(spec: str) -> tuple[registry.Adapter, str]:
    project, _, rest = spec.partition("@")
    version, _, which = rest.partition(":")
    try:
        return registry.find(project, which), version
    except Unavailable as error:
        raise BadRequest(str(error)) from None


def _entry(adapter: registry.Adapter, version: str, verdict: Verdict | None, problem: str = "") -> Entry:
    reasons = {name: said.because for name, said in adapter.promised(version).items()}
    facts = (
        adapter.spec(version),
        adapter.project,
        adapter.which,
        version,
        adapter.source,
        adapter.why,
        adapter.history,
    )
    return Entry(*facts, reasons, verdict, problem)


def _judge(adapter: registry.Adapter, wheel: released.Wheel, order: Order) -> Entry:
    kept = order.cache / "survey" / f"{_key(adapter, wheel, order)}.json"
    if verdict := _kept(kept):
        return _entry(adapter, wheel.version, verdict)
    with tempfile.TemporaryDirectory(prefix="bucketproof-") as scratch:
        into = Path(scratch, "verdict.json")
        problem = _in_a_process(adapter.spec(wheel.version), order, scratch, into)
        if problem:
            return _entry(adapter, wheel.version, None, problem)
        text = into.read_text(encoding="utf-8")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with destination(str(kept)) as write:
        write(text)
    return _entry(adapter, wheel.version, Verdict.from_json(text))


def _kept(path: Path) -> Verdict | None:
    try:
        return Verdict.from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _in_a_process(spec: str, order: Order, scratch: str, into: Path) -> str:
    """Why there is no verdict; nothing if there is one."""
    command = [sys.executable, "-m", "bucketproof.judged", spec, order.profile, str(order.seed), str(into)]
    about = {
        "BUCKETPROOF_CACHE": str(order.cache),
        "HYPOTHESIS_STORAGE_DIRECTORY": scratch,
        "HYPOTHESIS_NO_PLUGINS": "1",
    }
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **about},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_AT_MOST,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"its process took over {_AT_MOST // 3600} hours"
    if done.returncode == 0:
        return ""
    last = done.stderr.strip().split("\n")[-1]
    return last if done.returncode == 2 else f"its process died, with code {done.returncode}: {last}"


def _key(adapter: registry.Adapter, wheel: released.Wheel, order: Order) -> str:
    """A name for all that a verdict depends on: the wheel, how it is called, and what judges it how."""
    about = hashlib.sha256(repr(sorted(environment().items())).encode())
    about.update(_origin(adapter.build.__module__).read_bytes())
    which = f"-{adapter.which}" if adapter.which else ""
    named = f"{adapter.project}-{wheel.version}{which}-{order.profile}-{order.seed}"
    return f"{named}-{wheel.sha256[:16]}-{about.hexdigest()[:16]}"


def _origin(name: str) -> Path:
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin)
