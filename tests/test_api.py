"""What can be imported is what is promised to stay, and all of it says what it is."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

import pytest
from hypothesis.strategies import SearchStrategy

from bucketproof.pages.api import PUBLIC, exports, first

EXPORTS = {
    "bucketproof": """
        __version__ audit audit_bucketer conformance Promises Target Verdict
    """,
    "bucketproof.adapters": """
        compaction packer sender
    """,
    "bucketproof.strategies": """
        budgets build CHAINS Custody DEVICES DTYPES dtypes EXPORTERS Group GROUPS Item items Layout LAYOUTS
        Lender lenders Manifest manifest manifests name_of names Plan plans Provenance PROVENANCES
        shapes Stream UNIQUE_NAMES Weight weights
    """,
    "bucketproof.strategies.provenances": """
        CHAINS Domain Layout layout LAYOUTS OPS Provenance provenance PROVENANCES register view
    """,
    "bucketproof.properties": """
        Cell cells execute Failure judge NotABucketer Outcome preflight Problem Profile PROFILES
        Promises PROPERTIES Property Run Target
    """,
    "bucketproof.reference": """
        always_clone base_guard ClassIterator compact copy_at_flush copy_on_arrival flush_when_full
        get_named_tensor_buckets get_named_tensor_buckets_sync mapping_buckets owns_its_memory
        pack_aligned storage_size unpack_aligned
    """,
}
"""A name that is taken away breaks somebody's program: then the version says so. One that is added is added here."""

ALL = [(module, name) for module in EXPORTS for name in EXPORTS[module].split() if name != "__version__"]
each = pytest.mark.parametrize(("module", "name"), ALL, ids=[f"{module}.{name}" for module, name in ALL])


def test_the_public_modules_are_those_of_the_page() -> None:
    assert tuple(EXPORTS) == PUBLIC


@pytest.mark.parametrize("module", EXPORTS)
def test_a_module_exports_what_is_promised_and_all_of_it_is_there(module: str) -> None:
    found = import_module(module)

    assert sorted(found.__all__) == sorted(EXPORTS[module].split())
    assert all(hasattr(found, name) for name in found.__all__)


@each
def test_what_is_exported_says_what_it_is(module: str, name: str) -> None:
    said = first(exports(module)[name])

    assert said.endswith((".", "…", ":")), said
    found = getattr(import_module(module), name)
    if inspect.isclass(found) or inspect.isroutine(found):
        assert inspect.getdoc(found) == inspect.cleandoc(exports(module)[name])


@each
def test_what_is_exported_has_types(module: str, name: str) -> None:
    found = getattr(import_module(module), name)
    if inspect.isroutine(found):
        signature = inspect.signature(found)
        annotations = [parameter.annotation for parameter in signature.parameters.values()]
        assert inspect.Signature.empty not in [*annotations, signature.return_annotation]


@each
def test_a_strategy_says_what_it_shrinks_towards(module: str, name: str) -> None:
    found: Any = getattr(import_module(module), name)
    if inspect.isroutine(found) and str(inspect.signature(found).return_annotation).find(SearchStrategy.__name__) >= 0:
        assert "hrinks towards" in exports(module)[name]


def test_some_of_these_are_strategies() -> None:
    assert sum("hrinks towards" in text for text in exports("bucketproof.strategies").values()) >= 7
