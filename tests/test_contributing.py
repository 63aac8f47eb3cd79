"""The examples of CONTRIBUTING.md, put where they are said to belong, in a copy of the project."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from documents import ROOT, blocks, commands

PAGE = ROOT / "CONTRIBUTING.md"
ROOMS = {"gate": ".", "properties": "properties", "reference": "reference", "strategies": "strategies"}

RUN = """
import sys, pytest
from bucketproof.cli import main

for command in sys.argv[1:]:
    tool, *words = __import__("shlex").split(command)
    quiet = ["-n0", "-q", "-p", "no:cacheprovider", "-Wignore::pytest.PytestAssertRewriteWarning"]
    code = main([*words, *["-n0"] * (words[0] != "docs")]) if tool == "bucketproof" else int(pytest.main(quiet + words))
    print(f"\\nEXIT {code}: {command}", flush=True)
"""
FAIL = {"bucketproof check keeps-lent-views", "bucketproof check closes-when-half-full"}
"""Commands that show what is wrong with something, and so end with 1."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project, with every example."""
    here = tmp_path_factory.mktemp("copy")
    package = here / "bucketproof"
    for room, place in ROOMS.items():
        shutil.copytree(ROOT / room, package / place, dirs_exist_ok=True)
    shutil.copytree(ROOT / "tests", here / "tests")
    for file in ("pyproject.toml", "conftest.py"):
        shutil.copy(ROOT / file, here)
    for block in blocks(PAGE):
        if block.file:
            room, _, rest = block.file.partition("/")
            path = package / ROOMS[room] / rest if room in ROOMS else here / block.file
            with path.open("a", encoding="utf-8") as file_:
                file_.write(f"\n\n{block.text}")
    return here


def test_the_examples_do_what_is_said_of_them(copy: Path) -> None:
    wanted = [command for block in blocks(PAGE) for command in commands(block)]

    done = subprocess.run(
        [sys.executable, "-c", RUN, *wanted],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    ended = {command: code for code, command in re.findall(r"^EXIT (\d+): (.*)$", done.stdout, re.M)}
    due = {command: "1" if " ".join(command.split()[:3]) in FAIL else "0" for command in wanted}
    assert ended == due, done.stdout + done.stderr
    assert (copy / "docs" / "contract.md").read_text().count("### boundaries.monotone") == 1
