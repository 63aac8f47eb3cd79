"""Every command and every piece of code that the pages show: each is run, on little, or it is said why not."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from documents import PAGES, ROOT, Block, blocks, commands, files
from hypothesis.database import DirectoryBasedExampleDatabase

from bucketproof.cli import _parser, main
from bucketproof.examples import VARIABLE, use
from bucketproof.known import KnownFile, must_be_cells
from bucketproof.properties import cells
from bucketproof.properties.profiles import examples, keep_in
from bucketproof.strategies import DEVICES
from bucketproof.trial import select

MINE = """
from bucketproof import Target
from bucketproof.reference import get_named_tensor_buckets as get_buckets

mine = Target("mine", get_buckets)
"""
FOLDERS = ("path/to", "package", "yourpackage", ".")
MODULES = ("mine", "package", "package.module", "yourpackage", "yourpackage.weight_sync")
CELL = "ownership.no-copy[fresh]"
QUICK = ["--profile", "smoke", "-n", "0", "--only", CELL]

ELSEWHERE = ("CONTRIBUTING.md", "docs/extending.md")
"""Pages whose commands need what they show: see `test_contributing.py` and `test_extensions.py`."""
NOT_RUN = {
    "python3 -m venv": "it installs: `.ci/run` does the same, with the same pin",
    "pip install": "it installs: the `dev` extra has the same packages",
    "bucketproof survey": "it needs a package index, and minutes: `test_survey.py` runs it on wheels of its own",
    "bucketproof check verl@": "it needs a package index: `.ci/run` judges that release",
    "python tests/benchmarks/": "it measures for minutes",
}
"""Commands that are not run here, by how they begin."""


def reason_not_to_run(command: str) -> str | None:
    return next((why for start, why in NOT_RUN.items() if command.startswith(start)), None)


SHOWN = [(block, command) for page in PAGES for block in blocks(page) for command in commands(block)]
RUN = [command for block, command in SHOWN if block.page not in ELSEWHERE and not reason_not_to_run(command)]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the pages take for granted: a bucketer of one's own, and two verdicts."""
    here = tmp_path_factory.mktemp("desk")
    for folder in FOLDERS:
        (here / folder).mkdir(parents=True, exist_ok=True)
        for name in ("mine", "module", "weight_sync"):
            (here / folder / f"{name}.py").write_text(MINE)
    assert main(["check", *QUICK, "--json", str(here / "verdict.json")]) == 0
    (here / "known.toml").write_text("")
    return here


@pytest.fixture
def at_the_desk(desk: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    # Anew for each command, for some of them write such files, too.
    for name in ("main", "mine", "one", "two"):
        (desk / f"{name}.json").write_text((desk / "verdict.json").read_text())
    monkeypatch.chdir(desk)
    monkeypatch.setattr(sys, "path", [str(desk), *sys.path])
    yield desk
    for name in MODULES:
        sys.modules.pop(name, None)


def test_pages_show_commands() -> None:
    assert len(RUN) >= 10
    assert {block.page for block, _ in SHOWN} >= {"README.md", *ELSEWHERE}


@pytest.mark.parametrize("start", NOT_RUN)
def test_what_is_not_run_is_shown_somewhere(start: str) -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)

    assert start in text


@pytest.mark.parametrize("command", RUN)
def test_a_command_does_what_it_should(command: str, at_the_desk: Path) -> None:
    tool, *words = shlex.split(command)
    assert tool == "bucketproof", f"say how {tool} is to be tried"
    options = _parser().parse_args(words)
    if hasattr(options, "workers"):
        options.profile, options.workers = "smoke", 0
    if hasattr(options, "only"):
        # One cell of those that are meant is enough to see that the command works.
        chosen = select(options.only, device=getattr(options, "device", "cpu"))
        options.only = [next((cell.id for cell in chosen if cell.id == CELL), chosen[0].id)]
    if getattr(options, "fault", None) == []:
        options.fault = ["leaves-a-byte-free"]

    is_lacking = getattr(options, "device", "cpu") == "cuda" and DEVICES["cuda"].lacks()
    assert options.do(options) in ((3,) if is_lacking else (0, 1))


