"""Whether a bucketer that is at work still names what it has flushed.

Looked for in the variables of its frames, while it pulls the next item: what is held elsewhere, by its consumer for
one, is nobody's fault. What is only on a frame's stack has no name, and is not seen.
"""

from __future__ import annotations

import inspect
import sys
from collections import deque
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

_MOST = 2_000
"""Things that are looked at: a bucketer names a bucket or two."""
_CLOSED = (str, bytes, int, float, bool, type(None), type, FunctionType, ModuleType, CodeType, FrameType)
"""What holds no tensor, or leads out of the bucketer."""


def names_any(wanted: Callable[[object], bool], until: frozenset[CodeType], skip: tuple[type, ...]) -> bool:
    """Whether a variable of the frames between here and `until` leads to a thing that is wanted."""
    seen: set[int] = set()
    for frame in _frames(until):
        if frame.f_code.co_flags & inspect.CO_OPTIMIZED and not _is_ours(frame):
            variables = frame.f_locals
            is_found = _leads(list(variables.values()), wanted, seen, skip)
            if type(variables) is dict:
                variables.clear()  # a copy, which lives as long as the frame and would hold what it names
            if is_found:
                return True
    return False


def _frames(until: frozenset[CodeType]) -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code not in until:
        yield frame
        frame = frame.f_back


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith(_HERE)


_HERE = __name__.rpartition(".")[0]


def _leads(first: list[Any], wanted: Callable[[object], bool], seen: set[int], skip: tuple[type, ...]) -> bool:
    todo = deque(first)
    first.clear()
    while todo and len(seen) < _MOST:
        thing = todo.popleft()
        if isinstance(thing, (*_CLOSED, *skip)) or id(thing) in seen:
            continue
        seen.add(id(thing))
        if wanted(thing):
            return True
        todo.extend(_parts(thing))
    return False


def _parts(thing: Any) -> Iterator[Any]:
    if isinstance(thing, dict):
        yield from list(thing.values())
    elif isinstance(thing, (list, tuple, set, frozenset, deque)):
        yield from list(thing)
    elif isinstance(vars_of := getattr(thing, "__dict__", None), dict):
        yield from list(vars_of.values())
