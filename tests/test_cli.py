"""The command line: what it does, how it refuses, and that the project it is run in neither bends it nor notices."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

import pytest

import bucketproof.trial
from bucketproof.cli import main
from bucketproof.properties import PROFILES, PROPERTIES, Cell, Outcome, cells
from bucketproof.reference import released
from bucketproof.request import PROFILE_NAMES
from bucketproof.schedule import Schedule
from bucketproof.strategies import PROVENANCES
from bucketproof.targets import BUILT_IN
from bucketproof.verdict import Verdict

COMMAND = Path(sys.executable).with_name("bucketproof")
QUICK = ("--profile", "smoke", "--only", "ownership.no-copy[fresh]")
HERE = ("-n", "0")

MINE = """
import os, sys, time, warnings
from bucketproof.reference import base_guard, get_named_tensor_buckets as get_buckets

class Odd(UserWarning):
    "The controlling process could not import this."

def keeps(weights, bucket_bytes):
    "Dies when it is judged on weights that are named in the environment, which smoke has not."
    async def watched():
        async for bucket in get_buckets(weights, bucket_bytes):
            for name, _ in bucket:
                if name != "weight":
                    os._exit(7)
            yield bucket
    return watched()

def kills(weights, bucket_bytes):
    os._exit(7)

def noisy(weights, bucket_bytes):
    print("NOISE")
    os.write(1, b"NOISE")
    os.write(2, b"NOISE")
    warnings.warn(Odd("NOISE"))
    return get_buckets(weights, bucket_bytes)

def number(weights, bucket_bytes):
    return 3

def nothing(weights, bucket_bytes):
    return None

