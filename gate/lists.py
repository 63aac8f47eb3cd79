"""What there is to ask for, as tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from bucketproof import extensions
from bucketproof.extensions import whose

if TYPE_CHECKING:
    from bucketproof.properties import Property


def targets(groups: Collection[str]) -> str:
    """Built-in targets, tried releases, and the targets of packages outside."""
    from bucketproof.reference.released import registry
    from bucketproof.targets import BUILT_IN, describe

    rows = [(name, describe(name)) for name in BUILT_IN]
    rows += [(each.spec(version), each.why) for each in registry.adapters() for version in each.releases]
    rows += [(each.name, f"{whose(each)}: {each.value}") for each in extensions.targets()]
    rows += [("package.module:attribute", "your own: a callable (weights, bucket_bytes), or a Target")]
    rows += [("path/to/file.py:attribute", "the same, loaded from a file")]
    return table([("target", "what it is"), *rows])


def properties(groups: Collection[str]) -> str:
    """Every property's id, level, sentence, and the promises that select it, if it is not judged in any case."""
    from bucketproof.properties import PROPERTIES

    extensions.load()
    shown = [each for each in PROPERTIES.values() if each.group in ("", *groups)]
    rows = [(each.id, each.level, each.sentence, _promises(each)) for each in shown]
    return table([("id", "level", "sentence", "selected by the promises"), *rows])


def _promises(prop: Property) -> str:
    return "; ".join(f"{name}={' or '.join(map(repr, values)) or 'any'}" for name, values in prop.needs.items())


def provenances(groups: Collection[str]) -> str:
    """Every provenance's id, custody and sentence."""
    from bucketproof.strategies import PROVENANCES

    extensions.load()
    shown = [each for each in PROVENANCES.values() if each.group in ("", *groups)]
    rows = [(each.id, each.custody.value, each.sentence) for each in shown]
    return table([("id", "custody", "sentence"), *rows])


def groups(chosen: Collection[str]) -> str:
    """Every group of cells that is not judged unless it is asked for, and what this machine lacks for it."""
    from bucketproof.properties import cells
    from bucketproof.strategies import GROUPS

    shown = [each for each in GROUPS.values() if not chosen or each.id in chosen]
    rows = [(each.id, str(len(cells([each.id])) - len(cells())), each.sentence, each.missing()) for each in shown]
    return table([("group", "cells", "what is in it", "missing here"), *rows])


def faults(groups: Collection[str]) -> str:
    """Every fault of the zoo, the property that must catch it, and what it does."""
    from bucketproof.reference.faults import DEVICE_FAULTS, FAULTS

    shown = [*FAULTS.values(), *DEVICE_FAULTS.values()]
    rows = [(each.name, each.property, each.origin, each.sentence) for each in shown]
    return table([("fault", "must be caught by", "origin", "what it does"), *rows])


LISTS: dict[str, Callable[[Collection[str]], str]] = {
    "targets": targets,
    "properties": properties,
    "provenances": provenances,
    "groups": groups,
    "faults": faults,
}


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Lines of aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)) for row in rows)
    return "".join(f"{line.rstrip()}\n" for line in lines)
