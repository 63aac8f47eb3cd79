"""The JSON Schema of a verdict, `verdict.schema.json`, and as much of JSON Schema as it needs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("verdict.schema.json")


def problem(data: object) -> str | None:
    """What is first found wrong with a verdict, and where, in one line; None if nothing is."""
    whole = schema()
    return next(_problems(data, whole, "it", whole["$defs"]), None)


@lru_cache(maxsize=1)
def schema() -> dict[str, Any]:
    """The schema, as data."""
    read: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
    return read


def _problems(data: Any, schema: Mapping[str, Any], place: str, defs: Mapping[str, Any]) -> Iterator[str]:
    if "$ref" in schema:
        yield from _problems(data, defs[schema["$ref"].removeprefix("#/$defs/")], place, defs)
    if wrong := _own_problem(data, schema):
        yield f"{place} {wrong}"
    elif isinstance(data, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties", {})
        for name, value in data.items():
            yield from _problems(value, properties.get(name, others), f"{place}.{name}".removeprefix("it."), defs)
    elif isinstance(data, list):
        for number, each in enumerate(data):
            yield from _problems(each, schema.get("items", {}), f"{place}[{number}]", defs)


def _own_problem(data: Any, schema: Mapping[str, Any]) -> str | None:
    """What is wrong with a value, whatever is in it."""
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    allowed = [schema["const"]] if "const" in schema else schema.get("enum")
    if kinds and not any(_IS[kind](data) for kind in kinds):
        return f"is no {' and no '.join(kinds)}"
    if allowed and not any(data == each and type(data) is type(each) for each in allowed):
        return f"is none of {', '.join(map(str, allowed))}"
    if _IS["number"](data) and data < schema.get("minimum", data):
        return f"is less than {schema['minimum']}"
    if isinstance(data, dict) and (missing := [name for name in schema.get("required", []) if name not in data]):
        return f"has no {missing[0]!r}"
    return None


_IS: dict[str, Callable[[Any], bool]] = {
    "object": lambda data: isinstance(data, dict),
    "array": lambda data: isinstance(data, list),
    "string": lambda data: isinstance(data, str),
    "boolean": lambda data: isinstance(data, bool),
    "null": lambda data: data is None,
    "integer": lambda data: isinstance(data, int) and not isinstance(data, bool),
    "number": lambda data: isinstance(data, (int, float)) and not isinstance(data, bool),
}
