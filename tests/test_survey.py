"""The survey of released bucketers: adapters on tiny wheels made here, and the command on verdicts of a few cells."""

from __future__ import annotations

import asyncio
import json
import platform
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import torch

from bucketproof import judged, survey
from bucketproof.cli import main
from bucketproof.properties import NotABucketer, preflight
from bucketproof.reference import released
from bucketproof.reference.released import Packer, Sender, Unavailable, registry
from bucketproof.reference.released.sglang import flattened_by_dtype
from bucketproof.request import BadRequest
from bucketproof.targets import resolve
from bucketproof.verdict import Verdict

FAKES = runpy.run_path(str(Path(__file__).with_name("fakes.py")))
VERSION: str = FAKES["VERSION"]
TARGETS = [each.spec(VERSION) for each in registry.adapters()]
PLAIN, PACKER, SENDER = f"ms-swift@{VERSION}", f"sglang@{VERSION}", f"verl@{VERSION}:sender"
CELLS = ("values.order", "boundaries.limit", "boundaries.bad-limit", "memory.lookahead", "packing.alignment")
"""Few of them, to judge little."""


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with a tiny wheel for each project."""
    cache = tmp_path_factory.mktemp("cache")
    FAKES["fill"](cache)
    return cache


@pytest.fixture
def cache(wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same wheels in a cache of its own, no way to run pip, and few cells to judge."""
    own = tmp_path / "own"
    own.mkdir()
    for folder in wheels.iterdir():
        (own / folder.name).symlink_to(folder)
    monkeypatch.setenv("BUCKETPROOF_CACHE", str(own))
    platform.platform()  # which runs one itself, once
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a process was run"))
    return own


@pytest.fixture
def few_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bucketproof.trial.cells", lambda: _few())
    monkeypatch.setattr("bucketproof.judged.Trial", _trial)


def _few() -> tuple[Any, ...]:
    from bucketproof.properties import cells

    return tuple(cell for cell in cells() if cell.id in CELLS)


def _trial(target: Any, profile: Any, seed: int, spec: str) -> Any:
    from bucketproof.trial import Trial

    return Trial(target, profile, seed, _few(), spec=spec)


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch, few_cells: None) -> list[str]:
    """What is judged, which is done in this process."""
    asked: list[str] = []

    def judge(spec: str, order: survey.Order, scratch: str, into: Path) -> str:
        asked.append(spec)
        try:
            into.write_text(judged.verdict_on(spec, order.profile, order.seed).to_json(), encoding="utf-8")
        except BadRequest as error:
            return str(error)
        return ""

    monkeypatch.setattr(survey, "_in_a_process", judge)
    return asked


