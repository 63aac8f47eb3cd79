"""The page on what can be imported: read off the source, so that nothing is imported for it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TypeGuard

from bucketproof.pages.tables import code, table

PUBLIC = (
    "bucketproof",
    "bucketproof.adapters",
    "bucketproof.strategies",
    "bucketproof.strategies.provenances",
    "bucketproof.properties",
    "bucketproof.reference",
)
"""The modules whose exports are promised to stay."""


def api() -> Iterator[str]:
    """The lines of the page."""
    yield from ("# What can be imported", "", "Whatever is not listed here may change. `help()` says all of it.", "")
    for module in PUBLIC:
        yield from (f"## {module}", "")
        yield from table(("name", "what it is"), [(code(name), first(text)) for name, text in exports(module).items()])
    yield "A property is registered with `contract` and tells of `Problem`s, both of `bucketproof.properties.contract`."


def exports(module: str) -> dict[str, str]:
    """The docstring of each name that a module exports, or the string below it."""
    names = next(ast.literal_eval(node.value or "") for node in _tree(module).body if _assigns(node, "__all__"))
    return {name: _said(module, name) for name in names if name != "__version__"}


def first(text: str) -> str:
    """The first paragraph, in a line."""
    return " ".join(text.split("\n\n")[0].split())


@cache
def _tree(module: str) -> ast.Module:
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))


def _said(module: str, name: str) -> str:
    tree = _tree(module)
    for node, beneath in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.name == name:
            return ast.get_docstring(node) or ""
        if _assigns(node, name):
            return _text(beneath)
    home = _imported_from(tree, name)
    return _said(home, name) if home and home != module else ""


def _text(node: ast.stmt | None) -> str:
    """The string that a statement is, if it is one."""
    value = node.value if isinstance(node, ast.Expr) else None
    return str(value.value) if isinstance(value, ast.Constant) else ""


def _imported_from(tree: ast.Module, name: str) -> str | None:
    """The module that a name is imported from, also where that is for type checkers alone."""
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return next((node.module for node in imports if name in {alias.name for alias in node.names}), None)


def _assigns(node: ast.stmt, name: str) -> TypeGuard[ast.Assign | ast.AnnAssign]:
    targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets if isinstance(node, ast.Assign) else []
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)