def sleepy(weights, bucket_bytes):
    open("started", "w").close()
    time.sleep(2)
    return get_buckets(weights, bucket_bytes)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a user's file, which is the current one."""
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a user would see."""
    return subprocess.run(
        [COMMAND, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
        check=False,
    )


def test_a_sound_target_passes(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["check", *QUICK, *HERE])

    assert capsys.readouterr().out.endswith("exit 0: every promise holds\n")
    assert code == 0


def test_a_broken_promise_is_told_with_the_plan_and_the_steps(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["check", "always-clone", *QUICK, *HERE])

    out = capsys.readouterr().out
    assert out.startswith(f"FAIL ownership.no-copy[fresh]\n  {PROPERTIES['ownership.no-copy'].sentence}\n")
    assert re.search(r"Smallest stream:\n    0\. '", out)
    assert re.search(r"The plan, as code:\n    Plan\(", out)
    assert "Step by step:\n     1. the bucketer was called: bucket_bytes=" in out
    assert "Traceback" not in out
    assert "hypothesis" not in out.lower()
    assert code == 1


@pytest.mark.parametrize(
    ("only", "ids"),
    [
        (["values.order"], {cell.id for cell in cells() if cell.property.id == "values.order"}),
        (
            ["ownership.no-copy[fresh]", "ownership.no-copy[stack]"],
            {"ownership.no-copy[fresh]", "ownership.no-copy[stack]"},
        ),
    ],
)
def test_only_what_is_asked_for_is_judged(here: Path, only: list[str], ids: set[str]) -> None:
    main(["check", "--profile", "smoke", *HERE, "--json", "v.json", *(f"--only={each}" for each in only)])

    verdict = Verdict.from_json((here / "v.json").read_text())
    assert {cell.cell for cell in verdict.cells} == {"smoke", *ids}


def test_a_family_is_all_of_its_cells() -> None:
    from bucketproof.trial import select

    assert {cell.property.id.partition(".")[0] for cell in select(["boundaries"])} == {"boundaries"}
    assert select([]) == cells()


def test_a_name_that_is_empty_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """It is a variable that was not set, and must not be green."""
    assert main(["check", ""]) == 2
    assert capsys.readouterr().err.startswith("bucketproof: no built-in target '': there are reference, ")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("check base-gard", "no built-in target 'base-gard'; did you mean 'base-guard'?"),
        ("check gone.py:f", "there is no file gone.py"),
        ("check no_such_module:f", "no module 'no_such_module'"),
        ("check mine.py:number", "mine.py:number: "),
        ("check --only values.ordr", "no property, family or cell 'values.ordr'; did you mean 'values.order"),
        ("check --only nothing-like-it", "no property, family or cell 'nothing-like-it'"),
        ("check --json no/such/folder/v.json", "no/such/folder/v.json cannot be written: No such file"),
        ("check --json .", ". cannot be written: Is a directory"),
        ("check --profile smok", "argument --profile: invalid choice: 'smok'"),
        ("check --seed x", "argument --seed: invalid int value: 'x'"),
        ("check -n -1", "argument -n: there cannot be fewer processes than none"),
        ("check -n many", "argument -n: invalid"),
        ("check --unknown", "unrecognized arguments: --unknown"),
        ("list sorrows", "argument {targets,properties,provenances,groups,faults}: invalid choice: 'sorrows'"),
        ("", "the following arguments are required: COMMAND"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(
    here: Path, arguments: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = arguments.split()

    code = main([*words, *HERE] if words[:1] == ["check"] and "-n" not in words else words)

    said = capsys.readouterr()
    assert said.err.startswith(f"bucketproof: {line}")
    assert said.err.count("\n") == 1
    assert said.out == ""
    assert code == 2


def test_workers_refuse_as_one(here: Path) -> None:
    done = command("check", "mine.py:number", "-n", "2", *QUICK)

    assert done.stderr.startswith("bucketproof: mine.py:number: ")
    assert done.stderr.count("\n") == 1
    assert (done.returncode, done.stdout) == (2, "")


def test_the_json_is_not_touched_by_a_refused_request(here: Path) -> None:
    (here / "v.json").write_text("older")

    main(["check", "gone.py:f", *HERE, "--json", "v.json"])

    assert (here / "v.json").read_text() == "older"
    assert sorted(os.listdir(here)) == ["mine.py", "v.json"]


def test_the_json_may_go_to_a_device(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *QUICK, *HERE, "--json", os.devnull]) == 0
    assert not Path(os.devnull).is_file()


def test_a_target_that_fails_smoke_is_judged_no_further(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["check", "mine.py:nothing", *QUICK, *HERE, "--json", "v.json"])

    verdict = Verdict.from_json((here / "v.json").read_text())
    assert [(cell.cell, cell.status) for cell in verdict.cells] == [
        ("smoke", "fail"),
        ("ownership.no-copy[fresh]", "skipped"),
    ]
    assert "is wrong. No cell was judged." in capsys.readouterr().out
    assert code == 1


def test_one_request_has_one_verdict_whoever_judges(here: Path) -> None:
    """Workers or this process: the same plans in the same order; only the seconds differ."""
    only = ("ownership.no-copy[full-tensor]", "aliasing.survives-overwrite[detach]", "boundaries.bad-limit")
    request = ("check", "base-guard", "--profile=smoke", *(f"--only={each}" for each in only))

    codes = command(*request, "-n2", "--json=2.json").returncode, main([*request, *HERE, "--json=0.json"])

    two, none = (re.sub(r'"seconds": [\d.]+', "", (here / file).read_text()) for file in ("2.json", "0.json"))
    assert two == none
    assert two.count('"status": "fail"') == 2
    assert codes == (1, 1)


def test_a_target_that_kills_its_process_leaves_the_other_cells_their_verdicts(here: Path) -> None:
    names = ("ownership.no-copy[fresh]", "values.conserved[fresh]", "boundaries.bad-limit")

    done = command("check", "mine.py:keeps", "-n2", "--profile=smoke", "--json=v.json", *(f"--only={n}" for n in names))

    verdict = Verdict.from_json((here / "v.json").read_text())
    reasons = {cell.cell: (cell.status, cell.reason) for cell in verdict.cells}
    assert reasons == {
        "smoke": ("pass", ""),
        "boundaries.bad-limit": ("pass", ""),
        "ownership.no-copy[fresh]": ("error", "the process died while this cell was judged"),
        "values.conserved[fresh]": (
            "error",
            "not judged: the process died while ownership.no-copy[fresh] was judged on the same plans",
        ),
    }
    assert verdict.provenances == {"fresh": "owned"}
    assert (done.returncode, done.stderr) == (3, "")


def test_a_target_that_kills_its_process_at_once_is_no_endless_story(here: Path) -> None:
    done = command("check", "mine.py:kills", "-n2", *QUICK)

    assert done.stdout.startswith("NO VERDICT: the process died while the target was loaded, or")
    assert (done.returncode, done.stderr) == (3, "")


HOSTILE = {
    "pytest.ini": "[pytest]\naddopts = --definitely-unknown\npython_functions = nothing\nfilterwarnings = error\n",
    "conftest.py": "raise RuntimeError('the host conftest was loaded')\n",
    "hostplugin.py": "raise RuntimeError('the host plugin was loaded')\n",
    "sub/conftest.py": "raise RuntimeError('the host conftest was loaded')\n",
    "test_host.py": "raise RuntimeError('the host tests were collected')\n",
}


@pytest.fixture
def hostile(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which pytest cannot even start."""
    for name, text in HOSTILE.items():
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text(text)
    monkeypatch.setenv("PYTEST_ADDOPTS", "--also-unknown")
    monkeypatch.setenv("PYTEST_PLUGINS", "hostplugin")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return here


