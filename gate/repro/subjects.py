"""How a script comes by what it judges."""

from __future__ import annotations

import inspect
import operator
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from bucketproof import extensions
from bucketproof.adapters import sender
from bucketproof.properties import Target
from bucketproof.properties.payload import entries_of
from bucketproof.reference import released
from bucketproof.reference.faults import FAULTS
from bucketproof.repro.linker import Unwritable
from bucketproof.repro.source import quoted
from bucketproof.request import COMPACTION
from bucketproof.targets import BUILT_IN

_REFERENCE = "bucketproof.reference"
_WHEEL = "# It is taken from the wheel that it was published in, which is fetched once."
_PACKERS = {"aligned-packer": ("pack_aligned", "unpack_aligned")}


@dataclass(frozen=True)
class Subject:
    """What is judged, as code."""

    lines: tuple[str, ...]
    """Statements that return it, where nothing is named on the command line."""
    other: str
    """The expression for what is named there."""
    usage: str
    """What can be named there."""


def subject(target: Target, spec: str, *, in_parts: bool = False) -> Subject:
    """Of a target, which was named so; `in_parts`, of a packer as its functions. Raises `Unwritable`."""
    if in_parts or _is_packer(target, spec):
        return _packer(target, spec, in_parts=in_parts)
    if spec.startswith(COMPACTION):
        loaded = subject(target, spec.removeprefix(COMPACTION))
        lines = (*loaded.lines[:-1], f"return compacting({loaded.lines[-1].removeprefix('return ')})")
        return Subject(lines, "compacting(load(arguments[0]))", loaded.usage)
    lines = (*_lines(target, spec or _found(target.call)),)
    return Subject(lines, "load(arguments[0])", "package.module:attribute")


def _is_sender(target: Target, spec: str) -> bool:
    return released.is_spec(spec) and getattr(target.call, "__module__", "") == sender.__module__


def _lines(target: Target, spec: str) -> Iterator[str]:
    if spec in FAULTS:
        yield "from bucketproof.reference.faults import FAULTS"
        yield ""
        yield f"return FAULTS[{quoted(spec)}].call"
    elif spec in BUILT_IN:
        yield f"return load({quoted(f'{_REFERENCE}:{BUILT_IN[spec]}')})"
    elif _is_sender(target, spec):
        yield _WHEEL
        yield "from bucketproof.targets import resolve"
        yield ""
        yield f"return resolve({quoted(spec)}).call"
    elif released.is_spec(spec):
        yield _WHEEL
        yield "from bucketproof.reference import released"
        yield ""
        yield f"return released.load({quoted(spec)}).call"
    else:
        outside = {each.name: each.value for each in extensions.targets()}
        yield f"return load({quoted(outside.get(spec, spec))})"


def _is_packer(target: Target, spec: str) -> bool:
    if released.is_spec(spec):
        return target.promises.padding is not None
    return spec in _PACKERS or (spec in FAULTS and FAULTS[spec].unpack is not None)


def _packer(target: Target, spec: str, *, in_parts: bool) -> Subject:
    lines = [*_halves(target, spec)]
    others = "load(arguments[0]), load(arguments[1])"
    if in_parts:
        return Subject((*lines[:-1], f"return {lines[-1]}"), others, "package.module:pack package.module:unpack")
    return Subject(
        (*lines[:-1], f"return packing({lines[-1]})"), f"packing({others})", "package.module:pack package.module:unpack"
    )


def _halves(target: Target, spec: str) -> Iterator[str]:
    """Statements, and the last one an expression: the packer's functions, with one for its metadata if it has one."""
    if spec in FAULTS:
        yield "from bucketproof.reference.faults import FAULTS"
        yield ""
        yield f"fault = FAULTS[{quoted(spec)}]"
        yield "fault.call, fault.unpack" + (", fault.entries" if FAULTS[spec].entries else "")
    elif released.is_spec(spec):
        yield _WHEEL
        yield "from bucketproof.reference import released"
        yield ""
        yield f"packer = released.load({quoted(spec)}).made"
        yield "packer.pack, packer.unpack" + ("" if _trip(target.call).entries is entries_of else ", packer.entries")
    elif spec in _PACKERS:
        yield ", ".join(f"load({quoted(f'{_REFERENCE}:{half}')})" for half in _PACKERS[spec])
    else:
        trip = _trip(target.call)
        place = spec.rpartition(":")[0]
        halves = [
            trip.pack,
            trip.unpack,
            *([] if trip.entries.__module__.startswith("bucketproof.") else [trip.entries]),
        ]
        yield ", ".join(f"load({quoted(_beside(place, half))})" for half in halves)


def _trip(call: Callable[..., Any]) -> Any:
    """What an adapter for packers calls."""
    found = inspect.getclosurevars(call).nonlocals.get("trip")
    if found is None:
        raise Unwritable("it is not to be seen what packs and what unpacks")
    return found


def _beside(place: str, function: Callable[..., Any]) -> str:
    """The name of a function that a target is made of: of the file that the target is in, or of a module."""
    name, where = _qualified(function), getattr(function, "__module__", "")
    if place.endswith(".py") and where.startswith("_bucketproof_target_"):
        return f"{place}:{name}"
    return _found(function)


def _found(call: Callable[..., Any]) -> str:
    """The name by which a callable can be imported. Raises `Unwritable`."""
    name, where = _qualified(call), getattr(call, "__module__", "")
    try:
        found = operator.attrgetter(name)(sys.modules.get(where) or import_module(where))
    except (ImportError, AttributeError, ValueError):
        found = None
    if found is not call or where == "__main__":
        raise Unwritable(f"{name} cannot be imported by that name")
    return f"{where}:{name}"


def _qualified(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", "")
    if not name or "<" in name:
        raise Unwritable(f"{function!r} has no name to import it by")
    return str(name)
