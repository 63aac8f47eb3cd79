"""A CUDA device, on a machine that has none: cells are skipped with the reason, and all but torch's own calls is tried.

`fake_cuda` has a device whose memory is the host's, and whose streams are as late as they may be. What takes a card is
in `test_cuda_card.py`.
"""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import test_custody
import torch
from documents import ROOT
from fake_cuda import CUDASanitizerErrors, Machine, fake_cuda, sanitizer, there
from refusals import refusal

from bucketproof import Target, Verdict, conformance
from bucketproof.cli import main
from bucketproof.properties import PROFILES, PROPERTIES, Cell, Outcome, Promises, cells, execute, judge, preflight
from bucketproof.properties.campaigns import HOST_CAMPAIGNS, _as_made_on, drawn_for
from bucketproof.properties.cuda import metering, sanitized, unwaited
from bucketproof.properties.device import _SANITIZED
from bucketproof.properties.judging import drawn
from bucketproof.properties.promises import DEFAULT
from bucketproof.properties.ranks.pools import pool_of
from bucketproof.reference import compact, get_named_tensor_buckets_sync
from bucketproof.reference.faults import DEVICE_FAULTS, FAULTS, GROUPS
from bucketproof.report import Style, render
from bucketproof.request import DEVICE_NAMES, BadRequest, placed
from bucketproof.strategies import DEVICES, PROVENANCES, Custody, Item, Lender, Plan, Stream
from bucketproof.strategies.content import POISON
from bucketproof.strategies.devices import CPU, CUDA, HOST_ALONE, HOST_GROUPS, HOST_HOMES, Device, exists_on
from bucketproof.strategies.memory import _read_there
from bucketproof.targets import resolve, target_of
from bucketproof.trial import Trial, _why_unscripted, select
from bucketproof.zoo import judged_here, kill, visit

DETACH = "aliasing.survives-overwrite[detach@cuda]"
FEW = replace(PROFILES["smoke"], examples=4)
THERE = [cell for cell in cells([CUDA]) if cell.device == CUDA]
BY_ID = {cell.id: cell for cell in THERE}
OF_A_DEVICE = [cell for cell in THERE if cell.property.group == CUDA]
OTHER_PROCESS = {cell.id for cell in THERE if cell.campaign in ("opened", "ipc-handle")}
WEIGHTS = Plan(tuple(Item(f"w{i}", "slice", shape=(8,), seed=i) for i in range(4)), bucket_bytes=64)


# Cells.


def test_devices_are_the_names_that_are_taken() -> None:
    assert (*DEVICES, "all") == DEVICE_NAMES
    assert [device.id for device in DEVICES.values()] == list(DEVICES)


def test_a_cell_on_a_device_is_the_hosts_with_the_device_in_its_id() -> None:
    assert BY_ID[DETACH].groups == {CUDA}
    assert BY_ID["values.order[mixed@cuda]"].campaign == "mixed"
    assert not any("@" in cell.id for cell in cells())
    assert len(BY_ID) == len(THERE)


def test_all_of_the_plain_contract_is_on_a_device_but_for_what_only_the_host_has() -> None:
    here = {(cell.property.id, cell.campaign): cell for cell in cells()}
    missing = {cell.campaign for key, cell in here.items() if key not in {(c.property.id, c.campaign) for c in THERE}}

    assert missing == {"numpy", "frombuffer", "exported-to-numpy", "shared-memory", "memory-mapped"}
    more = {cell.campaign for cell in THERE if (cell.property.id, cell.campaign) not in here}
    assert more == {id for id, each in PROVENANCES.items() if each.group == CUDA} | {
        *("moved", "unwaited", "opened", "metered")
    }


def test_models_are_on_a_device_where_both_are_asked_for() -> None:
    both = [cell for cell in cells([CUDA, "manifests"]) if cell.groups == {CUDA, "manifests"}]

    assert {cell.campaign for cell in both} >= {"llama", "gathered-placeholder"}
    assert not {cell.campaign for cell in both} & set(HOST_CAMPAIGNS)


def test_what_the_host_alone_has_is_said_in_one_place() -> None:
    assert {each.home for each in PROVENANCES.values() if each.group in HOST_GROUPS} - {"heap"} <= set(HOST_HOMES)
    assert set(HOST_ALONE) <= set(PROVENANCES)
    for each in PROVENANCES.values():
        assert exists_on(each, CPU) is (each.group != CUDA)
        if each.home in HOST_HOMES or each.id in HOST_ALONE:
            assert not exists_on(each, CUDA)


