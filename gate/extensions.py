"""What packages outside add, by entry points of three groups:

bucketproof.provenances    a module in which `@provenance` or `@view` registers ways in which a tensor comes to be
bucketproof.properties     a module in which `@contract` registers sentences of a contract
bucketproof.targets        a bucketer or a `Target`, which is then named by the entry point's name

An id or a name that is taken is an error. Nothing of it is imported before it is asked for.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from bucketproof.request import BadRequest, told

_REGISTERS = ("bucketproof.provenances", "bucketproof.properties")
_TARGETS = "bucketproof.targets"


def load() -> None:
    """Put what packages outside have into the registers, once. Raises `BadRequest`, each time, if that fails."""
    if wrong := _failure():
        raise BadRequest(wrong)


@cache
def _failure() -> str | None:
    for each in _of(*_REGISTERS):
        try:
            each.load()
        except Exception as error:
            return f"{whose(each)} cannot be loaded: it raised {told(error)}. Mend that package, or uninstall it"
    return None


def targets() -> list[EntryPoint]:
    """The targets of packages outside."""
    return _of(_TARGETS)


def versions() -> dict[str, str]:
    """The packages that add to the registers, with their versions: their provenances are drawn, too."""
    found = [package(each) for each in _of(*_REGISTERS)]
    return {each["package"]: each["version"] for each in found}


def whose(entry: EntryPoint) -> str:
    """An entry point in words: `the target 'mine' of the package acme`."""
    return f"{_KIND[entry.group]} {entry.name!r} of the package {package(entry)['package']}"


def package(entry: EntryPoint) -> dict[str, str]:
    """The package that an entry point is of, and its version."""
    assert entry.dist is not None  # it was found among installed packages
    return {"package": entry.dist.name, "version": entry.dist.version}


_KIND = {
    "bucketproof.provenances": "the provenances",
    "bucketproof.properties": "the properties",
    _TARGETS: "the target",
}


def _of(*groups: str) -> list[EntryPoint]:
    """The entry points of these groups, in an order that does not depend on where a package is installed."""
    return [each for group in groups for each in sorted(entry_points(group=group), key=_place)]


def _place(entry: EntryPoint) -> tuple[str, str]:
    return package(entry)["package"], entry.name
