"""From a text to a target, and each way in which that can fail."""

from __future__ import annotations

import dataclasses
import pickle
import re
import sys
from pathlib import Path

import pytest

import bucketproof.targets
from bucketproof import reference
from bucketproof.properties import Promises, Target
from bucketproof.reference import released
from bucketproof.request import BadRequest
from bucketproof.targets import BUILT_IN, describe, resolve

MINE = '''
"""A user's file."""
from dataclasses import dataclass
from beside import LIMIT
from bucketproof import Target

@dataclass
class Bucket:
    """A dataclass looks its module up."""
    size: int = LIMIT

def get_buckets(weights, bucket_bytes):
    return iter([list(weights)])

class Engine:
    get_buckets = staticmethod(get_buckets)

SPECIAL = Target("special", get_buckets)
NUMBER = 3
'''


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a user's files, which is the current one."""
    files = {
        "mine.py": MINE,
        "beside.py": "LIMIT = 7\n",
        "broken.py": "x = 1\ndef f(:\n",
        "raising.py": "raise RuntimeError('two\\nlines')\n",
        "leaving.py": "import sys; sys.exit(4)\n",
        "needy.py": "import not_there_at_all\n",
        "relative.py": "from . import sibling\n",
        "locked.py/readme": "",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_targets_are_the_reference_room_s(name: str) -> None:
    target = resolve(name)

    assert target.name == name
    assert name == "aligned-packer" or target.call is getattr(reference, BUILT_IN[name])
    assert describe(name)


@pytest.mark.parametrize(
    "text", ["mine.py:get_buckets", "./mine.py:get_buckets", "mine:get_buckets", "mine:Engine.get_buckets"]
)
def test_a_callable_is_found_in_a_file_or_in_a_module_of_the_current_folder(here: Path, text: str) -> None:
    target = resolve(text)

    assert target.name == text
    assert target.call([1], 0).__next__() == [1]


@pytest.mark.parametrize("text", ["mine.py:SPECIAL", "mine:SPECIAL"])
def test_a_target_object_is_used_as_it_is(here: Path, text: str) -> None:
    target = resolve(text)

    assert isinstance(target, Target)
    assert target.name == "special"


def test_a_file_is_loaded_as_a_module_of_its_own(here: Path) -> None:
    """Its dataclasses can be pickled, and it shadows no module that is called the same."""
    bucket = resolve("mine.py:Bucket").call()

    assert pickle.loads(pickle.dumps(bucket)) == bucket
    assert dataclasses.asdict(bucket) == {"size": 7}
    assert "mine" not in sys.modules


def test_a_file_in_another_folder_finds_what_lies_beside_it(
    here: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))

    assert resolve(f"{here}/mine.py:get_buckets").call


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("base-gard", "no built-in target 'base-gard'; did you mean 'base-guard'?"),
        ("nothing", "no built-in target 'nothing': there are reference, always-clone"),
        ("", "no built-in target ''"),
        ("mine.py", "mine.py is a file: say which of its functions is meant, as in mine.py:get_buckets"),
        ("mine.py:get_bucket", "mine.py:get_bucket: there is no attribute 'get_bucket'; did you mean 'get_buckets'"),
        ("mine.py:xyz", "mine.py:xyz: there is no attribute 'xyz': it has Bucket, Engine"),
        ("mine.py:", "mine.py:: there is no attribute ''"),
        ("mine:Engine.get", "mine:Engine.get: there is no attribute 'get'"),
        ("mine.py:NUMBER", "mine.py:NUMBER is no callable but of type int: name a function"),
        ("min.py:get_buckets", "there is no file min.py; did you mean 'mine.py'"),
        ("gone/there.py:f", "there is no file gone/there.py"),
        ("locked.py:f", "locked.py cannot be read: Is a directory"),
        ("broken.py:f", "broken.py cannot be loaded: SyntaxError in .*broken.py, line 2: invalid syntax"),
        ("raising.py:f", "raising.py cannot be loaded: it raised RuntimeError: two lines"),
        ("leaving.py:f", "leaving.py cannot be loaded: it raised SystemExit: 4"),
        ("needy.py:f", "needy.py cannot be loaded: it raised ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("relative.py:f", "relative.py cannot be loaded: it raised ImportError: .*: a file of a package is named as"),
        ("needy:f", "module needy cannot be loaded: it raised ModuleNotFoundError: No module named 'not_there"),
        ("raising:f", "module raising cannot be loaded: it raised RuntimeError: two lines"),
        ("broken:f", "module broken cannot be loaded: SyntaxError in .*broken.py, line 2: invalid syntax"),
        ("no_such.module:f", "no module 'no_such' in this directory or among the installed packages: check"),
        ("mine.inner:f", "no module 'mine.inner'"),
        (".mine:f", "module .mine cannot be loaded"),
        ("a/b:f", "no module 'a/b'"),
        ("nobody@1.0", "there is no project 'nobody'"),
        ("verl@1.0:nobody", "verl has no bucketer 'nobody'"),
    ],
)
def test_what_cannot_be_resolved_is_refused_in_one_line(here: Path, text: str, line: str) -> None:
    with pytest.raises(BadRequest) as refused:
        resolve(text)

    assert re.search(line.replace("?", r"\?"), str(refused.value)), str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_failed_leaves_no_module_behind(here: Path) -> None:
    with pytest.raises(BadRequest):
        resolve("raising.py:f")

    assert not [name for name in sys.modules if "target_raising" in name]


def test_a_release_brings_the_facts_of_its_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    found = released.Released("p@1", iter, "p", "1", "abc", "p/f.py", {"bound": "soft"}, {"bound": "so it says"}, "why")
    monkeypatch.setattr(bucketproof.targets.released, "load", lambda spec: found)

    target = resolve("p@1")

    assert target.call is iter
    assert target.origin == {"project": "p", "version": "1", "sha256": "abc", "source": "p/f.py"}
    assert target.name == "p@1"
    assert target.promises == Promises(bound="soft")


def test_a_release_that_cannot_be_had_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(spec: str) -> None:
        raise released.Unavailable("the package index\ncannot be reached")

    monkeypatch.setattr(bucketproof.targets.released, "load", load)

    with pytest.raises(BadRequest, match=r"^the package index cannot be reached$"):
        resolve("p@1")
