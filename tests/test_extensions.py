"""Packages outside: one is built, installed and judged, and each way in which one can be wrong is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents import files

from bucketproof import extensions
from bucketproof.cli import main

ROOT = Path(__file__).parent.parent
SMOKE = ("--profile", "smoke")


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the package of `docs/extending.md` was installed into."""
    source, folder = tmp_path_factory.mktemp("acme"), tmp_path_factory.mktemp("installed")
    for name, text in files(ROOT / "docs" / "extending.md").items():
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text(text, encoding="utf-8")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index")
    subprocess.run([*pip, "--no-build-isolation", "--no-deps", "--target", folder, source], check=True, timeout=300)
    return folder


def bucketproof(*arguments: str, path: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command, where these folders are on the path."""
    return subprocess.run(
        [sys.executable, "-m", "bucketproof", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path},
        timeout=300,
        check=False,
    )


def test_what_a_package_adds_is_judged_in_each_process(installed: Path, tmp_path: Path) -> None:
    cells = ("acme", "aliasing.survives-overwrite[acme-ring-row]")

    done = bucketproof(
        *("check", "acme", *SMOKE, *(f"--only={cell}" for cell in cells), "-n2", "--json", "v.json"),
        path=str(installed),
        cwd=tmp_path,
    )

    assert (done.returncode, done.stderr) == (0, "")
    verdict = json.loads((tmp_path / "v.json").read_text())
    assert {cell["cell"]: cell["status"] for cell in verdict["cells"]} == {
        "smoke": "pass",
        "acme.one-bucket-if-it-fits": "pass",
        "aliasing.survives-overwrite[acme-ring-row]": "pass",
    }
    assert verdict["provenances"] == {"acme-ring-row": "lent"}
    assert verdict["environment"]["acme-sync"] == "1.0"
    assert verdict["origin"] == {"package": "acme-sync", "version": "1.0"}


def test_what_a_package_adds_fails_who_breaks_it_with_a_script(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(KEEPS_ALL)
    cells = ("acme", "aliasing.no-lent-memory[acme-ring-row]")

    done = bucketproof(
        *("check", "mine.py:keeps_all", *SMOKE, *(f"--only={cell}" for cell in cells), "-n0", "--repro", "scripts"),
        path=str(installed),
        cwd=tmp_path,
    )

    assert done.returncode == 1
    assert "FAIL acme.one-bucket-if-it-fits" in done.stdout
    assert "One row of acme's ring" in " ".join(done.stdout.split())
    assert [script.name for script in (tmp_path / "scripts").iterdir()] != []


KEEPS_ALL = """
def keeps_all(weights, bucket_bytes):
    for pair in weights:
        yield [pair]
"""


def test_lists_show_what_a_package_adds_and_two_installations_of_it_are_one(installed: Path, tmp_path: Path) -> None:
    twice = tmp_path / "again"
    twice.symlink_to(installed)
    shown = "[main(['list', what]) for what in ('targets', 'properties', 'provenances')]"
    code = f"from bucketproof.cli import main; {shown}"

    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(installed), str(twice)])},
        timeout=300,
        check=True,
    )

    first_words = [line.split()[0] for line in done.stdout.splitlines()]
    for name in ("acme", "acme.one-bucket-if-it-fits", "acme-ring-row", "partial-acme-ring-row"):
        assert first_words.count(name) == 1
    assert "the target 'acme' of the package acme-sync: acme_sync.checks:target" in done.stdout


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for packages, from which what was loaded is forgotten again."""
    monkeypatch.syspath_prepend(tmp_path)
    extensions._failure.cache_clear()
    yield tmp_path
    extensions._failure.cache_clear()


def install(folder: Path, name: str, group: str, entry: str, text: str = "") -> None:
    """A package of one module, as an installer leaves it."""
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[bucketproof.{group}]\n{entry}\n")
    (folder / f"{name}_module.py").write_text(text)


BROKEN = {
    "provenances": (
        "from bucketproof.strategies.provenances import view\n"
        "@view('detach')\ndef it(shape, dtype, memory):\n    'It.'\n",
        "provenance 'detach' is registered twice, in bucketproof.strategies.provenances.hidden and broken_module; ",
    ),
    "properties": (
        "from bucketproof.properties.contract import contract\n@contract('values.order')\ndef it(run):\n    'It.'\n",
        "property 'values.order' is registered twice, in bucketproof.properties.values and broken_module; ",
    ),
}
NEITHER = {
    "no docstring": (
        "from bucketproof.properties.contract import contract\n@contract('broken.it')\ndef it(run): ...\n",
        "property 'broken.it' has no docstring; ",
    ),
    "no family": (
        "from bucketproof.properties.contract import contract\n@contract('broken')\ndef it(run):\n    'It.'\n",
        "property 'broken': an id is a family, a dot and a name",
    ),
    "no campaign": (
        "from bucketproof.properties.contract import contract\n"
        "@contract('broken.it', campaigns=['mixd'])\ndef it(run):\n    'It.'\n",
        "property 'broken.it': there is no campaign 'mixd'",
    ),
    "raises": ("raise RuntimeError('no luck')", "RuntimeError: no luck"),
    "does not compile": ("def", "SyntaxError: "),
    "no docstring of a provenance": (
        "from bucketproof.strategies import Custody\nfrom bucketproof.strategies.provenances import provenance\n"
        "@provenance('broken-it', Custody.LENT)\ndef it(shape, dtype, memory): ...\n",
        "provenance 'broken-it' has no docstring; ",
    ),
    "an id with a bracket": (
        "from bucketproof.strategies import Custody\nfrom bucketproof.strategies.provenances import provenance\n"
        "@provenance('broken[it]', Custody.LENT)\ndef it(shape, dtype, memory):\n    'It.'\n",
        "provenance 'broken[it]': an id is made of letters",
    ),
}


@pytest.mark.parametrize(
    ("group", "text", "line"),
    [
        *((group, *wrong) for group, wrong in BROKEN.items()),
        *(pytest.param("properties", *wrong, id=name) for name, wrong in NEITHER.items()),
    ],
)
def test_a_broken_package_is_named_in_one_line(
    packages: Path, group: str, text: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    install(packages, "broken", group, "it = broken_module", text)
    sys.modules.pop("broken_module", None)

    codes = [main(["check", "reference", *SMOKE, "--only", "values.order", "-n0"]) for _ in range(2)]

    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"bucketproof: the {group} 'it' of the package broken cannot be loaded: it raised ")
    assert line in first
    assert first.endswith("Mend that package, or uninstall it")
    assert (second, codes) == (first, [2, 2])


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        ("reference = target_module:it", "the target 'reference' of the package target has the name of a built-in"),
        ("detaches = target_module:it\nreference = target_module:it", "the target 'reference' of the package target"),
        ("it = target_module:gone", "the target 'it' of the package target: target_module:gone: there is no attribute"),
        ("it = target_module:NUMBER", "the target 'it' of the package target: it is no callable but of type int"),
        ("it = nowhere:it", "the target 'it' of the package target: no module 'nowhere'"),
    ],
)
def test_a_target_that_cannot_be_had_names_its_package(
    packages: Path, entry: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    install(packages, "target", "targets", entry, "NUMBER = 3")

    assert main(["check", "it" if entry.startswith("it") else "reference", "-n0"]) == 2
    assert capsys.readouterr().err.startswith(f"bucketproof: {line}")


def test_two_packages_with_a_target_of_one_name_are_both_named(
    packages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        install(packages, name, "targets", "it = target_module:it")

    assert main(["check", "it", "-n0"]) == 2
    owners = "the target 'it' of the package one and the target 'it' of the package two"
    assert capsys.readouterr().err.startswith(f"bucketproof: {owners} have one name: say target_module:it, ")
