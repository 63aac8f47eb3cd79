"""Parts of a run: they are all of it, each cell once, and their verdicts make the verdict on the whole."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from bucketproof.cli import main
from bucketproof.properties import PROPERTIES, Outcome, cells
from bucketproof.strategies import PROVENANCES
from bucketproof.trial import select
from bucketproof.verdict import Verdict, read

ONLY = ("ownership.no-copy[full-tensor]", "aliasing.survives-overwrite[detach]", "boundaries.bad-limit", "values.order")
REQUEST = ("check", "base-guard", "--profile=smoke", "-n0", *(f"--only={cell}" for cell in ONLY))


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 150])
def test_parts_are_all_cells_each_once_and_campaigns_stay_together(parts: int) -> None:
    shards = [select([], shard=f"{number}/{parts}") for number in range(1, parts + 1)]

    assert Counter(cell.id for shard in shards for cell in shard) == Counter(cell.id for cell in cells())
    assert max(Counter(campaign for shard in shards for campaign in {cell.campaign for cell in shard}).values()) == 1
    sizes = [len({cell.campaign for cell in shard}) for shard in shards]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("shard", ["0/4", "5/4", "1", "1/", "/4", "-1/4", "a/b", "1/4/4", "1.0/4"])
def test_a_part_that_is_none_is_refused_in_one_line(shard: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "-n0", f"--shard={shard}"]) == 2
    assert capsys.readouterr().err == f"bucketproof: no shard {shard!r}: say which of how many, from 1/4 to 4/4\n"


def judged(path: Path) -> dict[str, object]:
    """A verdict but for what differs from run to run."""
    verdict = json.loads(path.read_text())
    return {
        **verdict,
        "seconds": 0,
        "cells": [{**cell, "seconds": 0} for cell in verdict["cells"]],
    }


def test_the_verdicts_on_the_parts_make_the_verdict_on_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    codes = [main([*REQUEST, f"--shard={number}/3", f"--json={number}.json"]) for number in (1, 2, 3)]
    assert ", part 3/3 alone\n" in capsys.readouterr().out
    assert main([*REQUEST, "--json=whole.json"]) == 1
    capsys.readouterr()
    code = main(["merge", "3.json", "1.json", "2.json", "--json=merged.json", "--markdown=m.md", "--html=m.html"])

    assert ", part " not in capsys.readouterr().out
    assert sorted(codes) == [0, 1, 1]
    assert code == 1
    assert judged(Path("merged.json")) == judged(Path("whole.json"))
    assert read("merged.json").shard is None


PLACES = {id: place for place, id in enumerate(PROPERTIES)}
ENVIRONMENT = {"python": "3.12.1", "torch": "2.13.0", "platform": "here"}
PART = Verdict(
    target="mine",
    origin={},
    profile="smoke",
    seed=7,
    environment=ENVIRONMENT,
    seconds=1.5,
    cells=(Outcome("smoke", "pass", "MUST"), Outcome("values.order", "pass", "MUST")),
    provenances={},
    promises={"order": "kept"},
    shard="1/2",
)
OTHER = replace(PART, shard="2/2", cells=(PART.cells[0], Outcome("values.tied", "pass", "MUST")))


def merge(folder: Path, *verdicts: Verdict) -> int:
    """The exit code of merging them into `all.json`."""
    paths = [folder / f"{number}.json" for number in range(len(verdicts))]
    for path, verdict in zip(paths, verdicts, strict=True):
        path.write_text(verdict.to_json())
    return main(["merge", *map(str, paths), "--json", str(folder / "all.json")])


@pytest.mark.parametrize(
    ("verdicts", "line"),
    [
        ((PART,), "there is no part 2/2 among these"),
        ((PART, replace(OTHER, shard="1/2")), "there are several parts 1/2 among these"),
        ((PART, replace(OTHER, shard=None)), "these are not parts of one whole: 1/2, a whole"),
        ((PART, replace(OTHER, shard="2/3")), "these are not parts of one whole: 1/2, 2/3"),
        ((PART, replace(OTHER, target="other")), "are not of one run, for they differ in target: mine and other"),
        ((PART, replace(OTHER, seed=8)), "are not of one run, for they differ in seed: 7 and 8"),
        ((PART, replace(OTHER, strict=True)), "are not of one run, for they differ in strict"),
        ((PART, replace(OTHER, promises={"order": None})), "are not of one run, for they differ in promises"),
        (
            (PART, replace(OTHER, environment={**ENVIRONMENT, "torch": "2.14.0"})),
            "are not of one run, for they differ in torch: 2.13.0 and 2.14.0",
        ),
        (
            (PART, replace(OTHER, environment={**ENVIRONMENT, "acme-sync": "1.0"})),
            "are not of one run, for they differ in acme-sync",
        ),
    ],
)
def test_what_is_no_whole_run_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verdicts: tuple[Verdict, ...], line: str
) -> None:
    assert merge(tmp_path, *verdicts) == 2

    [said] = capsys.readouterr().err.splitlines()
    assert line in said
    assert not (tmp_path / "all.json").exists()


def test_machines_may_differ_and_the_time_is_what_all_took(tmp_path: Path) -> None:
    assert merge(tmp_path, PART, replace(OTHER, environment={**ENVIRONMENT, "platform": "there"})) == 0

    merged = read(str(tmp_path / "all.json"))
    assert merged.environment == {**ENVIRONMENT, "platform": "here, there"}
    assert merged.seconds == 3.0


@pytest.mark.parametrize("first", [True, False])
def test_the_worst_that_is_told_of_the_smoke_test_is_what_is_told(tmp_path: Path, first: bool) -> None:
    smoke = Outcome("smoke", "error", "MUST", reason="the process died")
    died = replace(PART, cells=(smoke,), promises={}, origin={}, target="mine.py:mine")

    assert merge(tmp_path, *((died, OTHER) if first else (OTHER, died))) == 3

    merged = read(str(tmp_path / "all.json"))
    assert (merged.target, merged.promises) == ("mine", {"order": "kept"})
    assert [(cell.cell, cell.status) for cell in merged.cells] == [("smoke", "error"), ("values.tied", "pass")]


def test_cells_are_in_the_order_of_the_contract_and_what_nobody_knows_is_last(tmp_path: Path) -> None:
    kinds = ("large-lent", "large", *(id for id, each in PROVENANCES.items() if each.group != "cuda"))
    ids = ["smoke", "values.order", *(f"values.conserved[{kind}]" for kind in kinds)]
    ids[1:] = sorted(ids[1:], key=lambda id: PLACES.get(id.partition("[")[0], len(PLACES)))
    # What is on a device comes after all that is on the host.
    ids += ["values.conserved[fresh@cuda]", "values.conserved[pinned@cuda]", "device.stays[moved@cuda]", "no.such-cell"]
    mixed = ids[:]
    random.Random(0).shuffle(mixed)
    found = tuple(Outcome(id, "pass", "MUST") for id in mixed)

    assert merge(tmp_path, replace(PART, cells=found[::2]), replace(OTHER, cells=found[1::2])) == 0
    assert [cell.cell for cell in read(str(tmp_path / "all.json")).cells] == ids


def test_verdicts_without_parts_are_put_together(tmp_path: Path) -> None:
    assert merge(tmp_path, replace(PART, shard=None), replace(OTHER, shard=None)) == 0
    assert len(read(str(tmp_path / "all.json")).cells) == 3


def test_a_file_that_is_no_verdict_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "no.json").write_text("{}")

    assert main(["merge", str(tmp_path / "no.json")]) == 2
    assert capsys.readouterr().err.startswith(f"bucketproof: {tmp_path / 'no.json'} is no verdict")