class TestAdapters:
    @pytest.mark.parametrize("spec", TARGETS)
    def test_each_calls_what_is_in_its_wheel(self, cache: Path, spec: str) -> None:
        before = set(sys.modules)
        target = resolve(spec)
        assert preflight(target) is None
        assert target.origin["version"] == VERSION
        assert len(target.origin["sha256"]) == 64
        tops = {name.partition(".")[0] for name in set(sys.modules) - before}
        assert not tops & {"vllm", "sglang", "cosmos_rl", "rlinf", "swift", "lmdeploy", "skyrl", "verl"}

    @pytest.mark.parametrize("spec", TARGETS)
    def test_each_says_why_it_promises_otherwise(self, cache: Path, spec: str) -> None:
        found = released.load(spec)
        assert found.promises.keys() == found.reasons.keys()
        assert all(found.reasons.values())
        target = resolve(spec)
        for name, value in found.promises.items():
            assert getattr(target.promises, name) == value
        assert isinstance(found.made, Packer) == (target.promises.padding is not None)

    @pytest.mark.parametrize("adapter", list(registry.adapters()), ids=lambda each: each.spec("").replace("@", ""))
    def test_each_says_what_has_changed_from_release_to_release(self, adapter: registry.Adapter) -> None:
        assert adapter.history
        assert all(said.because for version in adapter.releases for said in adapter.promised(version).values())

    @pytest.mark.parametrize(
        ("version", "promised"),
        [("0.5.1", ["order"]), ("0.5.5.post3", ["order"]), ("0.5.6", []), ("0.5.10", []), ("0.5.23", [])],
    )
    def test_a_promise_may_be_that_of_earlier_releases_alone(self, version: str, promised: list[str]) -> None:
        assert list(registry.find("sglang", "").promised(version)) == promised
        assert "layout" in registry.find("verl", "").promised("0.7.0")
        assert not registry.find("verl", "").promised("0.7.1")

    def test_a_class_that_takes_one_dtype_is_given_one(self) -> None:
        class Bucket:
            def __init__(self, named_tensors: Any = (), flattened_tensor: Any = None, metadata: Any = ()) -> None:
                self.named = [*metadata, *named_tensors]
                assert len({tensor.dtype for _, tensor in self.named}) == 1

            def get_flattened_tensor(self) -> None: ...

            def get_metadata(self) -> Any:
                return self.named

            reconstruct_tensors = get_metadata

        packer = flattened_by_dtype(Bucket)
        named = [(name, torch.ones(1, dtype=torch.half if name == "b" else torch.int8)) for name in "abc"]
        assert [name for name, _ in packer.unpack(packer.pack(named))] == ["a", "c", "b"]

    def test_there_are_targets_of_nine_projects_and_more(self) -> None:
        assert len({spec.partition("@")[0] for spec in released.known()}) >= 9
        assert len(released.known()) >= 15

    @pytest.mark.parametrize("spec", [PACKER, SENDER])
    def test_what_is_no_callable_says_what_it_is(self, cache: Path, spec: str) -> None:
        found = released.load(spec)
        with pytest.raises(TypeError, match=r"is a (packer|sender), and no callable"):
            _ = found.call
        assert isinstance(found.made, (Packer, Sender))

    @pytest.mark.parametrize("spec", [SENDER, f"ms-swift@{VERSION}:sender"])
    def test_a_sender_whose_weights_fail_leaves_nobody_waiting(self, cache: Path, spec: str) -> None:
        def failing() -> Iterator[tuple[str, torch.Tensor]]:
            yield "a", torch.ones(2)
            raise KeyError("b")

        async def drive() -> list[Any]:
            return list(await resolve(spec).call(failing(), 64))

        with pytest.raises(KeyError, match="b"):
            asyncio.run(drive())

    @pytest.mark.parametrize("spec", [SENDER, f"ms-swift@{VERSION}:sender"])
    def test_a_sender_whose_receiver_fails_is_not_left_waiting(self, cache: Path, spec: str) -> None:
        made = released.load(spec).made
        assert isinstance(made, Sender)

        def failing(weights: object) -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            asyncio.run(made.send(iter([("a", torch.ones(2))]), 64, failing))

    def test_what_has_gone_wrong_is_told_where_memory_cannot_be_closed_after_it(self, cache: Path) -> None:
        made = released.load(SENDER).made
        assert isinstance(made, Sender)

        def failing(weights: object) -> None:
            try:
                raise ZeroDivisionError
            finally:
                raise BufferError("cannot close exported pointers exist")

        with pytest.raises(ZeroDivisionError):
            asyncio.run(made.send(iter([("a", torch.ones(2))]), 64, failing))

    def test_a_package_that_a_file_needs_is_named(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pydantic", None)
        with pytest.raises(Unavailable, match=r"pydantic.*: pip install 'bucketproof\[survey\]'"):
            released.load(f"ms-swift@{VERSION}:flattened")


@pytest.mark.parametrize("spec", ["checkpoint-engine@0.4.2", "cosmos-rl@0.4.7", "cosmos-rl@0.4.7:packer"])
def test_a_published_wheel_is_what_the_adapter_expects(spec: str) -> None:
    try:
        found = released.load(spec)
    except Unavailable as error:
        pytest.skip(str(error))
    assert found.sha256 == registry.find(found.project, spec.partition(":")[2]).releases[found.version]
    assert preflight(resolve(spec)) is None


class TestNames:
    def test_without_any_there_are_all(self) -> None:
        assert survey.chosen([]) == released.known()

    def test_a_project_a_release_and_a_target(self) -> None:
        assert survey.chosen(["cosmos-rl"]) == ("cosmos-rl@0.4.7", "cosmos-rl@0.4.6:packer", "cosmos-rl@0.4.7:packer")
        assert survey.chosen(["verl@0.9.1"])[0] == "verl@0.9.1"
        assert {"verl@0.9.1:sender", "verl@0.9.1:kimi"} < set(survey.chosen(["verl@0.9.1"]))
        assert survey.chosen(["verl@0.9.1:kimi", "verl@0.9.1:kimi"]) == ("verl@0.9.1:kimi",)
        assert survey.chosen(["verl@99.0"]) == ("verl@99.0",)

    @pytest.mark.parametrize("name", ["verk", "nobody@1.0", "verl@", "", "path/to/file.py:f"])
    def test_what_is_none_is_refused(self, name: str) -> None:
        with pytest.raises(BadRequest, match="no project, release or target"):
            survey.chosen([name])

    def test_one_that_is_nearly_right_is_guessed(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["survey", "verk"]) == 2
        assert "did you mean 'verl'" in capsys.readouterr().err


class TestCommand:
    def test_it_fetches_judges_and_tabulates(
        self, cache: Path, in_this_process: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        files = [tmp_path / name for name in ("s.json", "s.html", "s.md")]
        options = [f"--{file.suffix[1:].replace('md', 'markdown')}={file}" for file in files]
        scripts = tmp_path / "scripts"
        command = ["survey", PLAIN, PACKER, "--profile", "smoke", "-n", "1", "--repro", str(scripts)]
        assert main([*command, *options]) == 0
        told = capsys.readouterr().out
        assert "2 targets of 2 projects" in told
        data = json.loads(files[0].read_text())
        assert [each["spec"] for each in data["targets"]] == [PLAIN, PACKER]
        for each in data["targets"]:
            verdict = Verdict.from_json(json.dumps(each["verdict"]))
            assert verdict.origin["version"] == VERSION
            assert len(verdict.origin["sha256"]) == 64
        cells = {cell["cell"]: cell["status"] for cell in data["targets"][1]["verdict"]["cells"]}
        assert cells["packing.alignment"] == "fail"
        assert cells["boundaries.limit"] == "unpromised"
        page = files[2].read_text()
        assert f"| {PLAIN} | " in page
        assert "`packing.alignment`" in page
        assert data["targets"][1]["verdict"]["origin"]["sha256"] in page
        assert "it returns a list" in page
        assert date.fromisoformat(data["date"]) <= date.today()
        assert f"Made on {data['date']} by `bucketproof survey --profile smoke --seed 0" in page
        assert f"torch {torch.__version__}" in page
        history = registry.find("ms-swift", "").history
        assert page.count(history) == data["targets"][0]["history"].count(history) == 1
        html = files[1].read_text()
        assert f"<h2>{PACKER}</h2>" in html
        assert "<script" not in html
        assert [file.name for file in (scripts / PACKER).iterdir()] == ["packing.alignment.py"]

    def test_releases_are_put_side_by_side_with_what_has_changed(
        self, cache: Path, in_this_process: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        history = registry.find("sglang", "").history
        published = (cache / "sglang").resolve()
        (cache / "sglang").unlink()
        for version in (VERSION, "98.0"):
            shutil.copytree(published / VERSION, cache / "sglang" / version)
        pages = [tmp_path / "p.md", tmp_path / "p.html"]
        command = ["survey", "sglang@98.0", PACKER, "--profile", "smoke", "-n", "1", f"--html={pages[1]}"]
        assert main([*command, f"--markdown={pages[0]}"]) == 0
        told = capsys.readouterr().out
        assert f"sglang, from release to release. What has changed in its code: {history}.\n" in told
        assert re.search(r"^packing.alignment +✗ 1/1 +✗ 1/1", told, re.MULTILINE)
        page, html = (each.read_text() for each in pages)
        assert "## sglang, from release to release\n" in page
        assert f"| property | 98.0 | {VERSION} |" in page
        assert page.count(history) == 1
        assert "<h2>sglang, from release to release</h2>" in html
        assert "What has changed in its code: " in html

    def test_what_was_judged_is_kept(self, cache: Path, in_this_process: list[str]) -> None:
        command = ["survey", PLAIN, "--profile", "smoke", "-n", "1"]
        assert [main(command), main(command)] == [0, 0]
        assert in_this_process == [PLAIN]
        assert main([*command, "--seed", "1"]) == 0
        assert in_this_process == [PLAIN] * 2
        kept = sorted((cache / "survey").iterdir())
        assert len(kept) == 2
        kept[0].write_text("{}")
        assert main(command) == 0
        assert in_this_process == [PLAIN] * 3

    def test_another_wheel_is_judged_again(self, cache: Path, in_this_process: list[str], tmp_path: Path) -> None:
        command = ["survey", PLAIN, "--profile", "smoke", "-n", "1"]
        assert main(command) == 0
        (cache / "ms-swift").unlink()
        source = dict(FAKES["MEMBERS"]["ms_swift"])
        FAKES["MEMBERS"]["ms_swift"]["added.py"] = ""
        try:
            FAKES["fill"](tmp_path / "other")
        finally:
            FAKES["MEMBERS"]["ms_swift"].clear()
            FAKES["MEMBERS"]["ms_swift"].update(source)
        (cache / "ms-swift").symlink_to(tmp_path / "other" / "ms-swift")
        assert main(command) == 0
        assert in_this_process == [PLAIN] * 2

    def test_a_cache_can_be_named(self, cache: Path, in_this_process: list[str], tmp_path: Path) -> None:
        named = tmp_path / "named"
        named.mkdir()
        (named / "ms-swift").symlink_to(cache / "ms-swift")
        assert main(["survey", PLAIN, "--profile", "smoke", "-n", "1", "--cache", str(named)]) == 0
        assert len(list((named / "survey").iterdir())) == 1
        assert not (cache / "survey").exists()

    def test_a_cache_that_cannot_be_is_said_so(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "file").touch()
        assert main(["survey", "verl", "--cache", str(tmp_path / "file" / "x")]) == 2
        assert "name a folder with --cache" in capsys.readouterr().err

    def test_a_package_that_cannot_be_had_does_not_stop_the_others(
        self,
        cache: Path,
        in_this_process: list[str],
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        asked: list[str] = []
        fetch = released.fetch

        def offline(project: str, version: str, *rest: Any, **named: Any) -> Any:
            asked.append(f"{project}@{version}")
            if project == "verl":
                raise Unavailable("verl@98.0: the package index cannot be reached")
            return fetch(project, version, *rest, **named)

        monkeypatch.setattr(released, "fetch", offline)
        specs = ["verl@98.0", "verl@98.0:sender", PLAIN]
        assert main(["survey", *specs, "--profile", "smoke", "-n", "1"]) == 3
        told = capsys.readouterr().out
        assert "verl@98.0: verl@98.0: the package index cannot be reached" in told
        assert "3 targets of 2 projects" in told
        assert "2 without a verdict" in told
        assert asked.count("verl@98.0") == 1  # not once more for its other target
        assert in_this_process == [PLAIN]

    def test_a_release_that_the_adapter_does_not_fit_is_told(
        self, cache: Path, in_this_process: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        def build(wheel: Any) -> Any:
            raise Unavailable("the file is gone")

        found = registry.find("ms-swift", "")
        monkeypatch.setitem(registry._adapters, ("ms-swift", ""), _with(found, build=build))
        page = tmp_path / "page.md"
        assert main(["survey", PLAIN, "--profile", "smoke", "-n", "1", "--markdown", str(page)]) == 3
        assert f"**No verdict**: `{PLAIN}: the file is gone" in page.read_text()


def _with(adapter: registry.Adapter, **changes: Any) -> registry.Adapter:
    from dataclasses import replace

    return replace(adapter, **changes)


class TestProcess:
    @pytest.fixture
    def order(self, tmp_path: Path) -> survey.Order:
        return survey.Order((PLAIN,), "smoke", 0, tmp_path, 1)

    @pytest.mark.parametrize(
        ("code", "says", "line"),
        [
            (2, "a warning\nms-swift@99.0: the file is gone\n", "ms-swift@99.0: the file is gone"),
            (-11, "Fatal Python error\n", "its process died, with code -11: Fatal Python error"),
            (1, "", "its process died, with code 1: "),
        ],
    )
    def test_a_process_without_a_verdict_says_why(
        self, order: survey.Order, monkeypatch: pytest.MonkeyPatch, code: int, says: str, line: str
    ) -> None:
        monkeypatch.setattr(
            subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, code, "", says)
        )
        assert survey._in_a_process(PLAIN, order, "scratch", Path("v")) == line

    def test_a_process_that_never_ends_is_given_up(self, order: survey.Order, monkeypatch: pytest.MonkeyPatch) -> None:
        def run(*_: object, **__: object) -> None:
            raise subprocess.TimeoutExpired("python", 1)

        monkeypatch.setattr(subprocess, "run", run)
        assert survey._in_a_process(PLAIN, order, "scratch", Path("v")) == "its process took over 4 hours"

    def test_it_is_asked_for_what_was_ordered(self, order: survey.Order, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[tuple[list[str], dict[str, str]]] = []

        def run(command: list[str], env: dict[str, str], **_: object) -> subprocess.CompletedProcess[str]:
            seen.append((command, env))
            return subprocess.CompletedProcess(command, 0, "", "")

        monkeypatch.setattr(subprocess, "run", run)
        assert survey._in_a_process(PLAIN, order, "scratch", Path("v")) == ""
        ((command, env),) = seen
        assert command == [sys.executable, "-m", "bucketproof.judged", PLAIN, "smoke", "0", "v"]
        assert env["BUCKETPROOF_CACHE"] == str(order.cache)

    def test_it_writes_the_verdict(self, cache: Path, few_cells: None, tmp_path: Path) -> None:
        assert judged.main([PLAIN, "smoke", "0", str(tmp_path / "v")]) == 0
        assert Verdict.from_json((tmp_path / "v").read_text()).target == PLAIN

    def test_it_says_why_there_is_none(self, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert judged.main(["nobody@1.0", "smoke", "0", str(tmp_path / "v")]) == 2
        assert "no project 'nobody'" in capsys.readouterr().err

    def test_what_is_no_bucketer_has_no_verdict(
        self, cache: Path, few_cells: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> None:
            raise NotABucketer("it returned a str")

        monkeypatch.setattr("bucketproof.trial.preflight", refuse)
        with pytest.raises(BadRequest, match=f"{PLAIN}: it returned a str"):
            judged.verdict_on(PLAIN, "smoke", 0)


def test_alike_failures_are_searched_for_the_smallest_plan_once() -> None:
    from bucketproof.properties import PROFILES, cells
    from bucketproof.trial import Trial

    ids = [f"ownership.no-copy[{each}]" for each in ("fresh", "stack", "cat")]
    several = tuple(cell for cell in cells() if cell.id in ids)
    trial = Trial(resolve("always-clone"), PROFILES["smoke"], 0, several, spec="always-clone")
    outcomes = [outcome for cell, outcome in judged._outcomes(trial) if cell]
    assert [each.status for each in outcomes] == ["fail"] * 3
    assert [bool(each.failure and each.failure.script) for each in outcomes] == [True, False, False]
