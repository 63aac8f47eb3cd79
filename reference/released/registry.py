"""What each project's file says about the bucketers it can load; ``load`` in the package reads it."""

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bucketproof.reference.released.wheels import Unavailable, Wheel

Bucketer = Callable[..., Any]
Build = Callable[[Wheel], Bucketer]
_NO_PROMISES: Mapping[str, object] = MappingProxyType({})
_adapters: dict[tuple[str, str], "Adapter"] = {}


@dataclass(frozen=True)
class Adapter:
    """How one bucketer of one project is had, in any of its releases."""

    project: str
    which: str
    source: str
    releases: Mapping[str, str]
    promises: Mapping[str, object]
    why: str
    build: Build

    def spec(self, version: str) -> str:
        """``project@version``, or ``project@version:which`` for all but the project's main bucketer."""
        return f"{self.project}@{version}" + (f":{self.which}" if self.which else "")


def adapter(
    project: str,
    *,
    which: str = "",
    source: str,
    releases: Mapping[str, str],
    why: str,
    promises: Mapping[str, object] = _NO_PROMISES,
) -> Callable[[Build], Build]:
    """Register the decorated function, which makes a callable ``(weights, bucket_bytes)`` from a wheel.

    ``project`` is the normalized name on the package index; ``which`` tells a project's bucketers apart and
    is empty for the main one; ``source`` is the wheel's member that defines it; ``releases`` maps versions
    to the SHA-256 of their wheels. Other versions are tried when asked for.
    """

    def register(build: Build) -> Build:
        if (project, which) in _adapters:
            raise ValueError(f"two adapters for {project!r}, which={which!r}")
        _adapters[project, which] = Adapter(project, which, source, releases, promises, why, build)
        return build

    return register


def adapters() -> Iterator[Adapter]:
    """Every adapter of every project file of this package, in the order of their names."""
    _import_projects()
    return (_adapters[key] for key in sorted(_adapters))


def find(project: str, which: str) -> Adapter:
    """The adapter for ``which`` of ``project``. Raises ``Unavailable``, which lists all there are."""
    _import_projects()
    if found := _adapters.get((project, which)):
        return found
    lacking = f"{project} has no bucketer {which!r}" if _has(project) else f"there is no project {project!r}"
    raise Unavailable(f"{lacking} among the adapters; known: {', '.join(specs())}")


def specs() -> tuple[str, ...]:
    """The spec of every release that an adapter knows."""
    return tuple(each.spec(version) for each in adapters() for version in each.releases)


def _has(project: str) -> bool:
    return any(name == project for name, _ in _adapters)


@cache
def _import_projects() -> None:
    """A project is added by one file: all of the package is imported, whatever registers itself is there."""
    package = __name__.rpartition(".")[0]
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"{package}.{module.name}")