@pytest.mark.parametrize("custody", Custody)
def test_each_custody_is_among_what_only_a_device_has_or_is_the_hosts_too(custody: Custody) -> None:
    assert any(each.custody is custody and exists_on(each, CUDA) for each in PROVENANCES.values())


# Plans.


@pytest.mark.parametrize("campaign", ["mixed", "detach", "numpy", "shared", "chain"])
def test_a_device_runs_the_hosts_plans_but_for_what_it_does_not_have(campaign: str) -> None:
    here, beside = (drawn(campaign, DEFAULT, PROFILES["smoke"], 0, device) for device in (CPU, CUDA))

    # Two plans may be one, once they have the same provenances.
    assert beside == (*dict.fromkeys(map(as_made_there, here)),)


def as_made_there(plan: Plan) -> Plan:
    """The same weights, of which none is the host's alone."""
    items = tuple(_as_made_on(item, CUDA) for item in plan.items)
    for item, moved in zip(plan.items, items, strict=True):
        assert exists_on(PROVENANCES[moved.provenance], CUDA)
        assert not set(moved.ops) & set(HOST_ALONE)
        assert PROVENANCES[item.provenance].custody is PROVENANCES[moved.provenance].custody
        assert replace(item, provenance="", ops=()) == replace(moved, provenance="", ops=())
        is_there = exists_on(PROVENANCES[item.provenance], CUDA) and not set(item.ops) & set(HOST_ALONE)
        assert not is_there or moved == item
    return replace(plan, items=items)


def test_plans_have_what_only_the_host_has_and_it_is_replaced() -> None:
    for id in ("numpy", "shared-memory", "exported-to-numpy"):
        items = [item for plan in drawn(id, DEFAULT, FEW, 0) for item in plan.items if item.provenance == id]
        assert items
        assert not {_as_made_on(item, CUDA).provenance for item in items} - {"detach", "tied-object"}
    assert any("numpy" in item.ops for plan in drawn("chain", DEFAULT, PROFILES["gate"], 0) for item in plan.items)


def test_a_plan_says_nothing_of_the_device() -> None:
    assert "cuda" not in repr(drawn("mixed", DEFAULT, FEW, 0, CUDA))
    assert drawn_for("mixed", DEFAULT, CUDA) is not drawn_for("mixed", DEFAULT)


# Without a device.


pytest_plugins = ["pytester"]


def run(*arguments: str) -> tuple[int, Verdict]:
    code = main(["check", "--profile", "smoke", "-n", "0", "--json", "v.json", *arguments])
    return code, Verdict.from_json(Path("v.json").read_text())


@pytest.fixture
def no_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bucketproof.strategies.devices._lacks_cuda", lambda: "there is none")
    return "there is none"


def test_on_all_devices_the_hosts_cells_are_judged_and_the_others_are_listed_as_skipped(no_card: str) -> None:
    asked = ("ownership.no-copy[fresh]", "ownership.no-copy[fresh@cuda]", "device.peak")

    code, verdict = run("reference", "--device", "all", *(f"--only={each}" for each in asked))

    assert code == 0
    assert {cell.cell: (cell.status, cell.reason) for cell in verdict.cells} == {
        "smoke": ("pass", ""),
        "ownership.no-copy[fresh]": ("pass", ""),
        "ownership.no-copy[fresh@cuda]": ("skipped", no_card),
        "device.peak[metered@cuda]": ("skipped", no_card),
    }
    assert verdict.provenances == {"fresh": "owned", "fresh@cuda": "owned"}
    assert (verdict.device, verdict.groups) == ("all", ())
    assert ", on cpu and cuda" in render(verdict, Style(colour=False))


