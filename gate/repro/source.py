"""The source of modules, as definitions that can be taken out one by one."""

from __future__ import annotations

import ast
import inspect
import symtable
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.util import resolve_name
from typing import TypeGuard

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign
_REGISTERS = {"provenance", "view", "layout"}
"""Decorators that put a function into a register. A script has none."""


@dataclass(frozen=True)
class Import:
    """An import statement of one name."""

    module: str
    name: str = ""
    """What is imported from the module, if it is not the module itself."""
    alias: str = ""


@dataclass(frozen=True)
class Module:
    """What a module defines and imports at its top level, by name."""

    definitions: dict[str, str]
    imports: dict[str, Import]


@lru_cache(maxsize=64)
def module(name: str) -> Module:
    """Read a module's source. Raises OSError if there is none."""
    found = import_module(name)
    text = inspect.getsource(found)
    definitions: dict[str, str] = {}
    imports: dict[str, Import] = {}
    for node in ast.parse(text).body:
        if isinstance(node, Definition):
            definitions.update({each: _plain(text, node) for each in _names(node)})
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            imports.update(_imported(node, found.__package__))
    return Module(definitions, imports)


def _names(node: Definition) -> Iterator[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    else:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def _imported(node: ast.Import | ast.ImportFrom, package: str | None) -> Iterator[tuple[str, Import]]:
    for alias in node.names:
        name = alias.asname or alias.name.partition(".")[0]
        if isinstance(node, ast.ImportFrom):
            place = resolve_name("." * node.level + (node.module or ""), package)
            yield name, Import(place, alias.name, alias.asname or "")
        else:
            yield name, Import(alias.name, alias=alias.asname or "")


# Editing.

Place = tuple[int, int]
"""A line, from 1, and a column in bytes."""
Edit = tuple[Place, Place, str]
"""What is replaced, from a place to before another, and by what."""


def edited(text: str, edits: Iterable[Edit]) -> str:
    """The text with these edits, none of which overlap."""
    lines = text.split("\n")
    for (row, column), (end_row, end_column), new in sorted(edits, reverse=True):
        head, tail = lines[row - 1].encode()[:column], lines[end_row - 1].encode()[end_column:]
        lines[row - 1 : end_row] = [head.decode() + new + tail.decode()]
    return "\n".join(lines)


def begin(node: ast.expr | ast.stmt) -> Place:
    """Where a piece of syntax begins."""
    return node.lineno, node.col_offset


def end(node: ast.expr | ast.stmt) -> Place:
    """Where it ends."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.end_lineno, node.end_col_offset


# Without what only the type checker and the register need.


def _plain(text: str, node: Definition) -> str:
    """The text of a definition without annotations, comments to tools, and decorators that register it."""
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []) if not _registers(each))])
    ast.increment_lineno(node, 1 - first)
    lines = text.split("\n")[first - 1 :][: node.end_lineno]
    return edited("\n".join(map(_uncommented, lines)), _unannotated(node))


def _uncommented(line: str) -> str:
    for mark in ("  # type:", "  # noqa"):
        line = line.partition(mark)[0]
    return line.rstrip()


def _registers(decorator: ast.expr) -> bool:
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(function, ast.Name) and function.id in _REGISTERS


def _unannotated(node: ast.AST) -> Iterator[Edit]:
    """Takes annotations away."""
    fields = {id(field) for each in ast.walk(node) if _has_fields(each) for field in each.body}
    for each in ast.walk(node):
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _of_arguments(each.args)
            if each.returns:
                row, column = begin(each.returns)
                yield (row, column - len(" -> ")), end(each.returns), ""
        elif isinstance(each, ast.AnnAssign) and id(each) not in fields:
            yield end(each.target) if each.value else begin(each), end(each.annotation), "" if each.value else "pass"


def _has_fields(node: ast.AST) -> TypeGuard[ast.ClassDef]:
    """Whether it is a class that is made from its annotations."""
    made_of = ("dataclass", "NamedTuple")
    return isinstance(node, ast.ClassDef) and any(
        name.id in made_of
        for each in (*node.decorator_list, *node.bases)
        for name in ast.walk(each)
        if isinstance(name, ast.Name)
    )


def _of_arguments(arguments: ast.arguments) -> Iterator[Edit]:
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(arguments.defaults))
    pairs = [*zip(plain, [*defaults, *arguments.defaults], strict=True)]
    pairs += [*zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    pairs += [(each, None) for each in (arguments.vararg, arguments.kwarg) if each]
    for argument, default in pairs:
        if argument.annotation:
            name = argument.lineno, argument.col_offset + len(argument.arg.encode())
            yield name, begin(default) if default else end(argument.annotation), "=" if default else ""


# What a definition refers to.


@lru_cache(maxsize=1024)
def references(text: str) -> tuple[str, ...]:
    """The names that a piece of source takes from around it, in their order."""
    wanted = set(_globals(symtable.symtable(text, "script", "exec")))
    named = (node.id for node in _in_order(ast.parse(text)) if isinstance(node, ast.Name))
    return tuple(dict.fromkeys(name for name in named if name in wanted))


def _in_order(tree: ast.AST) -> Iterable[ast.AST]:
    return sorted(ast.walk(tree), key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0)))


def _globals(table: symtable.SymbolTable) -> Iterator[str]:
    top = table.get_type() == "module"
    yield from (each.get_name() for each in table.get_symbols() if each.is_referenced() and (top or each.is_global()))
    for child in table.get_children():
        yield from _globals(child)


# Writing.


def quoted(text: str) -> str:
    """A string as code, in double quotes if that is no longer."""
    code = repr(text)
    return f'"{code[1:-1]}"' if code[0] == "'" and '"' not in code else code


def listed(texts: Iterable[str]) -> str:
    """A list of strings as code."""
    return f"[{', '.join(map(quoted, texts))}]"
