"""What the command line says of a request that it cannot meet."""

from __future__ import annotations

import pytest

from bucketproof.cli import main


def refusal(arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The line that is said of these arguments, without the name of the command. It is the only one."""
    assert main(arguments.split()) == 2

    said = capsys.readouterr().err
    assert said.startswith("bucketproof: ")
    assert said.count("\n") == 1
    return said.removeprefix("bucketproof: ")