def test_on_the_device_alone_nothing_is_judged_and_there_is_no_verdict(
    no_card: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, verdict = run("reference", "--device", "cuda", "--only", "device", "--only", DETACH)

    assert code == 3
    assert {(cell.status, cell.reason) for cell in verdict.cells} == {("skipped", no_card)}
    assert [cell.cell for cell in verdict.cells][:2] == ["smoke", DETACH]
    said = capsys.readouterr().out
    assert said.startswith(f"SKIPPED: {no_card}\n  smoke, {DETACH}, ")
    assert said.count(no_card) == 1
    assert said.endswith(", on cuda\nexit 3: no verdict\n")


def test_all_of_the_devices_cells_are_listed() -> None:
    assert select([], device="cuda") == tuple(THERE)
    assert select([], device="all") == (*cells(), *THERE)
    assert select([], [CUDA]) == cells()  # the group is the device's name, which `placed` has made a device of


@pytest.mark.parametrize(
    ("groups", "device", "expected"),
    [
        ((), "cpu", ((), "cpu")),
        (("cuda",), "cpu", ((), "all")),
        (("files", "cuda"), "cuda", (("files",), "cuda")),
        (("files",), "all", (("files",), "all")),
    ],
)
def test_a_device_may_be_asked_for_as_a_group(groups: Any, device: str, expected: Any) -> None:
    assert placed(groups, device) == expected


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (f"check --only {DETACH} -n 0", f"no property, family or cell {DETACH!r} without --device cuda"),
        ("check --only device.peak -n 0", "no property, family or cell 'device.peak' without --device cuda"),
        (
            "check --only values.order[llama@cuda] -n 0",
            "no property, family or cell 'values.order[llama@cuda]' without --device cuda --with manifests",
        ),
        (
            "check --only values.order[mixed] -n 0 --device cuda",
            "no property, family or cell 'values.order[mixed]'; did you mean 'values.order[mixed@cuda]'",
        ),
        ("check --device gpu", "argument --device: invalid choice: 'gpu' (choose from"),
    ],
)
def test_what_is_not_there_is_refused_in_one_line(
    arguments: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal(arguments, capsys).startswith(line)


def test_pytest_takes_the_device_too(no_card: str, pytester: pytest.Pytester) -> None:
    done = pytester.runpytest_subprocess(
        *("--pyargs", "bucketproof.properties", "--bucketer-device=cuda", "--bucketer-only=device", "-rs"),
        *("-p", "no:cacheprovider"),
    )

    done.assert_outcomes(skipped=1 + len(OF_A_DEVICE))


def test_the_group_says_what_is_missing(no_card: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "groups", "--with", "cuda"]) == 0
    assert capsys.readouterr().out.splitlines()[1].endswith(no_card)


def test_torch_without_cuda_is_told_from_a_machine_without_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    assert DEVICES[CUDA].lacks() == f"torch {torch.__version__} is built without CUDA"
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert DEVICES[CUDA].lacks().startswith("torch sees no CUDA device: ")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert DEVICES[CUDA].lacks() == ""
    assert DEVICES[CPU].lacks() == ""


UNTOUCHED = """
import sys, torch
called = []
names = "_lazy_init init is_available current_stream current_device synchronize Stream Event memory_stats"
for name in names.split():
    setattr(torch.cuda, name, lambda *args, name=name, **options: called.append(name))
from bucketproof.cli import main
assert main(["check", "--profile", "smoke", "-n", "0", "--only", "lifecycle.leaves-no-trace"]) == 0
assert not called, called
assert not torch.cuda.is_initialized()
assert "torch.cuda._sanitizer" not in sys.modules
"""


def test_a_plain_check_calls_nothing_of_cuda() -> None:
    subprocess.run([sys.executable, "-c", UNTOUCHED], check=True, timeout=300, capture_output=True)


