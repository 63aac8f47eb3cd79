"""The page on promises: what a target can say of itself, and what that selects."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import fields

from bucketproof.pages.tables import code, codes, table
from bucketproof.properties import PROPERTIES, Promises
from bucketproof.properties.campaigns import NEEDED
from bucketproof.properties.promises import DEFAULT, VALUES
from bucketproof.strategies import DTYPES


def promises() -> Iterator[str]:
    """The lines of the page."""
    yield from _INTRODUCTION
    said = _docstrings()
    rows = [(code(each.name), _values(each.name), said[each.name], _selects(each.name)) for each in fields(Promises)]
    yield from table(("promise", "values, the default first", "what it says", "what it takes part in"), rows)
    yield from _TARGET


_INTRODUCTION = (
    "# Promises",
    "",
    "A bucketer is judged by what it promises. A plain callable promises the defaults; a `Target` says otherwise:",
    "",
    "```python",
    "from bucketproof import Promises, Target",
    "",
    'mine = Target("mine", get_buckets, Promises(bound="soft", duplicates="error", lookahead=None))',
    "```",
    "",
    "`None` is a promise that is not made. A property that needs one then is *unpromised*: it is shown as such, and",
    "never counted as a pass. A value that is none, and promises that contradict each other, are a `ValueError`.",
    "",
)
_TARGET = ("[The contract](contract.md) says of each property which promises select it.",)


def _docstrings() -> dict[str, str]:
    """What the source says below each field."""
    [tree] = ast.parse(textwrap.dedent(inspect.getsource(Promises))).body
    assert isinstance(tree, ast.ClassDef)
    said = {field.name: "" for field in fields(Promises)}
    for field, beneath in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(beneath, ast.Expr):
            said[ast.unparse(field.target)] = " ".join(ast.literal_eval(beneath.value).split())
    return said


def _values(name: str) -> str:
    default = getattr(DEFAULT, name)
    values = [default, *(each for each in VALUES.get(name, ()) if each != default and each not in DTYPES)]
    others = [*map(repr, values), *(["the name of a dtype"] if name == "dtype" else [])]
    return codes(others[: len(values)]) + "".join(f", {each}" for each in others[len(values) :])


def _selects(name: str) -> str:
    selected = [each.id for each in PROPERTIES.values() if name in each.needs]
    kinds = [f"`…[{campaign}]`" for campaign, needed in NEEDED.items() if needed == name]
    return ", ".join([codes(selected)] * bool(selected) + kinds) or "every property"