def test_the_project_around_it_is_neither_heard_nor_touched(hostile: Path) -> None:
    before, environment = sorted(hostile.rglob("*")), dict(os.environ)

    assert main(["check", "mine.py:get_buckets", *HERE, *QUICK]) == 0
    assert sorted(hostile.rglob("*")) == before
    assert dict(os.environ) == environment


def test_nor_is_it_with_workers_though_it_cannot_be_written_to_and_the_target_is_noisy(hostile: Path) -> None:
    before = sorted(hostile.rglob("*"))
    hostile.chmod(0o555)
    try:
        done = command("check", "mine.py:noisy", "-n2", *QUICK)
    finally:
        hostile.chmod(0o755)

    assert "NOISE" not in done.stdout
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(hostile.rglob("*")) == before


def test_an_interrupted_run_ends_in_one_line(here: Path) -> None:
    run = subprocess.Popen(
        [COMMAND, "check", "mine.py:sleepy", "-n2", *QUICK, "--json", "v.json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a group of its own, all of which gets the signal, as from a keyboard
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    )
    for _ in range(600):
        if (here / "started").exists():
            break
        time.sleep(0.1)
    os.killpg(run.pid, signal.SIGINT)
    out, err = run.communicate(timeout=60)

    assert err == "bucketproof: interrupted, no verdict\n"
    assert (run.returncode, out) == (130, "")
    assert not [name for name in os.listdir(here) if "json" in name]


def test_a_reader_that_stops_reading_is_no_error() -> None:
    done = subprocess.run(
        f"{COMMAND} list provenances | head -1", shell=True, capture_output=True, text=True, timeout=60, check=False
    )

    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_the_process_that_waits_for_the_workers_does_not_wait_for_torch() -> None:
    code = "import sys, bucketproof.cli; sys.exit(bool({'torch', 'hypothesis'} & set(sys.modules)))"

    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


@pytest.mark.parametrize("what", ["targets", "properties", "provenances"])
def test_lists_are_aligned_tables_of_all_there_is(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", what]) == 0

    lines = capsys.readouterr().out.splitlines()
    plain = {
        "properties": [each.id for each in PROPERTIES.values() if not each.group],
        "provenances": [each.id for each in PROVENANCES.values() if not each.group],
    }
    names = {"targets": [*BUILT_IN, *released.known()], **plain}[what]
    assert [line.split()[0] for line in lines[1:]][: len(names)] == list(names)
    column = lines[0].index(lines[0].split(maxsplit=1)[1])
    assert all(line[column - 1] == " " != line[column] for line in lines)


def test_the_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--version"])

    assert capsys.readouterr().out == f"bucketproof {bucketproof.__version__}\n"
    assert left.value.code == 0


def test_the_profiles_that_can_be_asked_for_are_those_that_there_are() -> None:
    assert tuple(PROFILES) == PROFILE_NAMES


class Worker:
    """A worker that writes down what it is told."""

    def __init__(self) -> None:
        self.given: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def scheduled(campaigns: str, *workers: Worker) -> Schedule:
    """A schedule of tests that are named by their numbers, each of the campaign that has one letter.

    A capital letter is a campaign on a device.
    """
    schedule = Schedule()
    tests = [str(index) for index in range(len(campaigns))]
    named = (f"cuda/{each}" if each.isupper() else each for each in campaigns)
    schedule.campaigns = dict(zip(tests, named, strict=True))
    for worker in workers:
        schedule.add_node(worker)
        schedule.add_node_collection(worker, tests)
    schedule.schedule()
    return schedule


def test_a_campaign_stays_in_one_process() -> None:
    one, two = Worker(), Worker()

    schedule = scheduled("aaabbc", one, two)
    schedule.mark_test_complete(two, 3)

    assert (one.given, two.given) == ([0, 1, 2], [3, 4, 5])
    assert two.shutting_down
    assert not schedule.tests_finished


def test_all_of_a_device_stays_in_one_process_and_what_kills_it_loses_one_campaign() -> None:
    one, two = Worker(), Worker()
    schedule = scheduled("aaAABBC", one, two)
    assert (one.given, two.given) == ([0, 1], [2, 3, 4, 5, 6])
    schedule.mark_test_complete(one, 0)
    schedule.mark_test_complete(two, 2)

    assert schedule.remove_node(two) == "3"

    assert schedule.lost == {"3": "3"}
    assert schedule._waiting == deque([[4, 5, 6]])  # to be taken together by whoever comes next


def test_a_campaign_that_kills_its_worker_is_given_up_and_what_the_worker_had_besides_is_not() -> None:
    one, two = Worker(), Worker()
    schedule = scheduled("abbcc", one)
    schedule.mark_test_complete(one, 0)

    assert schedule.remove_node(one) == "1"
    assert schedule.lost == {"1": "1", "2": "1"}
    schedule.add_node(two)
    schedule.add_node_collection(two, [str(index) for index in range(5)])
    schedule.schedule()
    assert two.given == [3, 4]
    for index in (3, 4):
        schedule.mark_test_complete(two, index)
    assert schedule.tests_finished
    assert schedule.remove_node(two) is None


def test_workers_that_find_different_cells_are_an_error() -> None:
    one, two = Worker(), Worker()
    schedule = scheduled("ab", one)
    schedule.add_node(two)

    with pytest.raises(RuntimeError, match="different cells"):
        schedule.add_node_collection(two, ["0"])


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (pytest.exit.Exception("enough"), "the run ended before this cell was judged"),
        (RuntimeError("a fault of the suite"), "the suite itself failed: RuntimeError: a fault of the suite"),
    ],
)
def test_a_cell_that_nobody_could_judge_is_no_pass(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, reason: str
) -> None:
    def judge(cell: Cell, *_: object) -> Outcome:
        if cell.property.id == "values.order":
            raise error
        return Outcome(cell.id, "pass", cell.level)

    monkeypatch.setattr(bucketproof.trial, "judge", judge)

    code = main(["check", "--only=ownership.no-copy[fresh]", "--only=values.order", *HERE])

    out = capsys.readouterr().out
    assert f"NO VERDICT: {reason}\n" in out
    assert code == 3