SCRIPTS = {path.name: path for path in (ROOT / "tests" / "benchmarks").glob("cuda_*.py")}


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_what_measures_a_card_says_in_a_line_that_there_is_none(
    name: str, no_card: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert runpy.run_path(str(SCRIPTS[name]))["main"]() == 2

    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"{name} takes a CUDA device: {no_card}\n"


def test_a_card_is_said_to_differ_from_the_host_where_it_does(tmp_path: Path) -> None:
    same_cells = runpy.run_path(str(SCRIPTS["cuda_card.py"]))["same_cells"]

    def told(**statuses: str) -> str:
        ids = {"here": "values.order", "there": "values.order[mixed@cuda]", "only": "values.conserved[pinned@cuda]"}
        data = [{"cell": ids[name], "status": status} for name, status in statuses.items()]
        (tmp_path / "v.json").write_text(json.dumps({"cells": data}))
        return str(same_cells(tmp_path / "v.json"))

    assert told(here="fail", there="fail", only="fail") == ""
    assert told(here="pass", there="pass", only="pass") == ""
    assert told(here="fail", there="pass") == "on the host alone: ['values.order[mixed]']; on the card alone: []"
    assert told(here="pass", there="fail") == "on the host alone: []; on the card alone: ['values.order[mixed]']"


def test_a_test_file_may_ask_for_a_device() -> None:
    names = {
        device: [case.id for case in conformance(compact, only=["values.order"], device=device).pytestmark[0].args[1]]  # type: ignore[attr-defined]
        for device in DEVICE_NAMES
    }

    assert names["all"] == [*names["cpu"], *names["cuda"][1:]]
    assert "values.order[mixed@cuda]" in names["cuda"]
    with pytest.raises(BadRequest, match="no device 'gpu': there are cpu, cuda, all"):
        conformance(compact, device="gpu")


# With a device that is none.


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setattr(unwaited, "TIMES", 2)
    _SANITIZED.clear()
    with fake_cuda(monkeypatch) as made:
        yield made


@pytest.fixture
def other_process(machine: Machine) -> None:
    pool_of(1).call(there, seconds=120)


def outcomes(name: str, judged: list[Cell]) -> dict[str, Outcome]:
    target = resolve(name)
    return {cell.id: judge(cell, target, FEW, 0, shrink=False) for cell in judged}


def told(found: dict[str, Outcome]) -> dict[str, str]:
    """What is neither a pass nor unpromised, with what happened."""
    odd = {id: each for id, each in found.items() if each.status not in ("pass", "unpromised")}
    return {id: each.reason or (each.failure.what if each.failure else "") for id, each in odd.items()}


def test_the_reference_passes_on_a_device(machine: Machine) -> None:
    some = replace(FEW, examples=2)
    judged = [cell for cell in THERE if cell.id not in OTHER_PROCESS]

    assert told({cell.id: judge(cell, resolve("reference"), some, 0, shrink=False) for cell in judged}) == {}


@pytest.mark.usefixtures("other_process")
def test_the_reference_passes_where_another_process_takes_part() -> None:
    found = outcomes("reference", [BY_ID[id] for id in sorted(OTHER_PROCESS)])

    assert told(found) == {}
    assert len(found) == 6


SOME = ("detach", "exact-cover", "slice", "fresh", "full-tensor", "set_", "same-block", "graph-buffer", "cuda-array")


@pytest.mark.parametrize("name", ["always-clone", "storage-size", "base-guard"])
def test_a_generation_fails_the_same_cells_as_on_the_host(name: str, machine: Machine) -> None:
    some = [cell for cell in THERE if cell.campaign in SOME and PROVENANCES[cell.campaign].group != CUDA]
    hosts = {f"{cell.id[:-1]}@cuda]": cell for cell in cells() if cell.campaign in SOME}

    failed = set(told(outcomes(name, some)))

    assert failed
    assert failed == {id for id, cell in hosts.items() if told(outcomes(name, [cell]))}


def test_a_view_of_what_only_a_device_has_is_caught(machine: Machine) -> None:
    lent = [id for id, each in PROVENANCES.items() if each.group == CUDA and each.custody is Custody.LENT]
    judged = [BY_ID[f"aliasing.no-lent-memory[{id}@cuda]"] for id in lent if id != "ipc-handle"]

    assert set(told(outcomes("keeps-lent-views", judged))) == {cell.id for cell in judged}


OWNED = [id for id, each in PROVENANCES.items() if each.group == CUDA and each.custody is Custody.OWNED]


@pytest.mark.parametrize("id", OWNED)
def test_what_a_device_owns_is_kept_in_place_and_a_copy_is_flagged(id: str, machine: Machine) -> None:
    cell = BY_ID[f"ownership.no-copy[{id}@cuda]"]

    assert told(outcomes("reference", [cell])) == {}
    assert set(told(outcomes("always-clone", [cell]))) == {cell.id}


def test_the_bytes_at_an_address_are_read_without_being_held() -> None:
    tensor = torch.arange(16, dtype=torch.uint8)
    before = torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)

    assert _read_there(tensor.data_ptr() + 4, 8, torch.device("cpu")) == bytes(range(4, 12))
    assert torch._C._storage_Use_Count(tensor.untyped_storage()._cdata) == before


