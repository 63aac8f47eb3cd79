"""What is shipped is what is there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no TOML reader")

ROOT = Path(__file__).parent.parent
ROOMS = {"gate": "bucketproof", **{room: f"bucketproof.{room}" for room in ("reference", "strategies", "properties")}}


def test_every_folder_with_modules_is_listed_as_a_package() -> None:
    """Packages are listed by hand, since four folders make up one package; a folder that is not listed is lost."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    there = {_package(path.parent) for room in ROOMS for path in (ROOT / room).rglob("*.py")}

    assert there == set(listed)


def _package(folder: Path) -> str:
    room, *rest = folder.relative_to(ROOT).parts
    return ".".join([ROOMS[room], *rest])
