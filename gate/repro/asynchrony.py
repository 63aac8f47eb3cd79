"""Checks are written for buckets that come synchronously; here they are made to wait for those that do not."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from bucketproof.repro.source import Edit, begin, edited, end

_LOOPS = ("run", "ensure_future")
"""Functions of `asyncio` that are given what is to be waited for."""


def called(text: str, *, waits: bool) -> str:
    """The text with calls of the bucketer itself where it has `buckets(bucketer, weights)`."""
    tree = ast.parse(text)
    loops = {id(node.iter) for node in ast.walk(tree) if isinstance(node, (ast.For, ast.AsyncFor))}
    iterated = "aiter({})" if waits else "iter({})"
    edits = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) == "buckets":
            bucketer, weights = (ast.get_source_segment(text, each) for each in node.args)
            call = f"{bucketer}({weights}, LIMIT)"
            edits.append((begin(node), end(node), call if id(node) in loops else iterated.format(call)))
    return edited(text, edits)


@dataclass
class Waiting:
    """Rewrites definitions that call something that has to be waited for."""

    names: set[str] = field(default_factory=lambda: {"step", "close"})
    """What has to be waited for: functions of `parts.waiting`, and in time all that call them."""

    def __call__(self, text: str) -> str:
        """The definition, with `async` and `await` where they are due."""
        return edited(text, self._edits(ast.parse(text)))

    def _edits(self, tree: ast.Module) -> Iterator[Edit]:
        done = {id(call) for node in ast.walk(tree) for call in _awaited(node)}
        for function in ast.walk(tree):
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                own = [*_own(function)]
                calls = [node for node in own if _called(node) in self.names and id(node) not in done]
                loops = [node for node in own if isinstance(node, ast.For) and _called(node.iter) in _BUCKETERS]
                yield from self._waiting(function, [*loops, *calls])

    def _waiting(self, function: ast.FunctionDef | ast.AsyncFunctionDef, waits: list[ast.AST]) -> Iterator[Edit]:
        if waits and isinstance(function, ast.FunctionDef):
            yield begin(function), begin(function), "async "
        if (waits or isinstance(function, ast.AsyncFunctionDef)) and not _yields(function):
            self.names.add(function.name)
        for node in waits:
            if isinstance(node, (ast.For, ast.Call)):
                yield begin(node), begin(node), "async " if isinstance(node, ast.For) else "await "


_BUCKETERS = ("bucketer", "buckets")


def _awaited(node: ast.AST) -> list[ast.expr]:
    """What somebody waits for here, or what an event loop is given to run."""
    if isinstance(node, ast.Await):
        return [node.value]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LOOPS:
        return node.args
    return []


def _yields(function: ast.AST) -> bool:
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in _own(function))


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, but not those of functions inside."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield child
            yield from _own(child)


def _called(node: ast.AST) -> str:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