@pytest.mark.parametrize("command", [command for _, command in SHOWN if command.startswith("bucketproof check verl")])
def test_a_command_that_needs_the_network_is_one(command: str) -> None:
    options = _parser().parse_args(shlex.split(command)[1:])

    assert options.target.startswith("verl@")


SPAN = re.compile(r"`((?:bucketproof|python|pytest) [^`\n]+)`")
SPANS = sorted({span for page in PAGES for span in SPAN.findall(page.read_text(encoding="utf-8"))})


@pytest.mark.parametrize("span", [span for span in SPANS if span.startswith("bucketproof")])
def test_a_command_in_a_sentence_has_options_that_there_are(span: str) -> None:
    _, name, *words = shlex.split(span)

    known = subcommands()
    assert name in known
    options = {option for action in known[name]._actions for option in action.option_strings}
    assert {word.partition("=")[0] for word in words if word.startswith("-")} <= options


def subcommands() -> dict[str, ArgumentParser]:
    actions: Any = _parser()._subparsers
    return {**actions._group_actions[0].choices}


@pytest.mark.parametrize("span", [span for span in SPANS if span.startswith("python tests/")])
def test_a_program_that_is_named_is_there(span: str) -> None:
    path = ROOT / shlex.split(span)[1]

    compile(path.read_text(encoding="utf-8"), str(path), "exec")


@pytest.mark.parametrize("span", [span for span in SPANS if span.startswith("python -c")])
def test_a_line_of_python_runs(span: str) -> None:
    done = subprocess.run(
        [sys.executable, *shlex.split(span)[1:]], capture_output=True, text=True, timeout=60, check=True
    )

    assert Path(done.stdout.strip()).exists()


@pytest.mark.parametrize("span", [span for span in SPANS if span.startswith("pytest")])
def test_options_of_the_plugin_are_there(span: str, pytestconfig: pytest.Config) -> None:
    for word in re.findall(r"--bucketer[\w-]*", span):
        assert pytestconfig.getoption(word.removeprefix("--").replace("-", "_"), default=...) is not ...


def test_the_databases_that_are_shown_are_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name, text in files(ROOT / "docs" / "scale-out.md").items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    monkeypatch.setenv(VARIABLE, "databases.py:artifact")
    use()
    keep_in(DirectoryBasedExampleDatabase(examples()))


PYTHON = [block for page in PAGES for block in blocks(page) if block.language == "python" and not block.file]


def is_fragment(block: Block) -> bool:
    """Whether it audits a trainer that is not here, and can only be compiled: `test_audit.py` audits some that are."""
    return block.page == "docs/audit.md" or "audit(" in block.text


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.page)
def test_code_runs(block: Block, at_the_desk: Path) -> None:
    code = compile(f"from mine import get_buckets\n{block.text}", block.page, "exec")
    if not is_fragment(block):
        exec(code, {"__name__": "shown"})


TOML = [block for page in PAGES for block in blocks(page) if block.language == "toml" and not block.file]


@pytest.mark.parametrize("block", TOML, ids=lambda block: block.page)
def test_a_list_of_known_failures_is_one(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "known.toml"
    path.write_text(block.text, encoding="utf-8")

    listed = KnownFile.read(str(path)).entries()

    assert listed
    must_be_cells(str(path), listed, [cell.id for cell in cells()])


WORKFLOW = re.compile(r"\bbucketproof (?:check|merge|report|diff) [^\n]*(?:\n\s{10,}--[^\n]*)*")
WORKFLOWS = sorted((ROOT / "docs" / "ci").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_asks_for_what_there_is(path: Path) -> None:
    asked = WORKFLOW.findall(path.read_text(encoding="utf-8"))

    assert asked
    for command in asked:
        _parser().parse_args(shlex.split(re.sub(r"\$\{\{[^}]*\}\}", "1", command))[1:])


LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#[\w-]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in filter(None, LINK.findall(page.read_text(encoding="utf-8"))):
        assert (page.parent / link).exists(), link


def test_tests_that_pages_name_are_there() -> None:
    written = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("*.py"))

    for page in PAGES:
        for name in re.findall(r"`(test_\w+)`", page.read_text(encoding="utf-8")):
            assert f"def {name}(" in written, name
