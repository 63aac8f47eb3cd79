"""Running one source file of a wheel, or a few definitions of it, without importing the package around it."""

import ast
import builtins
import importlib
import linecache
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType, ModuleType
from typing import Any

from bucketproof.reference.released.wheels import Unavailable, Wheel, one_line

_Supplies = Mapping[str, Mapping[str, object]]
_NOTHING: _Supplies = MappingProxyType({})
_lock = threading.RLock()
_SURVEY = ": pip install 'bucketproof[survey]'"
_HINTS = dict.fromkeys(("zmq", "pydantic"), _SURVEY)
"""What to do where a package is missing that some of the files need."""


def whole(wheel: Wheel, member: str, supplies: _Supplies = _NOTHING) -> ModuleType:
    """The module that ``member`` of the wheel defines. Raises ``Unavailable``.

    ``supplies`` maps each module that the file imports from its own package to the names it takes from there.
    Only while the file runs do they stand in ``sys.modules``, in place of all of their top-level packages; what its
    functions import later they are given, too.
    """
    module, shells = _empty(wheel, member), _shells(supplies)
    vars(module)["__builtins__"] = {**vars(builtins), "__import__": _importing(shells)}
    with _standing_in({**shells, module.__name__: module}):
        return _run(wheel, member, module, _parsed(wheel, member))


def excerpt(wheel: Wheel, member: str, names: Collection[str], **scope: object) -> ModuleType:
    """A module of nothing but the top-level functions, classes and constants ``names`` of ``member``.

    ``scope`` holds the globals that they use, such as ``torch=torch``. Raises ``Unavailable``.
    """
    tree = _parsed(wheel, member)
    tree.body = [node for node in tree.body if _is_future(node) or _name_of(node) in names]
    module = _empty(wheel, member)
    vars(module).update(scope)
    with _standing_in({module.__name__: module}):
        _run(wheel, member, module, tree)
    for name in names:
        member_of(module, name)
    return module


def needed(name: str) -> ModuleType:
    """A package that a file needs and that is not its project's own. Raises ``Unavailable``."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Unavailable(f"{one_line(error)}{_HINTS.get(name, '')}") from error


def member_of(module: ModuleType, name: str) -> Any:
    """The attribute ``name`` of a loaded module. Raises ``Unavailable``."""
    try:
        return getattr(module, name)
    except AttributeError:
        raise Unavailable(f"{module.__file__} has no {name}: this release moved or dropped it") from None


def _filename(wheel: Wheel, member: str) -> str:
    # no folder of this machine in it: tracebacks, and so reports, read the same everywhere
    return f"{wheel.path.name}/{member}"


def _empty(wheel: Wheel, member: str) -> ModuleType:
    filename = _filename(wheel, member)
    module = ModuleType("_released_" + re.sub(r"\W", "_", filename))
    module.__file__ = filename
    return module


def _parsed(wheel: Wheel, member: str) -> ast.Module:
    source, filename = wheel.read(member), _filename(wheel, member)
    # without a modification time linecache keeps the entry, though there is no such file
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    try:
        return ast.parse(source, filename)
    except (SyntaxError, ValueError) as error:
        raise Unavailable(f"{filename} does not load here ({one_line(error)})") from error


def _run(wheel: Wheel, member: str, module: ModuleType, tree: ast.Module) -> ModuleType:
    filename = _filename(wheel, member)
    try:
        exec(compile(tree, filename, "exec", dont_inherit=True), vars(module))
    except Exception as error:
        hint = _HINTS.get(getattr(error, "name", None) or "", "")
        raise Unavailable(f"{filename} does not load here ({one_line(error)}){hint}") from error
    return module


def _importing(shells: Mapping[str, ModuleType]) -> Callable[..., Any]:
    """An import statement's function that finds the shells, also when they stand in ``sys.modules`` no more."""
    roots = {name.partition(".")[0] for name in shells}

    def find(name: str, *given: Any, **named: Any) -> Any:
        if name.partition(".")[0] not in roots:
            return builtins.__import__(name, *given, **named)
        if name not in shells:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        fromlist = named.get("fromlist", given[2] if len(given) > 2 else ())
        return shells[name if fromlist else name.partition(".")[0]]

    return find


def _name_of(node: ast.stmt) -> str | None:
    target = node.targets[0] if isinstance(node, ast.Assign) else node
    name: str | None = getattr(target, "name", getattr(target, "id", None))
    return name


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _shells(supplies: _Supplies) -> dict[str, ModuleType]:
    """Bare modules with the supplied names, and the packages above them; none has a path to import from."""
    shells: dict[str, ModuleType] = {}
    for name, contents in supplies.items():
        parts = name.split(".")
        for depth in range(len(parts)):
            _add_shell(shells, parts[: depth + 1])
        vars(shells[name]).update(contents)
    return shells


def _add_shell(shells: dict[str, ModuleType], parts: list[str]) -> None:
    shell = shells.setdefault(".".join(parts), ModuleType(".".join(parts)))
    if above := ".".join(parts[:-1]):
        setattr(shells[above], parts[-1], shell)


@contextmanager
def _standing_in(modules: Mapping[str, ModuleType]) -> Iterator[None]:
    """``modules`` in place of everything in ``sys.modules`` that belongs to their top-level packages."""
    roots = {name.partition(".")[0] for name in modules}
    with _lock:
        hidden = _taken_out(roots)
        sys.modules.update(modules)
        try:
            yield
        finally:
            _taken_out(roots)
            sys.modules.update(hidden)


def _taken_out(roots: Collection[str]) -> dict[str, ModuleType]:
    names = [name for name in list(sys.modules) if name.partition(".")[0] in roots]
    return {name: sys.modules.pop(name) for name in names}
