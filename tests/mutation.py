"""Mutation testing of the reference bucketer: is there a change to its code that no test notices?

Run it with `python tests/mutation.py`. It needs mutmut 3 and Python 3.11, takes some minutes, and ends with 1 if a
mutant survives that is not listed in `tests/equivalent_mutants.toml`, or if the list is out of date. It works in a
temporary folder, and changes nothing outside of it.

`python tests/mutation.py --suite` asks another thing: which mutants the suite notices by itself, without the unit
tests. It is the measure of the properties and of what is drawn for them; the survivors are shown, and are no failure.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parent.parent
EQUIVALENT = ROOT / "tests" / "equivalent_mutants.toml"
MUTATED = tuple(f"src/bucketproof/reference/{name}.py" for name in ("ownership", "sound", "variants"))
UNIT_TESTS = tuple(f"tests/test_{name}.py" for name in ("ownership", "reference", "variants"))
CONFORMANCE = "tests/mutants/conformance.py"
VARIANTS = "sync-generator class-iterator mapping-buckets flush-when-full copy-on-arrival copy-at-flush aligned-packer"
SURVIVED = ("survived", "no tests")
NO_VERDICT = ("not checked", "skipped", "check was interrupted by user", "suspicious")

Key = tuple[str, str, str]
"""What tells a mutant from others, and stays when others come and go: its function, and its lines without and with
the change."""


@dataclass(frozen=True)
class Mutant:
    """One change to one function, and what became of it."""

    name: str
    file: str
    key: Key
    status: str
    diff: str


def main(arguments: list[str]) -> int:
    """Mutate, run and tell. Returns the exit code."""
    try:
        import mutmut  # noqa: F401
    except ImportError:
        print(f"mutmut is missing: {sys.executable} -m pip install 'mutmut>=3.8.1,<4'", file=sys.stderr)
        return 2
    if unknown := [each for each in arguments if each not in ("--suite", "--keep")]:
        print(f"unknown argument {unknown[0]}: there are --suite and --keep (the folder it works in)", file=sys.stderr)
        return 2
    is_of_suite = "--suite" in arguments
    folder = Path(tempfile.mkdtemp(prefix="bucketproof-mutation-"))
    started = time.monotonic()
    try:
        build(folder, (CONFORMANCE,) if is_of_suite else (*UNIT_TESTS, CONFORMANCE))
        run(folder, f"reference {VARIANTS}" if is_of_suite else "reference", examples=40 if is_of_suite else 8)
        mutants = read(folder)
    finally:
        if "--keep" in arguments:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder)
    reasons = known()
    print(table(mutants, reasons))
    print(f"{time.monotonic() - started:.0f} s")
    return tell_apart(mutants, reasons) and not is_of_suite


def build(folder: Path, tests: tuple[str, ...]) -> None:
    """Lay the package out as it is imported, which mutmut needs, and say what to mutate and what to run."""
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    for package, source in tomllib.loads(project)["tool"]["setuptools"]["package-dir"].items():
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / source, folder / "src" / package.replace(".", "/"), ignore=ignored, dirs_exist_ok=True)
    (folder / "tests" / "mutants").mkdir(parents=True)
    for test in (*UNIT_TESTS, CONFORMANCE):
        shutil.copy(ROOT / test, folder / test)
    shutil.copy(ROOT / "tests/mutants/in_work_tree.py", folder / "conftest.py")
    options = {
        "source_paths": ["src/"],
        "only_mutate": [*MUTATED],
        "also_copy": ["conftest.py"],
        "pytest_add_cli_args_test_selection": [*tests],
        "pytest_add_cli_args": ["-p", "no:cacheprovider"],
        "timeout_multiplier": 4.0,
        "timeout_constant": 5.0,
        "track_dependencies": False,
        "use_git_change_detection": False,
    }
    lines = (f"{name} = {json.dumps(value)}\n" for name, value in options.items())
    (folder / "pyproject.toml").write_text(f"{project}\n[tool.mutmut]\n{''.join(lines)}", "utf-8")


def run(folder: Path, targets: str, examples: int) -> None:
    """Let mutmut try every mutant."""
    environment = {
        **os.environ,
        "HYPOTHESIS_NO_PLUGINS": "1",
        "BUCKETPROOF_TARGETS": targets,
        "BUCKETPROOF_EXAMPLES": str(examples),
    }
    cores = len(os.sched_getaffinity(0))
    # `python -m mutmut` would import the module twice, of which it warns.
    command = [sys.executable, "-c", "from mutmut.__main__ import cli; cli()", "run", "--max-children", f"{cores}"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"mutmut ended with {done.returncode}:\n{done.stdout[-8000:]}\n{done.stderr[-4000:]}")


def read(folder: Path) -> list[Mutant]:
    """What became of each mutant."""
    from mutmut.mutation.diff_apply import get_diff_for_mutant
    from mutmut.stats import status_by_exit_code
    from mutmut.utils.format_utils import orig_function_and_class_names_from_key

    mutants = []
    with contextlib.chdir(folder):
        for file in MUTATED:
            results = json.loads(Path("mutants", f"{file}.meta").read_text("utf-8"))["exit_code_by_key"]
            for name, code in results.items():
                diff = get_diff_for_mutant(name, path=file)
                function, cls = orig_function_and_class_names_from_key(name)
                key = key_of(".".join(filter(None, (Path(file).stem, cls, function))), diff)
                mutants.append(Mutant(name, Path(file).name, key, status_by_exit_code[code], diff))
    return mutants


def key_of(function: str, diff: str) -> Key:
    """The mutant's key, of its lines as they are apart from their indent."""
    lines = diff.splitlines()[3:]
    before, after = ("\n".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+")
    return function, before, after


def known() -> dict[Key, str]:
    """The reason why a mutant is no fault, for each that is known to be none."""
    listed = tomllib.loads(EQUIVALENT.read_text("utf-8")).get("mutant", [])
    return {(each["function"], each["before"].strip(), each["after"].strip()): each["reason"] for each in listed}


def table(mutants: list[Mutant], reasons: dict[Key, str]) -> str:
    """How many mutants of each file were noticed, and how many not."""
    rows = [("file", "mutants", "killed", "(hang)", "equivalent", "survived")]
    for file in (*(Path(path).name for path in MUTATED), "all"):
        of_file = [each for each in mutants if file in (each.file, "all")]
        survivors = [each for each in of_file if each.status in SURVIVED]
        equivalent = sum(each.key in reasons for each in survivors)
        killed = sum(each.status not in (*SURVIVED, *NO_VERDICT) for each in of_file)
        hung = sum(each.status == "timeout" for each in of_file)
        rows.append((file, *map(str, (len(of_file), killed, hung, equivalent, len(survivors) - equivalent))))
    return "\n".join(f"{file:14}" + "".join(f"{cell:>12}" for cell in cells) for file, *cells in rows)


def tell_apart(mutants: list[Mutant], reasons: dict[Key, str]) -> bool:
    """Show what is equivalent, and what is wrong. Returns whether anything is."""
    survivors = [each for each in mutants if each.status in SURVIVED]
    times = Counter(each.key for each in mutants)
    wrong = [(f"{each.status}: {each.name}", each.diff) for each in survivors if each.key not in reasons]
    wrong += [(f"{each.status}: {each.name}", each.diff) for each in mutants if each.status in NO_VERDICT]
    for each in mutants:
        if each.key in reasons and each.status not in SURVIVED:
            wrong.append((f"listed as equivalent, and {each.status}: {each.name}", each.diff))
    for key in reasons:
        if not times[key]:
            wrong.append(("listed as equivalent, and no longer there: " + key[0], f"{key[1]}\n{key[2]}"))
    for each in survivors:
        if each.key in reasons:
            function, before, after = each.key
            print(f"\nequivalent, in {function}: {reasons[each.key]}\n  - {before}\n  + {after}")
    for what, diff in wrong:
        print(f"\n{what}\n{diff}")
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
