"""The documentation: pages that are made are as they are made, and what the others show works."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from documents import ROOT

from bucketproof.cli import main
from bucketproof.pages import PAGES, page
from bucketproof.properties import PROFILES, PROPERTIES, Run, cells, execute
from bucketproof.properties.evidence import Facts
from bucketproof.properties.judging import drawn
from bucketproof.properties.oracles import ORACLES, oracles_of
from bucketproof.properties.run import Delivered
from bucketproof.strategies import Item, Lender, Plan
from bucketproof.targets import resolve


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_command_makes(name: str) -> None:
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == page(name), "run: bucketproof docs docs"


def test_the_command_writes_all_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", str(tmp_path / "new" / "folder")]) == 0
    assert {path.name for path in (tmp_path / "new" / "folder").iterdir()} == set(PAGES)
    assert capsys.readouterr().out.startswith(f"{tmp_path}/new/folder has contract.md, ")


def test_pages_that_cannot_be_written_are_refused_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()

    assert main(["docs", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.startswith(f"bucketproof: no page can be written into {tmp_path}/file: ")


# The oracles that the page on the contract names for each property.

EVIDENCE = {
    ("Facts", "bits"): "bits",
    ("Delivered", "later"): "bits",
    ("Facts", "span"): "addresses",
    ("Facts", "storage"): "addresses",
    ("Facts", "storage_id"): "addresses",
    ("Delivered", "lent"): "addresses",
    ("Delivered", "kept"): "addresses",
    ("Run", "pinned"): "lifetimes",
    ("Run", "stale"): "lifetimes",
    ("Run", "watched"): "lifetimes",
    ("Run", "copies"): "ledger",
    ("Run", "peaks"): "ledger",
    ("Run", "error"): "course",
}
"""What of a run is whose evidence."""


@contextmanager
def looked_at(patch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """The oracles of which something is read in here, but for what new runs read to judge nothing."""
    seen: set[str] = set()
    watching = True

    def get(self: Any, name: str) -> Any:
        if watching and (oracle := EVIDENCE.get((type(self).__name__, name))):
            seen.add(oracle)
        return object.__getattribute__(self, name)

    def together(self: Run, *plans: Any) -> list[Run]:
        nonlocal watching
        watching = False
        try:
            return run_together(self, *plans)
        finally:
            watching = True

    run_together = Run.together
    with patch.context() as patched:
        patched.setattr(Run, "together", together)
        for kind in (Run, Delivered, Facts):
            patched.setattr(kind, "__getattribute__", get)
        yield seen


ITEMS = tuple(Item(f"w{i}", "detach", seed=i) for i in range(6))
LENT = Plan(ITEMS, bucket_bytes=4, lenders=(Lender("ping-pong"),))
SPOILED = {
    "lifecycle.bucket-is-the-consumers": LENT,
    "lifecycle.producer-error": replace(LENT, ends="error", ends_at=6),
}
"""Plans for cells that look at some evidence only if a bucket was spoiled."""


def some_runs() -> Iterator[tuple[Any, Run]]:
    """A few runs of some targets for each cell, but for those of most provenances."""
    profile = replace(PROFILES["smoke"], examples=3)
    for target in map(resolve, ("base-guard", "aligned-packer")):
        judged = [cell for cell in cells() if cell.provenance in (None, "fresh", "detach", "partial-slice")]
        runs: dict[str, list[Run]] = {}
        for cell in judged:
            if cell.unpromised(target.promises):
                continue
            if cell.campaign not in runs:
                plans = drawn(cell.campaign, target.promises, profile, 0)[:2]
                runs[cell.campaign] = [execute(target, plan) for plan in plans]
            yield from ((cell, run) for run in runs[cell.campaign])
    by_id = {cell.id: cell for cell in cells()}
    for name, plan in SPOILED.items():
        yield by_id[name], execute(resolve("base-guard"), plan)


def test_each_property_looks_at_the_oracles_that_it_is_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    found = defaultdict(set)

    for cell, run in [*some_runs()]:
        with looked_at(monkeypatch) as seen:
            cell.problems(run)
        found[cell.property.id] |= seen

    said = {each.id: set(oracles_of(each.id)) for each in PROPERTIES.values() if not each.group}
    assert said == {**{name: {"course"} for name in PROPERTIES if name.startswith("boundaries.atomic")}, **found}
    assert set().union(*said.values()) == set(ORACLES)
