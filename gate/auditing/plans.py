"""From a finding to a plan: what was seen in production, small enough for a test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bucketproof.auditing.findings import Finding, HandedOver, Kind
from bucketproof.strategies import DTYPES, PROVENANCES, Item, Lender, Plan
from bucketproof.strategies.plans import LenderKind

_LARGEST = 4
"""Elements of a dimension at most: what matters is whose memory it is."""
_SMALL = 8
"""Items that a lender's turn takes at most."""
_LIMIT = 1 << 30


def plan_of(finding: Finding) -> tuple[Plan, str]:
    """A plan, and the cell that a bucketer fails on it which keeps what it should copy.

    A lender of the suite lends views, so a finding about one object that is handed over again and again becomes a
    view of the same bytes: the reference can tell it from an owner, and did not have to in production.

    Raises `ValueError` for a finding of a bucketer's, whose stream cannot be told from it.
    """
    if finding.kind in ("written", "foreign", "hidden-base"):
        return _lent(finding)
    if finding.kind not in _MADE:
        raise ValueError(f"there is no plan for what was {finding.kind}: judge the bucketer with `bucketproof check`")
    provenance, cell = _MADE[finding.kind](finding.items[0])
    items = tuple(_item(each, provenance, seed) for seed, each in enumerate(_distinct(finding.items)))
    return Plan(items, bucket_bytes=_LIMIT), cell


def _lent(finding: Finding) -> tuple[Plan, str]:
    first = finding.items[0]
    provenance = _lent_as(first)
    turns = min(max(finding.period, 1), _SMALL)
    names = [*_distinct(finding.items)]
    fillers = [Item(f"between.{number}", "fresh") for number in range(turns - 1)]
    items = (_item(names[0], provenance, 0), *fillers, *(_item(each, provenance, 1) for each in names[1:]))
    whole = first.nbytes == first.storage_bytes
    lender = Lender(kind=_kind(turns), size="exact" if whole else "larger")
    return Plan(items, bucket_bytes=_LIMIT, lenders=(lender,)), f"aliasing.survives-overwrite[{provenance}]"


def _kind(turns: int) -> LenderKind:
    return "buffer"


def _lent_as(item: HandedOver) -> str:
    if item.foreign:
        return "numpy"
    if item.inference and not item.has_base:
        return "inference"
    if item.has_base:
        return "exact-cover" if item.nbytes == item.storage_bytes else "slice"
    return "parameter" if item.type == "Parameter" else "detach"


def _pinned(item: HandedOver) -> tuple[str, str]:
    provenance = "partial-slice" if item.has_base else "partial-detach"
    return provenance, f"aliasing.no-pinned-storage[{provenance}]"


_MADE: dict[Kind, Callable[[HandedOver], tuple[str, str]]] = {
    "pinned": _pinned,
    "overlap": _pinned,
    "graph": lambda item: ("autograd-result", "values.self-contained[autograd-result]"),
    "requires-grad": lambda item: ("trained-parameter", "aliasing.no-pinned-storage[trained-parameter]"),
    "tied": lambda item: ("tied", "values.tied"),
}
"""The provenance that is nearest to what was seen, and the cell that judges it."""


def _distinct(items: tuple[HandedOver, ...]) -> list[HandedOver]:
    names: set[str] = set()
    found = []
    for item in items:
        name = item.name if item.name not in names else f"{item.name}.{item.index}"
        names.add(name)
        found.append(replace(item, name=name))
    return found


def _item(item: HandedOver, provenance: str, seed: int) -> Item:
    """The hand-over in that provenance, with its dtype and shape as far as the provenance has them."""
    shape = tuple(max(1, min(size, _LARGEST)) for size in item.shape)
    domain = PROVENANCES[provenance].domain
    dtype = item.dtype if item.dtype in DTYPES and item.dtype in domain.dtypes else "float32"
    shape = (1,) * (domain.min_dims - len(shape)) + shape
    return Item(item.name, provenance, dtype, shape, seed=seed)
