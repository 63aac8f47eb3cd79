"""From the text that names a target to the target.

reference                      a built-in one, see `BUILT_IN`
acme                           one of a package outside, by the name of its entry point
keeps-lent-views               a fault of the zoo
package.module:attribute       importable from here, as with `python -m`
path/to/file.py:attribute      loaded from its file, as if it were run as a script
package@version[:which]        as published by another project, taken from its wheel
compaction=module:attribute    a lone compaction function, named as any other target
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.metadata import EntryPoint
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from bucketproof import extensions, reference
from bucketproof.adapters import compaction, packer, sender
from bucketproof.extensions import whose
from bucketproof.properties import Promises, Target
from bucketproof.properties.payload import entries_of
from bucketproof.properties.promises import promises
from bucketproof.reference import released
from bucketproof.reference.faults import DEVICE_FAULTS, FAULTS, Fault
from bucketproof.request import COMPACTION, BadRequest, near, told

BUILT_IN = {
    "reference": "get_named_tensor_buckets",
    "always-clone": "always_clone",
    "storage-size": "storage_size",
    "base-guard": "base_guard",
    "sync-generator": "get_named_tensor_buckets_sync",
    "class-iterator": "ClassIterator",
    "mapping-buckets": "mapping_buckets",
    "flush-when-full": "flush_when_full",
    "copy-on-arrival": "copy_on_arrival",
    "copy-at-flush": "copy_at_flush",
    "aligned-packer": "pack_aligned",
}
"""Name of each built-in target, and of its bucketer (or, of a packer, its first half) in `bucketproof.reference`."""

_PROMISES = {
    "mapping-buckets": Promises(duplicates="error"),
    "copy-on-arrival": Promises(copies="always"),
    "copy-at-flush": Promises(copies="always", retention="at-flush"),
}

_HOW = "say package.module:attribute or path/to/file.py:attribute"


def resolve(text: str) -> Target:
    """The target that `text` names. Raises `BadRequest`."""
    return replace(_resolved(text), again=partial(resolve, text))


def _resolved(text: str) -> Target:
    if text.startswith(COMPACTION):
        return _compaction(text)
    if released.is_spec(text):
        return _released(text)
    if ":" in text.lstrip(":") or text.endswith(".py"):
        return _as_target(text, attribute(text))
    return _named(text)


def attribute(text: str) -> object:
    """What `package.module:attribute` or `path/to/file.py:attribute` is. Raises `BadRequest`."""
    place, _, path = text.rpartition(":")
    if text.endswith(".py"):
        raise BadRequest(f"{text} is a file: say which of its functions is meant, as in {text}:get_buckets")
    if not place:
        raise BadRequest(f"{text} is neither in a module nor in a file: {_HOW}")
    found: object = _run(Path(place)) if place.endswith(".py") else _import(place)
    for name in path.split("."):
        found = _attribute(text, found, name)
    return found


def describe(name: str) -> str:
    """What a built-in target is, in one sentence."""
    return (getattr(reference, BUILT_IN[name]).__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")


def target_of(fault: Fault) -> Target:
    """A fault as a target, with what it promises."""
    if fault.unpack is None:
        return Target(fault.name, fault.call, promises(fault.promises))
    entries = fault.entries or entries_of
    return packer(fault.call, fault.unpack, entries=entries, name=fault.name, promises=fault.promises)


def _compaction(text: str) -> Target:
    function = resolve(text.removeprefix(COMPACTION))
    return compaction(function.call, name=text)  # type: ignore[arg-type]


def _named(name: str) -> Target:
    outside = extensions.targets()
    if found := [each for each in outside if each.name == name]:
        return _outside(*found)
    if fault := {**FAULTS, **DEVICE_FAULTS}.get(name):
        return target_of(fault)
    if name in BUILT_IN:
        return _built_in(name)
    others = [*BUILT_IN, *(each.name for each in outside)]
    hint = near(name, [*others, *FAULTS, *DEVICE_FAULTS], f": there are {', '.join(others)}.")
    raise BadRequest(f"no built-in target {name!r}{hint} For your own, {_HOW}")


def _outside(entry: EntryPoint, *others: EntryPoint) -> Target:
    if others:
        owners = " and ".join(map(whose, (entry, *others)))
        raise BadRequest(f"{owners} have one name: say {entry.value}, or the other's")
    if entry.name in (*BUILT_IN, *FAULTS, *DEVICE_FAULTS):
        raise BadRequest(f"{whose(entry)} has the name of a built-in one: say {entry.value}, or uninstall the package")
    try:
        found = _as_target(entry.name, attribute(f"{entry.module}:{entry.attr}"))
    except BadRequest as error:
        raise BadRequest(f"{whose(entry)}: {error}") from error
    return replace(found, origin={**extensions.package(entry), **found.origin})


def _built_in(name: str) -> Target:
    if name == "aligned-packer":
        return packer(reference.pack_aligned, reference.unpack_aligned, name=name)
    return Target(name, getattr(reference, BUILT_IN[name]), _PROMISES.get(name, Promises()))


def _released(spec: str) -> Target:
    try:
        found = released.load(spec)
    except (released.Unavailable, LookupError) as error:
        raise BadRequest(" ".join(str(error.args[0] if error.args else error).split())) from error
    origin = {fact: str(getattr(found, fact)) for fact in ("project", "version", "sha256", "source")}
    return replace(_adapted(spec, found.made, found.promises), origin=origin)


def _adapted(name: str, made: released.Made, promised: Mapping[str, object]) -> Target:
    if isinstance(made, released.Packer):
        entries = made.entries or entries_of
        return packer(made.pack, made.unpack, entries=entries, padding=made.padding, name=name, promises=promised)
    if isinstance(made, released.Sender):
        return sender(made.send, name=name, promises=promised)
    return Target(name, made, promises(promised))


def _as_target(text: str, found: object) -> Target:
    if isinstance(found, Target):
        return found
    if not callable(found):
        kind = type(found).__name__
        raise BadRequest(
            f"{text} is no callable but of type {kind}: name a function (weights, bucket_bytes) or a Target"
        )
    return Target(text, found)


def _attribute(text: str, holder: object, name: str) -> object:
    try:
        return getattr(holder, name)
    except AttributeError:
        public = [each for each in dir(holder) if not each.startswith("_")]
        hint = near(name, public, f": it has {', '.join(public) or 'nothing'}")
        raise BadRequest(f"{text}: there is no attribute {name!r}{hint}") from None
    except Exception as error:  # of a module that imports what it exports when it is first used
        raise BadRequest(f"{text} cannot be loaded: it raised {told(error)}") from error


def _import(name: str) -> ModuleType:
    _make_importable(Path.cwd())
    with _refusing(f"module {name}", name):
        return import_module(name)


def _is_part(missing: str | None, name: str) -> bool:
    return missing is not None and f"{name}.".startswith(f"{missing}.")


def _run(path: Path) -> ModuleType:
    """The module in a file: in `sys.modules`, where dataclasses look, under a name that shadows no other."""
    _check_readable(path)
    path = path.resolve()
    _make_importable(path.parent)
    spec = spec_from_file_location(f"_bucketproof_target_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    try:
        with _refusing(str(path)):
            spec.loader.exec_module(module)
    except (BadRequest, KeyboardInterrupt):
        del sys.modules[spec.name]
        raise
    return module


def _check_readable(path: Path) -> None:
    try:
        path.read_bytes()
    except FileNotFoundError:
        siblings = (each.name for each in path.parent.glob("*.py"))
        raise BadRequest(f"there is no file {path}{near(path.name, siblings, '')}") from None
    except OSError as error:
        raise BadRequest(f"{path} cannot be read: {error.strerror}") from None


def _make_importable(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


@contextmanager
def _refusing(what: str, module: str | None = None) -> Iterator[None]:
    """Whatever the target's own code raises as it is loaded becomes a refusal, save what the user's keyboard does."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except SyntaxError as error:
        where = f"{error.filename}, line {error.lineno}"
        raise BadRequest(f"{what} cannot be loaded: {type(error).__name__} in {where}: {error.msg}") from error
    except BaseException as error:  # SystemExit of a script without a guard, and pytest's skip
        if isinstance(error, ModuleNotFoundError) and module and _is_part(error.name, module):
            raise BadRequest(f"no module {error.name!r} {_MISSING}") from error
        hint = _RELATIVE if "attempted relative import" in str(error) else ""
        raise BadRequest(f"{what} cannot be loaded: it raised {told(error)}{hint}") from error


_MISSING = (
    "in this directory or among the installed packages: check the spelling, or name the file: path/to/file.py:attribute"
)
_RELATIVE = ": a file of a package is named as package.module:attribute"
