"""The page on the verdict's JSON form, made from its schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bucketproof.pages.tables import code, codes, table
from bucketproof.schema import schema


def verdict() -> Iterator[str]:
    """The lines of the page."""
    whole = schema()
    yield from ("# The verdict", "", whole["description"], "")
    yield from _INTRODUCTION
    yield from _fields(whole)
    for name, part in whole["$defs"].items():
        if "properties" in part:
            yield from (f"## {name}", "")
            if "description" in part:
                yield from (part["description"], "")
            yield from _fields(part)


_INTRODUCTION = (
    "The schema itself (draft 2020-12) is `verdict.schema.json` in the package:",
    '`python -c "import bucketproof.schema as s; print(s.PATH)"`. A field in *italics* is always there.',
    "",
)


def _fields(part: Mapping[str, Any]) -> Iterator[str]:
    required = part.get("required", ())
    rows = [
        (f"*{code(name)}*" if name in required else code(name), _type(each), _said(each))
        for name, each in part["properties"].items()
    ]
    yield from table(("field", "is", "what it says"), rows)


def _said(each: Mapping[str, Any]) -> str:
    return str(each.get("description") or _referred(each).get("description", ""))


def _referred(each: Mapping[str, Any]) -> Mapping[str, Any]:
    name = each.get("$ref", "").removeprefix("#/$defs/")
    found: Mapping[str, Any] = schema()["$defs"].get(name, {})
    return found


def _type(each: Mapping[str, Any]) -> str:
    """What a value is, in words: `an array of step`."""
    if "$ref" in each:
        referred = _referred(each)
        name = each["$ref"].removeprefix("#/$defs/")
        return f"[{name}](#{name})" if "properties" in referred else _type(referred)
    if "enum" in each:
        return codes(each["enum"])
    if "const" in each:
        return code(each["const"])
    if "items" in each:
        return f"array of {_type(each['items'])}"
    if isinstance(each.get("additionalProperties"), dict):
        return f"object, by name: {_type(each['additionalProperties'])}"
    return str(each["type"])
