"""What each project's file says about the bucketers it can load; ``load`` in the package reads it."""

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bucketproof.reference.released.wheels import Unavailable, Wheel

Bucketer = Callable[..., Any]
"""A callable ``(weights, bucket_bytes)``."""


@dataclass(frozen=True)
class Packer:
    """The two halves of a packer: ``unpack(pack(named))`` gives the weights back.

    ``pack`` gives a pair of the flat payload and the project's own metadata. ``entries(payload)``, if that can be
    read, says of each weight its name, its bytes and where they begin. ``padding`` is how many bytes a weight may
    have in the payload beside its own.
    """

    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]
    entries: Callable[[Any], Any] | None = None
    padding: int = 0


@dataclass(frozen=True)
class Sender:
    """A sender together with its receiver: ``send(weights, bucket_bytes, deliver)``."""

    send: Callable[..., Any]


@dataclass(frozen=True)
class Said:
    """The value of a promise other than the default, and where the project says so, or shows it."""

    value: object
    because: str


Made = Bucketer | Packer | Sender
Build = Callable[[Wheel], Made]
Promised = Mapping[str, Said]
_NO_PROMISES: Promised = MappingProxyType({})
_NOTHING_ELSE: Mapping[str, Promised] = MappingProxyType({})
_adapters: dict[tuple[str, str], "Adapter"] = {}


@dataclass(frozen=True)
class Adapter:
    """How one bucketer of one project is had, in any of its releases."""

    project: str
    which: str
    source: str
    releases: Mapping[str, str]
    promises: Promised
    before: Mapping[str, Promised]
    history: str
    why: str
    build: Build

    def spec(self, version: str) -> str:
        """``project@version``, or ``project@version:which`` for all but the project's main bucketer."""
        return f"{self.project}@{version}" + (f":{self.which}" if self.which else "")

    def promised(self, version: str) -> Promised:
        """What a release promises otherwise than a plain bucketer does."""
        earlier = [said for first, said in self.before.items() if _order(version) < _order(first)]
        return {name: said for each in (self.promises, *earlier) for name, said in each.items()}


def adapter(
    project: str,
    *,
    which: str = "",
    source: str,
    releases: Mapping[str, str],
    history: str,
    why: str,
    promises: Promised = _NO_PROMISES,
    before: Mapping[str, Promised] = _NOTHING_ELSE,
) -> Callable[[Build], Build]:
    """Register the decorated function, which makes a bucketer, a packer or a sender from a wheel.

    ``project`` is the normalized name on the package index; ``which`` tells a project's bucketers apart and
    is empty for the main one; ``source`` is the wheel's member that defines it; ``releases`` maps versions
    to the SHA-256 of their wheels. Other versions are tried when asked for. ``history`` says in a few words where
    the code has changed from release to release, or that it has not. ``promises`` are what it promises otherwise
    than a plain bucketer does, each with the reason; ``before`` maps a release to what only those before it promise.
    """

    def register(build: Build) -> Build:
        if (project, which) in _adapters:
            raise ValueError(f"two adapters for {project!r}, which={which!r}")
        _adapters[project, which] = Adapter(project, which, source, releases, promises, before, history, why, build)
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


def _order(version: str) -> tuple[int, ...]:
    """By which one release comes before another: its numbers, as in 0.5.5.post3."""
    return tuple(map(int, re.findall(r"\d+", version)))


def _has(project: str) -> bool:
    return any(name == project for name, _ in _adapters)


@cache
def _import_projects() -> None:
    """A project is added by one file: all of the package is imported, whatever registers itself is there."""
    package = __name__.rpartition(".")[0]
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"{package}.{module.name}")
