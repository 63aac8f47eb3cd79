"""Making a script of parts: every function that is needed is pasted in, and nothing else."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from bucketproof.repro.source import Import, Module, module, references

_OWN = "bucketproof."
_OURS = "bucketproof.repro."


class Unwritable(Exception):
    """There is no script for this."""


@dataclass(frozen=True)
class Place:
    """Where a definition is to be found."""

    module: str
    name: str


@dataclass(frozen=True)
class Linked:
    """A definition of the script."""

    name: str
    origin: str
    """The module it was pasted from, or ""."""
    text: str


@dataclass
class Linker:
    """Collects definitions and imports, each once, and what is needed before what needs it.

    `given` says by which text a name is defined in this script, or whose definition it has, whatever a part imports.
    """

    given: Mapping[str, str | Place]
    before: Callable[[str], str] = lambda text: text
    """Is applied to each definition before it is looked at what it refers to,"""
    after: Callable[[str], str] = lambda text: text
    """and this one after all that it refers to."""
    imports: set[Import] = field(default_factory=set)
    _defined: dict[str, str | Place] = field(default_factory=dict)

    def link(self, names: Iterable[str]) -> list[Linked]:
        """The definitions of these names and of all that they refer to, but for those that were linked before."""
        found: list[Linked] = []
        for name in names:
            self._add(name, self.given[name], found)
        return found

    def _add(self, name: str, what: str | Place, found: list[Linked]) -> None:
        if self._is_defined(name, what):
            return
        self._defined[name] = what
        text = self.before(what if isinstance(what, str) else _definition(what))
        if isinstance(what, Place) and what.name != name:
            raise Unwritable(f"{what.name} would have to be called {name}")
        for each in references(text):
            self._refer(each, what, found)
        found.append(Linked(name, what.module if isinstance(what, Place) else "", self.after(text)))

    def _is_defined(self, name: str, what: str | Place) -> bool:
        if name in self._defined and self._defined[name] != what:
            raise Unwritable(f"there are two things called {name}: {self._defined[name]} and {what}")
        return name in self._defined

    def _refer(self, name: str, user: str | Place, found: list[Linked]) -> None:
        """Whatever a definition refers to: what is given, what its own module has, or a module."""
        # What others have written refers to its own module, whatever has the same name here.
        is_ours = isinstance(user, str) or user.module.startswith(_OURS)
        if name in self.given and is_ours:
            self._add(name, self.given[name], found)
        elif isinstance(user, Place):
            self._refer_to(name, module(user.module), user.module, found)
        elif name in sys.stdlib_module_names or name == "torch":
            self.imports.add(Import(name))
        elif not hasattr(builtins, name):
            raise Unwritable(f"nothing is called {name}")

    def _refer_to(self, name: str, around: Module, where: str, found: list[Linked]) -> None:
        if name in around.definitions:
            self._add(name, Place(where, name), found)
        elif name in around.imports:
            self._import(name, around.imports[name], found)
        elif not hasattr(builtins, name) and name != "__name__":
            raise Unwritable(f"{where} has nothing called {name}")

    def _import(self, name: str, what: Import, found: list[Linked]) -> None:
        if what.module.startswith(_OWN) and what.name:
            self._add(name, _origin(Place(what.module, what.name)), found)
        else:
            self.imports.add(what)


def _origin(place: Place) -> Place:
    """The module that defines what this one may only have imported."""
    around = module(place.module)
    while place.name not in around.definitions and place.name in around.imports:
        place = Place(around.imports[place.name].module, around.imports[place.name].name)
        around = module(place.module)
    return place


def _definition(place: Place) -> str:
    found = module(place.module).definitions.get(place.name)
    if found is None:
        raise Unwritable(f"{place.module} does not define {place.name}")
    return found


def imported(imports: Iterable[Import]) -> str:
    """Import statements in their usual order."""
    own = [each for each in imports if each.module.partition(".")[0] in sys.stdlib_module_names]
    others = [each for each in imports if each not in own]
    return "\n\n".join("\n".join(_statements(group)) for group in (own, others) if group)


def _statements(imports: list[Import]) -> Iterator[str]:
    plain = sorted({each.module: each for each in imports if not each.name}.values(), key=lambda each: each.module)
    yield from (f"import {each.module}" + (f" as {each.alias}" if each.alias else "") for each in plain)
    for name in sorted({each.module for each in imports if each.name}):
        parts = sorted(
            each.name + (f" as {each.alias}" if each.alias else "") for each in imports if each.module == name
        )
        yield f"from {name} import {', '.join(part for part in parts if part)}"
