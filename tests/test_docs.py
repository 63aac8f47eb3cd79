"""What the documents quote is what the commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from bucketproof.cli import main
from bucketproof.reference import released

ROOT = Path(__file__).parent.parent
QUOTED = re.findall(
    r"^```text\n\$ bucketproof (.*)\n((?:.*\n)*?)```$",
    (ROOT / "docs" / "reading-a-failure.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)


def printed(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command prints, but for how long it took."""
    arguments = shlex.split(command)
    if released.is_spec(arguments[1]):
        try:
            released.load(arguments[1])
        except released.Unavailable as error:
            pytest.skip(str(error))
    assert main([*arguments, "-n0"]) == 1
    return timeless(capsys.readouterr().out)


def timeless(text: str) -> str:
    """The text without times, in one line each paragraph: where a line ends depends on a time before it."""
    return re.sub(r"\d+\.\d s\n", "TIME\n", re.sub(r"(seed \d+),\s", r"\1, ", text))


def test_two_failures_are_explained() -> None:
    assert [command.split()[1] for command, _ in QUOTED] == ["base-guard", "verl@0.9.1"]


@pytest.mark.parametrize(("command", "output"), QUOTED, ids=[command.split()[1] for command, _ in QUOTED])
def test_a_failure_is_quoted_as_it_is_printed(command: str, output: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert timeless(output) == printed(command, capsys)


def test_the_readme_shows_a_failure_as_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    [shown] = re.findall(r"^```\n(FAIL (?:.*\n)*?)```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)

    assert printed("check base-guard --only 'aliasing.survives-overwrite[detach]'", capsys).startswith(shown)
