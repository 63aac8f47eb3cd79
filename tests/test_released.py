"""Released bucketers: fake wheels offline, and the published ones where they can be had."""

import asyncio
import hashlib
import inspect
import re
import subprocess
import sys
import traceback
import zipfile
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
import torch

from bucketproof.reference import released
from bucketproof.reference.released import Unavailable, fetch, is_spec, known, load, loading, registry, wheels
from bucketproof.reference.released.lines import lines

VERSIONS = ("0.7.0", "0.7.1", "0.8.0", "0.9.0", "0.9.1")
PROJECTS = {
    "checkpoint-engine",
    "cosmos-rl",
    "lmdeploy",
    "ms-swift",
    "rlinf",
    "sglang",
    "skyrl",
    "verl",
    "vllm",
}
LARGE = ("lmdeploy@", "sglang@0.5.23", "vllm@")
"""What has wheels of 40 MiB and more."""
MENDED = [
    ("cosmos-rl@0.4.6:packer", "cosmos-rl@0.4.7:packer", ["packing.round-trip", "values.conserved"]),
    (
        "ms-swift@4.1.3:flattened",
        "ms-swift@4.6.0:flattened",
        ["memory.peak", "packing.metadata", "values.self-contained"],
    ),
    ("sglang@0.5.5.post3", "sglang@0.5.23", ["aliasing.no-pinned-storage", "values.self-contained"]),
    ("verl@0.8.0", "verl@0.9.0", ["memory.peak", "ownership.no-copy"]),
    (
        "verl@0.9.0",
        "verl@0.8.0",
        ["aliasing.no-lent-memory", "aliasing.no-pinned-storage", "aliasing.survives-overwrite"],
    ),
    ("verl@0.9.1", "verl@0.9.0", ["memory.released-after-flush"]),
    ("verl@0.8.0:sender", "verl@0.9.0:sender", ["values.conserved"]),
    ("verl@0.9.0:sender", "verl@0.9.1:sender", ["values.conserved"]),
    ("vllm@0.31.0", "vllm@0.33.0", ["values.conserved"]),
]
"""What goes wrong with the first release, and not with the second, be it an earlier one."""
BUCKETER = "verl/workers/rollout/sglang_rollout/utils.py"
HELPER = "verl/workers/rollout/utils.py"
FAKE_BUCKETER = """\
from __future__ import annotations
from verl.utils.device import get_device_name
from verl.workers.rollout.utils import ensure_async_iterator

async def get_named_tensor_buckets(weights: Undefined, bucket_bytes):
    if bucket_bytes <= 0:
        raise ValueError("this line is from the wheel")
    async for pair in ensure_async_iterator(weights):
        yield [pair]
"""
FAKE_HELPER = """\
import a_web_server_that_nobody_has

async def ensure_async_iterator(items):
    for item in items:
        yield item
"""
FAKE: Mapping[str, str] = {BUCKETER: FAKE_BUCKETER, HELPER: FAKE_HELPER}
METADATA = "Metadata-Version: 2.1\nName: verl\nVersion: 99.0\nRequires-Python: <3\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no way to run pip."""
    monkeypatch.setenv("BUCKETPROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("pip was run"))
    return tmp_path / "cache"


def make_wheel(folder: Path, members: Mapping[str, str] = FAKE, version: str = "99.0") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"verl-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in members.items():
            archive.writestr(zipfile.ZipInfo(name), text)  # without the time, so that it is the same each time
    return path


def cached_wheel(store: Path, members: Mapping[str, str] = FAKE) -> Path:
    return make_wheel(store / "verl" / "99.0", members)


def pip_that(
    monkeypatch: pytest.MonkeyPatch, *, says: str = "", serves: Callable[[Path], object] | None = None
) -> list[list[str]]:
    """Replaces pip by one that fails saying ``says``, or succeeds with what ``serves`` puts into a folder."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        if serves:
            serves(Path(command[command.index("--dest") + 1]))
        return subprocess.CompletedProcess(command, 0 if serves else 1, stdout="", stderr=says)

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(Unavailable) as caught:
        call()
    line = str(caught.value)
    assert line
    assert "\n" not in line
    return line


def collected(call: Callable[..., Any], weights: Iterable[Any], bucket_bytes: float) -> list[list[Any]]:
    async def drive() -> list[list[Any]]:
        buckets = call(weights, bucket_bytes)
        return [bucket async for bucket in buckets] if hasattr(buckets, "__aiter__") else list(buckets)

    return asyncio.run(drive())


def modules() -> dict[str, ModuleType]:
    return {name: module for name, module in sys.modules.items() if name.startswith(("verl", "_released"))}


class TestSpecs:
    @pytest.mark.parametrize("text", ["verl@0.9.1", "verl@0.9.1:sender", "ms-swift@4.6.0", "a.b@1rc1"])
    def test_specs_are_told_from_other_targets(self, text: str) -> None:
        assert is_spec(text)

    @pytest.mark.parametrize(
        "text",
        [
            "verl",
            "@1",
            "verl@",
            "verl@1:",
            "a/b@1",
            "a@1/b.py:f",
            "old@2.py:f",
            "pkg.mod:attr",
            "a@1:b:c",
            " a@1",
        ],
    )
    def test_other_targets_are_no_specs(self, text: str) -> None:
        assert not is_spec(text)

    def test_the_known_releases(self) -> None:
        assert {spec.partition("@")[0] for spec in known()} == PROJECTS
        assert {f"verl@{version}" for version in VERSIONS} < set(known())
        assert all(is_spec(spec) for spec in known())
        assert len(set(known())) == len(known()) >= 15

    @pytest.mark.parametrize("spec", ["nobody@1.0", "verl@0.9.1:nothing", "verl", "verl@1:"])
    def test_what_is_unknown_is_answered_with_what_is_known(self, store: Path, spec: str) -> None:
        line = refusal(lambda: load(spec))
        assert spec.partition("@")[0] in line
        assert "verl@0.7.0, verl@0.7.1, verl@0.8.0, verl@0.9.0, verl@0.9.1" in line.partition("known: ")[2]

    @pytest.mark.parametrize("version", ["latest", "..", "1*", "-r", "1.0;x"])
    def test_what_is_no_version_never_reaches_pip_or_a_path(self, store: Path, version: str) -> None:
        assert repr(f"verl@{version}") in refusal(lambda: load(f"verl@{version}"))
        assert not store.exists()

    @pytest.mark.parametrize(("project", "version"), [("../verl", "1"), ("verl", "../1"), ("-r", "1"), ("", "1")])
    def test_fetch_keeps_within_its_cache(self, store: Path, project: str, version: str) -> None:
        assert "is no project@version" in refusal(lambda: fetch(project, version))

    def test_one_name_has_one_adapter(self) -> None:
        tuple(registry.adapters())
        with pytest.raises(ValueError, match="two adapters"):
            registry.adapter("verl", source="", releases={}, history="", why="")(lambda wheel: print)


class TestLoading:
    def test_the_function_is_the_wheels_own(self, store: Path) -> None:
        path = cached_wheel(store)
        got = load("verl@99.0")
        assert (got.spec, got.project, got.version, got.source) == ("verl@99.0", "verl", "99.0", BUCKETER)
        assert got.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
        assert got.promises == {}
        assert got.why
        assert inspect.isasyncgenfunction(got.call)
        assert collected(got.call, ["a", "b"], 1) == [["a"], ["b"]]

    def test_a_name_is_normalized(self, store: Path) -> None:
        cached_wheel(store)
        assert load("Verl@99.0").spec == "verl@99.0"

    def test_tracebacks_show_the_wheels_lines(self, store: Path) -> None:
        cached_wheel(store)
        call = load("verl@99.0").call
        with pytest.raises(ValueError, match="from the wheel") as caught:
            collected(call, [], 0)
        text = "".join(traceback.format_exception(caught.type, caught.value, caught.tb))
        assert f'"verl-99.0-py3-none-any.whl/{BUCKETER}", line 7' in text
        assert 'raise ValueError("this line is from the wheel")' in text
        assert inspect.getsource(call).startswith("async def get_named_tensor_buckets")

    def test_nothing_stays_in_sys_modules(self, store: Path) -> None:
        cached_wheel(store)
        load("verl@99.0")
        assert not modules()

    def test_nothing_stays_in_sys_modules_after_a_failure(self, store: Path) -> None:
        cached_wheel(store, {**FAKE, BUCKETER: "import verl.utils.device\n1 / 0\n"})
        assert "does not load here (ZeroDivisionError: division by zero)" in refusal(lambda: load("verl@99.0"))
        assert not modules()

    def test_an_installed_verl_is_neither_used_nor_disturbed(
        self, store: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("verl", "verl.utils", "verl.only_installed"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        before = modules()
        cached_wheel(store)
        load("verl@99.0")
        assert modules() == before
        cached_wheel(store, {**FAKE, BUCKETER: "import verl.only_installed\n"})
        assert "No module named 'verl.only_installed'" in refusal(lambda: load("verl@99.0"))
        assert modules() == before

    @pytest.mark.parametrize("lost", [BUCKETER, HELPER])
    def test_a_release_without_the_file(self, store: Path, lost: str) -> None:
        cached_wheel(store, {name: text for name, text in FAKE.items() if name != lost})
        line = refusal(lambda: load("verl@99.0"))
        assert line.startswith(f"verl@99.0: verl-99.0-py3-none-any.whl has no {lost}: ")
        assert "the adapter knows 0.7.0, 0.7.1, 0.8.0, 0.9.0, 0.9.1" in line

    @pytest.mark.parametrize(
        ("member", "name"), [(BUCKETER, "get_named_tensor_buckets"), (HELPER, "ensure_async_iterator")]
    )
    def test_a_release_without_the_function(self, store: Path, member: str, name: str) -> None:
        cached_wheel(store, {**FAKE, member: "x = 1\n"})
        assert f"{member} has no {name}: " in refusal(lambda: load("verl@99.0"))

    @pytest.mark.parametrize("text", ["def (:\n", "\0", "import a_package_that_nobody_has\n"])
    def test_a_file_that_does_not_load(self, store: Path, text: str) -> None:
        cached_wheel(store, {**FAKE, BUCKETER: text})
        assert "does not load here" in refusal(lambda: load("verl@99.0"))

    def test_what_is_not_supplied_says_so(self, store: Path) -> None:
        cached_wheel(store, {**FAKE, BUCKETER: "from verl.utils.device import *\nget_device_name()\n"})
        assert "get_device_name, which is not supplied" in refusal(lambda: load("verl@99.0"))

    def test_an_excerpt_leaves_out_everything_else(self, store: Path) -> None:
        text = "from __future__ import annotations\n1 / 0\nclass A: ...\ndef f(x: Absent):\n    return A, g\n"
        path = make_wheel(store, {"m.py": text})
        module = loading.excerpt(wheels.Wheel(path, "99.0", ""), "m.py", ["A", "f"], g=3)
        assert module.f(0) == (module.A, 3)
        assert module.f.__code__.co_firstlineno == 4

    def test_members_are_never_unpacked(self, store: Path, tmp_path: Path) -> None:
        path = cached_wheel(store)
        load("verl@99.0")
        assert [file for file in tmp_path.rglob("*") if file.is_file()] == [path]

    @pytest.mark.parametrize(
        "member", ["../../../evil.py", "/evil.py", "verl/../../evil.py", "C:\\evil.py", "..\\evil.py"]
    )
    def test_members_outside_of_their_folder_are_refused(self, store: Path, tmp_path: Path, member: str) -> None:
        path = cached_wheel(store, {**FAKE, member: "1 / 0"})
        assert f"has a member outside of its folder, {member!r}" in refusal(lambda: load("verl@99.0"))
        assert [file for file in tmp_path.rglob("*") if file.is_file()] == [path]

    def test_a_file_may_import_what_is_supplied_also_when_it_is_called(self, store: Path) -> None:
        late = "async def get_named_tensor_buckets(weights, bucket_bytes):\n"
        late += "    import torch\n    from verl.workers.rollout.utils import ensure_async_iterator\n"
        late += "    import verl.workers.rollout.utils as same\n"
        late += "    async for pair in same.ensure_async_iterator(weights):\n        yield [pair]\n"
        cached_wheel(store, {**FAKE, BUCKETER: late + "# ensure_async_iterator"})
        call = load("verl@99.0").call
        assert not modules()
        assert collected(call, ["a"], 1) == [["a"]]
        assert not modules()

    def test_what_is_not_supplied_is_not_imported_later_either(
        self, store: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "verl.only_installed", ModuleType("verl.only_installed"))
        late = (
            "async def get_named_tensor_buckets(weights, bucket_bytes):\n    import verl.only_installed\n    yield []\n"
        )
        cached_wheel(store, {**FAKE, BUCKETER: late})
        with pytest.raises(ModuleNotFoundError, match=r"verl\.only_installed"):
            collected(load("verl@99.0").call, [], 1)


class TestCache:
    def test_a_wheel_is_fetched_once(self, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        commands = pip_that(monkeypatch, serves=make_wheel)
        first = fetch("verl", "99.0")
        assert fetch("verl", "99.0") == first
        assert len(commands) == 1
        assert [file for file in store.rglob("*") if file.is_file()] == [first.path]
        assert [folder.name for folder in store.iterdir()] == ["verl"]

    def test_what_pip_is_told(self, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        commands = pip_that(monkeypatch, serves=make_wheel)
        fetch("verl", "99.0")
        (command,) = commands
        assert command[:4] == [sys.executable, "-m", "pip", "download"]
        assert {"--no-deps", "--only-binary=:all:", "--no-input"} < set(command)
        assert command[-1] == "verl==99.0"

    @pytest.mark.skipif(find_spec("pip") is None, reason="this Python has no pip")
    def test_pip_itself_serves_a_wheel_meant_for_other_pythons(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        info = {"verl-99.0.dist-info/METADATA": METADATA, "verl-99.0.dist-info/WHEEL": WHEEL}
        info["verl-99.0.dist-info/RECORD"] = ""
        source = make_wheel(tmp_path / "links", {**FAKE, **info})
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(source.parent))
        got = fetch("verl", "99.0", tmp_path / "cache")
        assert got.path == tmp_path / "cache" / "verl" / "99.0" / source.name
        assert got.path.read_bytes() == source.read_bytes()
        assert "no wheel of this version" in refusal(lambda: fetch("verl", "98.0", tmp_path / "cache"))

    def test_a_damaged_file_is_fetched_again(self, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = cached_wheel(store)
        path.write_bytes(path.read_bytes()[:-30])
        pip_that(monkeypatch, serves=make_wheel)
        load("verl@99.0")
        assert zipfile.is_zipfile(path)

    def test_a_damaged_file_is_named_where_it_cannot_be_fetched(
        self, store: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = cached_wheel(store)
        path.write_bytes(b"not a zip")
        pip_that(monkeypatch, says="ERROR: nothing (from versions: none)")
        line = refusal(lambda: load("verl@99.0"))
        assert "cannot be reached" in line
        assert f"damaged or not the released file: {path}" in line

    def test_a_damaged_member_names_the_file_to_delete(self, store: Path) -> None:
        path = cached_wheel(store)
        path.write_bytes(path.read_bytes().replace(b"yield [pair]", b"yield [PAIR]"))
        line = refusal(lambda: load("verl@99.0"))
        assert "Bad CRC-32" in line
        assert f"delete {path} and try again" in line

    def test_another_file_than_the_released_one_is_never_used(
        self, store: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fake = make_wheel(store / "verl" / "0.9.1", version="0.9.1")
        pip_that(monkeypatch, serves=lambda folder: make_wheel(folder, version="0.9.1"))
        line = refusal(lambda: load("verl@0.9.1"))
        digest = hashlib.sha256(fake.read_bytes()).hexdigest()
        assert f"did not serve the released wheel (its SHA-256 is {digest}, not db6e" in line

    def test_a_download_that_is_no_wheel(self, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pip_that(monkeypatch, serves=lambda folder: (folder / "verl-99.0-py3-none-any.whl").write_text("x"))
        assert "did not serve a readable wheel" in refusal(lambda: load("verl@99.0"))
        assert list(store.iterdir()) == []

    def test_a_cache_that_cannot_be_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "file").touch()
        monkeypatch.setenv("BUCKETPROOF_CACHE", str(tmp_path / "file" / "cache"))
        line = refusal(lambda: load("verl@99.0"))
        assert line.startswith(f"verl@99.0: cannot write to the cache {tmp_path}/file/cache (Not a directory): ")
        assert "set BUCKETPROOF_CACHE" in line

    def test_where_the_cache_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", "/home/someone")
        monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
        monkeypatch.setenv("BUCKETPROOF_CACHE", "~/own")
        assert wheels.default_cache() == Path("/home/someone/own")
        monkeypatch.delenv("BUCKETPROOF_CACHE")
        assert wheels.default_cache() == Path("/xdg/bucketproof")
        monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
        assert wheels.default_cache() == Path("/home/someone/.cache/bucketproof")

    def test_a_user_without_a_home(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def homeless(_: Path) -> Path:
            raise RuntimeError("Could not determine home directory.")

        monkeypatch.setattr(Path, "expanduser", homeless)
        monkeypatch.setenv("BUCKETPROOF_CACHE", "~/own")
        assert "set BUCKETPROOF_CACHE" in refusal(wheels.default_cache)


class TestPipFailures:
    @pytest.mark.parametrize(
        ("says", "line"),
        [
            ("/usr/bin/python: No module named pip\n", "this Python has no pip: run "),
            (
                "ERROR: Could not find it (from versions: 0.1, 0.2)\nERROR: No matching distribution\n",
                "the package index has no wheel of this version: choose another, such as 0.7.0, 0.7.1, 0.8.0",
            ),
            (
                "WARNING: Retrying (Retry(total=0)) after connection broken\n"
                "ERROR: Could not find it (from versions: none)\nERROR: No matching distribution\n",
                "the package index cannot be reached (offline?): go online once, or put the wheel into ",
            ),
            (
                "ERROR: HTTPSConnectionPool(host='h.test', port=443): Read timed out.\n",
                "the package index cannot be",
            ),
            (
                "ERROR: Exception:\nTraceback (most recent call last):\nOSError: [Errno 28] No space left\n",
                "pip failed: OSError: [Errno 28] No space left",
            ),
            (
                "ERROR: 403 Client Error: Forbidden for url: https://me:secret@h.test/simple/verl/\n",
                "pip failed: 403 Client Error: Forbidden for url: the package index",
            ),
            ("", "pip failed: it said nothing"),
        ],
    )
    def test_pips_words_come_to_one_line(
        self, store: Path, monkeypatch: pytest.MonkeyPatch, says: str, line: str
    ) -> None:
        pip_that(monkeypatch, says=says)
        told = refusal(lambda: load("verl@99.0"))
        assert told.startswith(f"verl@99.0: {line}")
        assert "h.test" not in told
        assert list(store.iterdir()) == []

    def test_a_caller_without_releases_is_told_the_newest(self, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pip_that(monkeypatch, says="ERROR: no (from versions: 1, 2, 3, 4, 5, 6)")
        assert refusal(lambda: fetch("verl", "99.0")).endswith("such as 2, 3, 4, 5, 6")

    @pytest.mark.parametrize(
        ("error", "words"),
        [
            (subprocess.TimeoutExpired("pip", 600), "pip took over 600 s"),
            (FileNotFoundError(2, "No such file"), "pip does not start (No such file)"),
        ],
    )
    def test_a_pip_that_hangs_or_does_not_start(
        self, store: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
    ) -> None:
        def run(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr(subprocess, "run", run)
        assert words in refusal(lambda: load("verl@99.0"))


@cache
def obstacle() -> str:
    """Why the published wheels cannot be had, or nothing; asked once, since offline it takes a while."""
    try:
        for version in VERSIONS:
            load(f"verl@{version}")
    except Unavailable as error:
        return str(error)
    return ""


@pytest.fixture(params=VERSIONS)
def published(request: pytest.FixtureRequest) -> released.Released:
    if reason := obstacle():
        pytest.skip(reason)
    return load(f"verl@{request.param}")


def run_and_close_loops(line: str) -> None:
    loops: list[asyncio.AbstractEventLoop] = []
    new = asyncio.new_event_loop

    def kept_loop() -> asyncio.AbstractEventLoop:
        loops.append(new())
        return loops[-1]

    with patch.object(asyncio, "new_event_loop", kept_loop):
        try:
            exec(line, {})
        finally:
            for loop in loops:
                loop.run_until_complete(loop.shutdown_asyncgens())
                loop.close()


def lacking(spec: str) -> str:
    """Why the wheel of a spec cannot be had for a test, or nothing."""
    project, _, rest = spec.partition("@")
    if any((released.default_cache() / project / rest.partition(":")[0]).glob("*.whl")):
        return ""
    if spec.startswith(LARGE):
        return f"a large wheel is not downloaded for a test, but by: bucketproof survey {spec}"
    return obstacle()


@pytest.fixture
def imported(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes what a released target runs importable, as it is where the package is installed."""
    monkeypatch.setattr(torch, "cat", torch.cat)  # which some lines replace

    def put(spec: str) -> None:
        if reason := lacking(spec):
            pytest.skip(reason)
        with monkeypatch.context() as patch:
            patch.setattr(loading, "_run", partial(recorded, loading._run, ran := []))
            load(spec)
        for member, module in ran:
            place = ""
            for part in member.removesuffix(".py").split("/"):
                place = f"{place}.{part}".lstrip(".")
                monkeypatch.setitem(sys.modules, place, sys.modules.get(place, ModuleType(place)))
            vars(sys.modules[place]).update(vars(module))

    return put


def recorded(run: Callable[..., ModuleType], ran: list[Any], wheel: object, member: str, *rest: object) -> ModuleType:
    ran.append((member, run(wheel, member, *rest)))
    return ran[-1][1]


def kept(call: Callable[..., Any], tensor: torch.Tensor) -> bool:
    ((bucket,),) = [collected(call, [("name", tensor)], 64)[0]]
    return bool(bucket[1].data_ptr() == tensor.data_ptr())


class TestPublished:
    def test_it_is_the_real_function(self, published: released.Released) -> None:
        assert published.call.__name__ == "get_named_tensor_buckets"
        assert published.call.__code__.co_filename == f"verl-{published.version}-py3-none-any.whl/{BUCKETER}"
        assert inspect.isasyncgenfunction(published.call) == (published.version != "0.7.0")
        assert published.spec in known()

    def test_all_but_the_oldest_promise_what_a_plain_bucketer_does(self, published: released.Released) -> None:
        assert list(published.promises) == (["scope", "retention", "layout"] if published.version == "0.7.0" else [])

    def test_only_the_newest_knows_fused_groups(self, published: released.Released) -> None:
        parameters = list(inspect.signature(published.call).parameters)
        assert parameters[:2] == ["iterable", "bucket_bytes"]
        assert parameters[2:] == (["fusion_groups"] if published.version == "0.9.1" else [])

    def test_three_tensors_fill_two_buckets(self, published: released.Released) -> None:
        weights = [(name, torch.full((4,), float(at))) for at, name in enumerate("abc")]
        buckets = collected(published.call, iter(weights), 32)
        assert [[name for name, _ in bucket] for bucket in buckets] == [["a", "b"], ["c"]]
        assert all(torch.equal(tensor, dict(weights)[name]) for bucket in buckets for name, tensor in bucket)

    def test_an_async_producer_serves_as_well(self, published: released.Released) -> None:
        if published.version == "0.7.0":
            return  # which is not asynchronous

        async def producer() -> Any:
            yield "a", torch.ones(4)

        assert len(collected(published.call, producer(), 32)) == 1

    def test_a_slice_is_copied_and_an_owned_tensor_kept_since_0_9(self, published: released.Released) -> None:
        assert kept(published.call, torch.ones(4)) == (published.version not in ("0.7.1", "0.8.0"))
        assert kept(published.call, torch.ones(8)[2:6]) == (published.version == "0.7.0")

    def test_a_bad_limit_is_refused(self, published: released.Released) -> None:
        with pytest.raises(ValueError, match="bucket_bytes"):
            collected(published.call, [], 0)


class TestLines:
    @pytest.mark.parametrize("spec", [spec for spec in known() if lines(spec)])
    def test_each_raises(self, spec: str, imported: Callable[[str], None]) -> None:
        imported(spec)
        for line in lines(spec).values():
            with pytest.raises((AssertionError, RuntimeError, StopAsyncIteration)):  # and no import's error
                run_and_close_loops(line)

    @pytest.mark.parametrize(("spec", "mended", "names"), MENDED)
    def test_each_ends_where_it_is_mended(
        self, spec: str, mended: str, names: list[str], imported: Callable[[str], None]
    ) -> None:
        imported(mended)
        for name in names:
            run_and_close_loops(lines(spec)[name])

    def test_each_broken_promise_of_the_page_has_one(self) -> None:
        page = (Path(__file__).parents[1] / "docs" / "released.md").read_text(encoding="utf-8")
        broken = {
            f"{target.partition(chr(10))[0]} {name}"
            for target in page.split("\n## ")
            for name in re.findall(r"^- `([a-z.-]+)`, in ", target, re.MULTILINE)  # what is a SHOULD says so before
        }
        assert broken
        assert broken <= {f"{spec} {name}" for spec in known() for name in lines(spec)}
