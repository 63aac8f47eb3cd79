"""What there is to ask for, as tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def targets() -> str:
    """Built-in targets and tried releases."""
    from bucketproof.reference import released
    from bucketproof.targets import BUILT_IN, describe

    rows = [(name, describe(name)) for name in BUILT_IN]
    rows += [(spec, "the function in that project's wheel") for spec in released.known()]
    rows += [("package.module:attribute", "your own: a callable (weights, bucket_bytes), or a Target")]
    return _table([*rows, ("path/to/file.py:attribute", "the same, loaded from a file")])


def properties() -> str:
    """Every property's id, level and sentence."""
    from bucketproof.properties import PROPERTIES

    return _table([(each.id, each.level, each.sentence) for each in PROPERTIES.values()])


def provenances() -> str:
    """Every provenance's id, custody and sentence."""
    from bucketproof.strategies import PROVENANCES

    return _table([(each.id, each.custody.value, each.sentence) for each in PROVENANCES.values()])


LISTS: dict[str, Callable[[], str]] = {
    "targets": targets,
    "properties": properties,
    "provenances": provenances,
}


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)) for row in rows)
    return "".join(f"{line.rstrip()}\n" for line in lines)
