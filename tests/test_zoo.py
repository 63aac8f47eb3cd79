"""The kill matrix: what catches a fault is told as it is, also where that is not what should."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from bucketproof.cli import main
from bucketproof.kills import Catch, Kill, Matrix, markdown, row
from bucketproof.reference import get_named_tensor_buckets_sync as sound
from bucketproof.reference.faults import FAULTS
from bucketproof.reference.faults.registry import Fault, fault
from bucketproof.request import NoVerdict
from bucketproof.zoo import kill

LATE = FAULTS["copies-at-flush"]


@pytest.fixture
def zoo(monkeypatch: pytest.MonkeyPatch) -> dict[str, Fault]:
    """A copy of the zoo, to put things in."""
    mine = dict(FAULTS)
    for module in ("bucketproof.zoo", "bucketproof.reference.faults", "bucketproof.reference.faults.registry"):
        monkeypatch.setattr(f"{module}.FAULTS", mine)
    return mine


def judged(fault: Fault, zoo: dict[str, Fault]) -> Kill:
    zoo[fault.name] = fault
    return kill(fault.name, profile="smoke", seed=0)


def test_a_fault_is_caught_by_its_own_property(zoo: dict[str, Fault]) -> None:
    found = judged(LATE, zoo)
    assert found.status == "caught"
    assert {catch.property for catch in found.own} == {LATE.property}
    assert min(catch.examples for catch in found.own) == found.own[0].examples > 0


def test_a_fault_that_another_property_catches_is_misattributed(zoo: dict[str, Fault]) -> None:
    found = judged(replace(LATE, property="values.order"), zoo)
    assert found.status == "misattributed"
    assert LATE.property in found.others
    assert row(found)[2] == "MISATTRIBUTED"


def test_a_fault_that_is_none_is_missed(zoo: dict[str, Fault]) -> None:
    found = judged(replace(LATE, call=sound), zoo)
    assert found.status == "missed"
    assert found.catches == ()
    assert row(found)[2] == "MISSED"


def test_a_fault_without_a_docstring_or_with_the_name_of_another_is_refused(zoo: dict[str, Fault]) -> None:
    def silent(weights: object, limit: float) -> None: ...

    def keeps_float8(weights: object, limit: float) -> None:
        """Does as another."""

    with pytest.raises(ValueError, match="fault 'silent' has no docstring; say in one line what it does"):
        fault("values.order", exposed_by="nothing")(silent)
    with pytest.raises(ValueError, match="fault 'keeps-float8' is registered twice; give one of them another name"):
        fault("values.order", exposed_by="nothing")(keeps_float8)


def test_the_command_writes_the_matrix_and_the_page(tmp_path, capsys) -> None:
    data, page = tmp_path / "zoo.json", tmp_path / "zoo.md"
    code = main(["zoo", "takes-eight-items", "lets-nan-pass", "-n0", "--json", str(data), "--markdown", str(page)])
    out = capsys.readouterr().out
    assert code == 0
    assert out.splitlines()[1].split()[:2] == ["takes-eight-items", "lifecycle.drains-producer"]
    assert "2 faults: 2 caught, 0 misattributed, 0 missed" in out
    told = json.loads(data.read_text())
    assert [(each["fault"], each["status"]) for each in told["faults"]] == [
        ("takes-eight-items", "caught"),
        ("lets-nan-pass", "caught"),
    ]
    assert "| `lets-nan-pass`: Refuses what is zero or less, which a NaN is not. |" in page.read_text()


@pytest.mark.parametrize(
    ("stop", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted, 1 of 2 faults were not judged"),
        (NoVerdict("the process of a fault died"), 3, "the process of a fault died, 1 of 2 faults were not judged"),
    ],
)
def test_what_was_judged_before_a_run_was_broken_off_is_told(stop, code, said, tmp_path, capsys, monkeypatch) -> None:
    def visit(names: list[str], *_: object) -> Iterator[Kill]:
        yield Kill.of(FAULTS[names[0]], [Catch(f"{FAULTS[names[0]].property}[slice]", 3, 0.1)], 1.0)
        raise stop

    monkeypatch.setattr("bucketproof.zoo.visit", visit)
    data = tmp_path / "zoo.json"
    assert main(["zoo", "takes-eight-items", "lets-nan-pass", "--json", str(data)]) == code
    told = capsys.readouterr()
    assert told.err == f"bucketproof: {said}\n"
    assert "1 of 2 faults: 1 caught" in told.out
    assert [each["fault"] for each in json.loads(data.read_text())["faults"]] == ["takes-eight-items"]
    assert json.loads(data.read_text())["missing"] == 1


def test_a_fault_that_nobody_knows_is_refused_in_one_line(capsys) -> None:
    assert main(["zoo", "lets-nan-passs", "-n0"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("bucketproof: no fault 'lets-nan-passs'; did you mean 'lets-nan-pass'")
    assert said.endswith("? See: bucketproof list faults\n")


def test_a_matrix_in_which_one_is_missed_fails() -> None:
    caught = Kill.of(LATE, [Catch(f"{LATE.property}[slice]", 3, 0.1)], 1.0)
    missed = Kill.of(LATE, [], 1.0)
    assert Matrix("smoke", 0, 2.0, (caught,), 1).exit_code == 0
    assert Matrix("smoke", 0, 2.0, (caught, missed), 2).exit_code == 1
    assert "1 caught, 0 misattributed, 1 missed; 1 by one property only" in markdown(
        Matrix("smoke", 0, 2.0, (caught, missed), 2)
    )