def test_what_keeps_a_device_from_making_a_weight_is_no_fault_of_the_target(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("no kernel for this")

    monkeypatch.setitem(PROVENANCES, "slice", replace(PROVENANCES["slice"], build=broken))

    found = outcomes("reference", [BY_ID["values.conserved[slice@cuda]"], BY_ID["device.peak[metered@cuda]"]])

    assert {each.status for each in found.values()} == {"error"}
    assert all("no kernel for this" in each.reason for each in found.values())


def test_a_device_is_got_ready_before_a_run_and_left_as_it_was(machine: Machine) -> None:
    def leaves(weights: Any, limit: float) -> Iterator[Any]:
        torch.cuda.set_stream(torch.cuda.Stream())
        return get_named_tensor_buckets_sync(weights, limit)

    run = execute(Target("leaves", leaves), WEIGHTS, device=CUDA)

    assert "the current device or stream was not as before while bucket 0 was consumed" in run.traces
    assert any("current device or stream: not as before after the run" in trace for trace in run.traces)
    assert machine.here is machine.default
    assert machine.log[0] == "synchronize"


def test_a_target_that_takes_devices_alone_is_judged_there(machine: Machine) -> None:
    def picky(weights: Any, limit: float) -> Any:
        return get_named_tensor_buckets_sync(weights, limit)

    assert preflight(Target("picky", picky), CUDA) is None
    trial = Trial(Target("picky", picky), FEW, cells=[BY_ID["values.order[mixed@cuda]"]])
    assert trial.smoke.status == "pass"
    assert [case.values[0].groups for case in trial.tests()] == [(CUDA, "smoke"), (CUDA, "mixed")]


def test_one_process_judges_all_of_a_device_and_a_death_loses_one_campaign() -> None:
    marks = [case.marks[0].args for case in Trial(resolve("reference"), FEW, cells=THERE).tests()]

    assert {args[0] for args in marks} == {CUDA}
    assert {args[1] for args in marks[1:]} == {cell.campaign for cell in THERE}


def test_a_failure_on_a_device_has_a_script_where_the_host_shows_it_too(machine: Machine) -> None:
    trial = Trial(resolve("base-guard"), FEW, cells=[BY_ID[DETACH]], spec="base-guard")

    failure = trial.judge(BY_ID[DETACH]).failure

    assert failure
    assert f"# {DETACH}, broken by base-guard" in failure.script
    assert "# It is shown here in memory of the host, where the same plan breaks it, too." in failure.script


def test_what_takes_a_device_has_no_script() -> None:
    lack = "a script runs in memory of the host, and this takes a CUDA device"

    assert _why_unscripted(BY_ID[DETACH]) == ""
    assert _why_unscripted(BY_ID["aliasing.survives-overwrite[graph-buffer@cuda]"]) == lack
    assert {_why_unscripted(cell) for cell in OF_A_DEVICE} == {lack}


# The memory that there is only there.


def lent(id: str, **lender: Any) -> tuple[Stream, torch.Tensor]:
    stream = Stream(Plan((Item("w", id, shape=(8,)),), 64, lenders=(Lender(**lender),)), device=CUDA)
    return stream, next(stream.iterable())[1]


LENT = ("pinned", "received-aside", "graph-buffer", "cuda-array", "foreign-dlpack")


@pytest.mark.parametrize("kind", ["buffer", "ping-pong"])
@pytest.mark.parametrize("id", LENT)
def test_what_is_lent_there_is_written_again(id: str, kind: str, machine: Machine) -> None:
    stream, tensor = lent(id, kind=kind)
    before = bytes(tensor.view(torch.uint8).tolist())

    stream.finish()

    assert POISON not in before
    assert set(tensor.view(torch.uint8).tolist()) == {POISON}
    assert stream.lends(tensor.data_ptr(), tensor.data_ptr() + 1)


@pytest.mark.usefixtures("other_process")
def test_what_another_process_lends_is_written_there_and_lent_again() -> None:
    stream, tensor = lent("ipc-handle")
    stream.finish()
    assert set(tensor.view(torch.uint8).tolist()) == {POISON}
    numbers = [buffer._number for buffer in stream.buffers]  # type: ignore[attr-defined]
    stream.let_go()
    del tensor

    again, tensor = lent("ipc-handle")

    assert [buffer._number for buffer in again.buffers] == numbers  # type: ignore[attr-defined]
    assert POISON not in tensor.view(torch.uint8).tolist()
    again.let_go()


def test_another_stream_writes_after_the_current_one_and_is_waited_for(machine: Machine) -> None:
    stream, tensor = lent("received-aside")
    machine.log.clear()

    stream.finish()

    assert machine.log == ["1 waits for 0", "0 waits for 1"]
    del tensor


def test_with_two_devices_a_receive_buffer_is_sent_to_by_nccl(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = []

    def broadcast(inputs: list[torch.Tensor], root: int) -> None:
        sent.append(root)
        inputs[1].copy_(inputs[0])

    full = torch.full
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda.nccl, "broadcast", broadcast)
    monkeypatch.setattr(
        torch, "full", lambda *args, device, **options: (sent.append(device), full(*args, **options))[1]
    )
    stream, tensor = lent("received-aside")

    stream.finish()

    assert sent == ["cuda:1", 0]
    assert set(tensor.view(torch.uint8).tolist()) == {POISON}


def test_segments_are_made_expandable_and_then_as_before(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for before, after in (
        ("", "expandable_segments:False"),
        ("max_split_size_mb:64", "max_split_size_mb:64,expandable_segments:False"),
        ("expandable_segments:True",) * 2,
    ):
        monkeypatch.setattr(torch._C, "_accelerator_getAllocatorSettings", lambda before=before: before)
        machine.log.clear()
        with suppress(StopIteration):
            next(Stream(Plan((Item("w", "expandable-segment"),), 64), device=CUDA).iterable())
        assert [each for each in machine.log if "_" in each] == ["expandable_segments:True", after, "record_stream"]


def test_what_another_stream_has_made_is_waited_for_and_told_to_the_allocator(machine: Machine) -> None:
    next(Stream(Plan((Item("w", "side-stream"),), 64), device=CUDA).iterable())

    assert machine.log == ["1 waits for 0", "0 waits for 1", "record_stream"]


@pytest.mark.parametrize("id", [id for id, each in PROVENANCES.items() if each.group == CUDA and id != "ipc-handle"])
def test_what_only_a_device_has_is_of_the_custody_that_it_says(
    id: str, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_custody, "Stream", partial(Stream, device=CUDA))

    test_custody.is_shown_for_all(test_custody.plans_of(id), test_custody.SHOWN[PROVENANCES[id].custody])
    test_custody.is_shown_for_all(test_custody.some_plans_of(id), test_custody.is_another_object)


def test_the_sizes_that_run_out_of_memory_go_up_to_most_of_a_card() -> None:

    script = runpy.run_path(str(SCRIPTS["cuda_oom.py"]))
    total = 80 << 30

    sizes = [size >> 30 for size in script["sizes"](total)]

    assert sizes == [2, 4, 8, 16, 32, 64]
    for size in sizes:
        assert size << 30 < script["share"](size << 30, total) * total < 2 * size << 30


# Experiments.


def test_the_device_sleeps_is_written_to_and_is_written_over_by_another_stream(machine: Machine) -> None:
    log = machine.log

    def bucketer(weights: Any, limit: float) -> Iterator[Any]:
        for name, tensor in weights:
            log.append(name)
            yield [(name, compact(tensor))]

    DEVICES[CUDA].get_ready()
    log.clear()
    seen = unwaited.unwaited(Target("mine", bucketer), replace(WEIGHTS, items=WEIGHTS.items[:2]), CUDA, times=1)

    over = ["1 waits for 0", "0 waits for 1"]
    assert log == ["sleep", "w0", *over, "sleep", "w1", *over, "synchronize"]
    assert seen == unwaited.Seen()


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("name", ["reference", "always-clone", "copy-at-arrival", "async", "waits"])
def test_what_is_ordered_by_the_current_stream_is_sound(
    name: str, newest_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_cuda(monkeypatch, newest_first=newest_first):
        assert unwaited.unwaited(SOUND[name](), WEIGHTS, CUDA, times=2).spoiled == {}


def on_its_own_stream(before: bool, after: bool) -> Target:
    """Copies on a stream of its own, which waits for the current one before, or which that one waits for after."""

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        mine, theirs = torch.cuda.Stream(), torch.cuda.current_stream()
        if before:
            mine.wait_stream(theirs)
        with torch.cuda.stream(mine):
            copy = compact(tensor)
        if after:
            theirs.wait_stream(mine)
        return copy

    return Target("mine", lambda weights, limit: get_named_tensor_buckets_sync(weights, limit, compaction=keep))


SOUND: dict[str, Any] = {
    "reference": lambda: resolve("reference"),
    "always-clone": lambda: resolve("always-clone"),
    "copy-at-arrival": lambda: on_its_own_stream(before=True, after=True),
    "async": lambda: Target("mine", resolve("reference").call),
    "waits": lambda: target_of(DEVICE_FAULTS["waits-for-each-copy"]),
}


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize(("before", "after"), [(False, True), (True, False), (False, False)])
def test_what_is_not_ordered_is_found_out(
    before: bool, after: bool, newest_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_cuda(monkeypatch, newest_first=newest_first):
        seen = unwaited.unwaited(on_its_own_stream(before, after), WEIGHTS, CUDA, times=2)

    assert seen.spoiled
    assert not seen.error


def test_a_target_that_raises_where_nobody_waits_is_told(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def bucketer(weights: Any, limit: float) -> Iterator[Any]:
        if any(tensor.nbytes > 100 for _, tensor in weights):
            raise RuntimeError("too large")
        yield from ()

    run = execute(resolve("reference"), WEIGHTS, device=CUDA)
    run.target = Target("mine", bucketer)

    assert list(PROPERTIES["device.stream-order"].judge(run)) == []
    monkeypatch.setattr(unwaited, "TIMES", 1 << 10)
    problems = [each.what for each in PROPERTIES["device.stream-order"].judge(run)]
    assert problems == ["it raised RuntimeError: too large, where nobody waits for the device"]


def test_a_race_that_the_sanitizer_finds_is_told_once(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[bool] = []

    def races(weights: Any, limit: float) -> Iterator[Any]:
        for name, tensor in weights:
            if watched:
                raise CUDASanitizerErrors("read and write by two streams\nhere")
            yield [(name, compact(tensor))]

    module = sanitizer()
    module.cuda_sanitizer.enable = lambda: watched.append(True)
    module.cuda_sanitizer.disable = watched.clear
    monkeypatch.setitem(sys.modules, "torch.cuda._sanitizer", module)
    target = Target("races", races)

    assert sanitized.races(target, WEIGHTS, CUDA) == "CUDASanitizerErrors: read and write by two streams"
    assert not watched
    run = execute(target, WEIGHTS, device=CUDA)
    told = [each.what for each in PROPERTIES["device.stream-order"].judge(run)]
    assert told == ["torch's sanitizer found a race: CUDASanitizerErrors: read and write by two streams"]
    assert list(PROPERTIES["device.stream-order"].judge(run)) == []


def test_the_sanitizer_is_switched_off_whatever_happens(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    module, log = sanitizer(), []
    module.cuda_sanitizer.enable, module.cuda_sanitizer.disable = (
        (lambda: log.append("on")),
        (lambda: log.append("off")),
    )
    monkeypatch.setitem(sys.modules, "torch.cuda._sanitizer", module)
    monkeypatch.setattr(sanitized, "unwaited", lambda *args, **options: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        sanitized.races(resolve("reference"), WEIGHTS, CUDA)

    assert log == ["on", "off"]


METERED = Plan(
    tuple(
        Item(f"w{i}", id, shape=(200,), seed=i) for i, id in enumerate(("fresh", "slice", "detach", "partial-slice"))
    ),
    bucket_bytes=1600,
    consumer="drop",
)


@pytest.mark.parametrize("name", ["reference", "always-clone", "base-guard", "aligned-packer"])
@pytest.mark.parametrize("limit", [1, 800, 1600, 1 << 20])
def test_what_the_allocator_gives_a_bucketer_is_within_what_is_allowed(name: str, limit: int, machine: Machine) -> None:
    assert metering.metered(resolve(name), replace(METERED, bucket_bytes=limit), CUDA) == metering.Metered()


def hoards(weights: Any, limit: float) -> Iterator[Any]:
    """Keeps one more copy of each item."""
    copies = []
    for name, tensor in weights:
        copies.append(tensor.detach().clone())
        yield [(name, compact(tensor))]


def test_what_is_more_than_allowed_is_told(machine: Machine) -> None:
    found = metering.metered(Target("hoards", hoards), METERED, CUDA)

    assert found.excess
    given, allowed = found.excess
    assert given > allowed >= 512


def test_an_allocator_that_says_nothing_is_no_pass(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "cudaMallocAsync")

    found = outcomes("reference", [BY_ID["device.peak[metered@cuda]"]])

    assert [each.status for each in found.values()] == ["error"]
    assert "the allocator cudaMallocAsync does not say" in str(told(found))


# Faults.


def test_a_device_fault_is_told_as_the_others_are() -> None:
    for fault in DEVICE_FAULTS.values():
        assert fault.sentence.endswith(".")
        assert "\n" not in fault.sentence
        assert fault.property in PROPERTIES
        assert fault.device == CUDA
        assert fault.group == "device"
        assert fault.group in GROUPS
    assert not set(FAULTS) & set(DEVICE_FAULTS)


def test_no_property_of_a_device_is_without_a_fault() -> None:
    found = {each.property for each in DEVICE_FAULTS.values()}
    assert {each.id for each in PROPERTIES.values() if each.group == CUDA} == found


# On this device nothing can be moved to the host, and a handle is the host's own memory.
SHOWN = [name for name in DEVICE_FAULTS if name not in ("moves-to-the-host", "packs-into-what-it-has-sent")]


@pytest.mark.parametrize("name", SHOWN)
def test_an_alarm_rings(name: str, machine: Machine) -> None:
    fault = DEVICE_FAULTS[name]

    failed = set(told(outcomes(name, [cell for cell in OF_A_DEVICE if cell.id not in OTHER_PROCESS])))

    assert {id.partition("[")[0] for id in failed} == {fault.property}


@pytest.mark.usefixtures("other_process")
def test_a_tensor_that_is_filled_again_after_it_was_sent_is_found_out() -> None:
    cell = BY_ID["device.ipc-survives[opened@cuda]"]

    found = judge(cell, resolve("packs-into-what-it-has-sent"), PROFILES["smoke"], 0)

    assert found.failure
    assert "another process read other bits, once its lender and the allocator went on" in found.failure.what


def test_a_weight_on_another_device_is_told(machine: Machine) -> None:
    run = execute(resolve("reference"), WEIGHTS, device=CUDA)
    assert list(PROPERTIES["device.stays"].judge(run)) == []

    run.delivered[1].facts = run.delivered[1].facts._replace(device="cuda:1")

    [problem] = PROPERTIES["device.stays"].judge(run)
    assert (problem.what, problem.item) == ("it came from cpu and was yielded on cuda:1", 1)


def test_the_zoo_leaves_out_what_it_cannot_judge_and_says_so(no_card: str, capsys: pytest.CaptureFixture[str]) -> None:
    names, note = judged_here()

    assert names == list(FAULTS)
    assert note == f"{len(DEVICE_FAULTS)} faults were not judged: {no_card}.\n"
    assert main(["zoo", "waits-for-each-copy", "-n", "0"]) == 2
    said = capsys.readouterr().err
    assert said == f"bucketproof: fault 'waits-for-each-copy' shows on cuda alone: {no_card}\n"


def test_the_zoo_judges_a_device_fault_on_its_device(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bucketproof.zoo.cells", lambda groups: [BY_ID["device.peak[metered@cuda]"], *cells()[:1]])

    assert set(DEVICE_FAULTS) <= set(judged_here()[0])
    assert judged_here()[1] == ""
    [found] = visit(["takes-room-that-no-operator-sees"], "smoke", 0, 0)
    assert (found.status, [each.cell for each in found.catches]) == ("caught", ["device.peak[metered@cuda]"])
    assert kill("waits-for-each-copy", profile="smoke", seed=0).status == "missed"  # its cell is not among these


def test_faults_are_listed_with_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "faults"]) == 0

    said = capsys.readouterr().out
    assert all(name in said for name in (*list(FAULTS)[:3], *DEVICE_FAULTS))


def test_a_host_needs_nothing() -> None:
    host = Device("cpu", "cpu")

    assert (host.lacks(), host.state()) == ("", ())
    host.get_ready()
    host.settle()
    host.restore(host.state())
    host.reuse([8])


def test_promises_that_are_not_made_are_not_judged_on_a_device() -> None:
    late = Promises(retention="at-flush")

    assert BY_ID["device.stream-order[unwaited@cuda]"].unpromised(late)
    assert BY_ID["device.peak[metered@cuda]"].unpromised(late) is None


def test_the_verdict_says_where_it_was_judged(no_card: str) -> None:
    _, verdict = run("reference", "--device", "cuda", "--only", "device.peak")
    text = verdict.to_json()

    assert json.loads(text)["device"] == "cuda"
    assert Verdict.from_json(text.replace('"device": "cuda",', "")).device == "cpu"  # of a suite that knew of none
