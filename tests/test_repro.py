"""Reproduction scripts: each shows what has happened, shows nothing of a sound bucketer, and is fit to be read."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from bucketproof.adapters import packer
from bucketproof.cli import main
from bucketproof.known import Known
from bucketproof.properties import PROFILES, PROPERTIES, Outcome, Promises, Target, cells, judge
from bucketproof.properties.evidence import bits
from bucketproof.properties.outcome import Failure
from bucketproof.reference import base_guard, get_named_tensor_buckets_sync, pack_aligned, unpack_aligned
from bucketproof.reference.faults import FAULTS
from bucketproof.repro import scripted, unscripted
from bucketproof.repro.attempts import attempts
from bucketproof.repro.linker import Linker, Place, Unwritable
from bucketproof.repro.parts import plain
from bucketproof.repro.setting import Attempt, Case, Setting
from bucketproof.repro.source import module, references
from bucketproof.repro.subjects import subject
from bucketproof.repro.trying import run, shows
from bucketproof.repro.writing import write
from bucketproof.repro_files import file_names, folder, hint
from bucketproof.request import BadRequest
from bucketproof.strategies import CHAINS, LAYOUTS, PROVENANCES, Item, Lender, Plan, Stream, content
from bucketproof.strategies.plans import GRAD_MODES, ITERABLES
from bucketproof.targets import resolve
from bucketproof.trial import Trial
from bucketproof.verdict import Verdict, environment

SMOKE = PROFILES["smoke"]
SOUND = Target("sound", get_named_tensor_buckets_sync)


def _benchmark() -> ModuleType:
    """The command that does for the whole zoo what is done here for some of it."""
    path = Path(__file__).parent / "benchmarks" / "repro.py"
    spec = importlib.util.spec_from_file_location("benchmark_of_scripts", path)
    assert spec is not None
    assert spec.loader is not None
    found = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


zoo = _benchmark()


@pytest.fixture(scope="module")
def runner() -> Iterator[Callable[..., int]]:
    with zoo.Runner() as each:
        yield each


# The zoo.

BY_CHANCE = {"remembers-addresses"}
"""It goes by where memory is used again, which is the allocator's affair, and another one in another process."""
OF_EACH_PROPERTY = {fault.property: fault for fault in FAULTS.values() if fault.name not in BY_CHANCE}
"""The last fault of each. `python tests/benchmarks/repro.py` does all of them, which takes minutes."""


@pytest.mark.parametrize("fault", OF_EACH_PROPERTY.values(), ids=[fault.name for fault in OF_EACH_PROPERTY.values()])
def test_a_script_ends_with_1_against_its_fault_and_with_0_against_a_sound_bucketer(
    fault: Any, runner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault.property == "lifecycle.terminates":
        monkeypatch.setattr("bucketproof.properties.limits.SECONDS", 0.5)
    outcome = next(zoo.failing(fault.name))
    assert zoo.codes(runner, fault, outcome, tmp_path) == (1, 0), outcome.failure


def test_every_property_has_a_check() -> None:
    plan = Plan((Item("a", "fresh"),), 4)
    for id, prop in PROPERTIES.items():
        if prop.group:
            continue  # what it needs is more than torch and the target
        about = next((each.id for each in PROVENANCES.values() if each.custody in prop.custodies), None)
        case = Case(id, about, plan, SOUND, hangs=id == "lifecycle.terminates")
        assert list(attempts(case)) or not id.startswith(("device", "lifecycle.cancellation")), id
    assert list(attempts(Case("of.nobody", None, plan, SOUND))) == []


# What a script says.


def failing(target: Target, cell: str) -> Outcome:
    """The verdict on a cell, which must fail."""
    outcome = judge(next(each for each in cells() if each.id == cell), target, SMOKE, 0)
    assert outcome.status == "fail"
    return outcome


def script_of(outcome: Outcome, target: Target, spec: str) -> str:
    found = scripted(outcome, target, spec).failure
    assert found is not None
    return found.script


DETACHED = "aliasing.survives-overwrite[detach]"


@pytest.fixture(scope="module")
def detached() -> Outcome:
    return failing(resolve("base-guard"), DETACHED)


def test_a_script_says_what_it_is_about_and_how_it_is_run(detached: Outcome) -> None:
    text = script_of(detached, resolve("base-guard"), "base-guard")
    head = text[: text.index("import")]

    assert detached.failure
    assert detached.failure.sentence in head.replace("\n# ", " ")
    assert detached.failure.what in head.replace("\n# ", " ")
    assert "It ends with 1" in head
    assert all(line.startswith("#") for line in head.splitlines() if line)
    assert 'yield hand_over("layers.0.weight", detach, (1,), torch.float32, Lent(0, nbytes=4, seed=0))' in text
    assert "A view through `.detach()`, as Megatron exporters yield parameters." in text
    assert len(text.splitlines()) < 180
    assert text == script_of(detached, resolve("base-guard"), "base-guard"), "the same each time"


def test_nothing_of_the_suite_is_imported_but_the_target(detached: Outcome) -> None:
    text = script_of(detached, resolve("base-guard"), "base-guard")

    assert re.findall(r"bucketproof\S*", text[text.index("import") :]) == [
        'bucketproof.reference:base_guard")',
    ]
    assert "hypothesis" not in text.lower()


def test_names_and_messages_cannot_break_a_script() -> None:
    names = ('"""', "'\\", "a\nb", "\r\x00", "<script>", "重み", "x" * 10_000, "\ud800")
    plan = Plan(tuple(Item(name, "slice", seed=i) for i, name in enumerate(names)), 1 << 20)
    what = f"{names[2]!r}: \x1b[31m it was lost\r\n\x0bimport os"
    failure = Failure("A sentence.", what, str(plan), (), ())
    outcome = Outcome("values.conserved[slice]", "fail", "MUST", failure=failure)
    target = resolve("drops-the-second-of-a-bucket")
    text = script_of(outcome, target, "drops-the-second-of-a-bucket")

    assert run(text, target.call) == 1
    assert run(text, get_named_tensor_buckets_sync) == 0
    assert '"x" * 10000' in text
    assert all(line.startswith("#") for line in text[: text.index("\n\n")].split("\n"))


def test_scripts_are_clean_python(tmp_path: Path, detached: Outcome) -> None:
    for name in ("base-guard", "always-clone"):
        target = resolve(name)
        for cell in ("ownership.no-copy[full-tensor]", "memory.peak", DETACHED, "aliasing.no-pinned-storage[slice]"):
            outcome = judge(next(each for each in cells() if each.id == cell), target, SMOKE, 0)
            if outcome.status == "fail":
                (tmp_path / f"{name}-{len(cell)}.py").write_text(script_of(outcome, target, name))
    found = [*tmp_path.iterdir()]
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E9,F,B", "--ignore", "B010"]
    said = subprocess.run([*ruff, str(tmp_path)], capture_output=True, text=True, check=False)

    assert len(found) > 3
    assert said.returncode == 0, said.stdout


# The stream of a script.


def first_of(provenance: str, layout: str = "contiguous") -> Item:
    """An item that can be built."""
    domains = [PROVENANCES[provenance].domain, LAYOUTS[layout].domain]
    ops = ()
    if provenance in CHAINS:
        nearest, further = CHAINS[provenance]
        ops = (nearest[-1], further[0])
    for shape in ((2,), (3, 2), (2, 3, 2), ()):
        for dtype in domains[0].dtypes:
            if all(domain.admits(shape, dtype) for domain in domains):
                return Item("w", provenance, dtype, shape, layout, ops, seed=3)
    raise AssertionError(provenance)


UNWRITTEN = ("numpy-memmap", "shared-memory-segment")
"""Memory that torch does not make."""
BUILT = [
    first_of(id)
    for id, each in PROVENANCES.items()
    if each.group not in ("distributed", "cuda") and id not in UNWRITTEN
] + [first_of("detach", layout) for layout in LAYOUTS if layout != "contiguous"]


def written(plan: Plan, attempt: Attempt, target: Target = SOUND, cell: str = "values.conserved") -> str:
    place = f"{get_named_tensor_buckets_sync.__module__}:{get_named_tensor_buckets_sync.__qualname__}"
    return write(Setting(Case(cell, None, plan, target), attempt), subject(target, place), ["# a test"])


@pytest.mark.parametrize("item", BUILT, ids=[f"{item.provenance}-{item.layout}" for item in BUILT])
def test_a_script_builds_the_weights_that_the_plan_says(item: Item) -> None:
    """Of every provenance and layout, bit for bit; and a sound bucketer passes."""
    plan = Plan((item, replace(item, name="v", seed=4)), 1 << 20)
    text = written(plan, Attempt("arrived", nans=True))
    script: dict[str, Any] = {"__name__": "a_script"}
    exec(text, script)

    expected = [
        (name, tensor.dtype, tuple(tensor.shape), tensor.stride(), bits(tensor)) for name, tensor in _stream(plan)
    ]
    found = [(n, t.dtype, tuple(t.shape), t.stride(), bits(t)) for n, t in script["weights"]()]
    assert found == expected
    assert run(written(plan, Attempt("overwritten")), get_named_tensor_buckets_sync) == 0


@pytest.mark.parametrize("provenance", UNWRITTEN)
def test_memory_that_torch_does_not_make_has_no_script(provenance: str) -> None:
    with pytest.raises(Unwritable, match=f"a script has no memory as that of {provenance} is"):
        written(Plan((first_of(provenance),), 1 << 20), Attempt("arrived"))


def _stream(plan: Plan) -> Iterator[tuple[str, torch.Tensor]]:
    return iter(Stream(plan).iterable())


def test_content_is_that_of_the_suite() -> None:
    """But for numbers that are none, of which the simpler one has no more than others."""
    ours, theirs = torch.zeros(2, 400_000, dtype=torch.uint8)
    plain.write(ours, torch.int32, 1007)
    content.write(theirs, torch.int32, 1007)
    assert torch.equal(ours, theirs)


LENDERS = [
    Lender(kind, size, overwrite)
    for kind in ("buffer", "ping-pong", "ring", "per-dtype", "module")
    for size in ("exact", "larger", "bucket")
    for overwrite in ("next", "boundary", "end")
]


@pytest.mark.parametrize("lender", LENDERS, ids=str)
@pytest.mark.parametrize("iterable", ["generator", "list"])
def test_lenders_write_when_the_plan_says(lender: Lender, iterable: Any) -> None:
    """Whoever keeps what is lent is caught, and whoever copies is not, however the memory is used again."""
    items = tuple(
        Item(f"w{i}", "detach", dtype, (i % 2 + 1,), seed=i) for i, dtype in enumerate(["float32", "int8"] * 3)
    )
    plan = Plan(items, 8, lenders=(lender, Lender()), iterable=iterable)
    text = written(plan, Attempt("overwritten"), cell="aliasing.survives-overwrite")

    assert run(text, lambda weights, limit: [[pair] for pair in weights]) == 1
    assert run(text, get_named_tensor_buckets_sync) == 0


def test_a_long_stream_is_a_loop() -> None:
    pattern = (Item("", "fresh"), Item("", "slice", "int8", (3,)))
    items = tuple(replace(pattern[i % 2], name=f"w{i}", seed=i) for i in range(80))
    plan = Plan(items, 40)
    text = written(plan, Attempt("arrived", nans=True))
    script: dict[str, Any] = {"__name__": "a_script"}
    exec(text, script)

    assert "for number in range(0, 80, 2):" in text
    assert text.count("yield hand_over") == 2
    assert [(name, bits(t)) for name, t in script["weights"]()] == [(name, bits(t)) for name, t in _stream(plan)]
    uneven = replace(plan, items=(*items[:-1], replace(items[-1], name="last")))
    assert written(uneven, Attempt("arrived")).count("yield hand_over") == 80


@pytest.mark.parametrize("grad_mode", GRAD_MODES)
@pytest.mark.parametrize("consumer", ["hold", "drop", "clear"])
def test_a_sound_bucketer_passes_in_every_mode(grad_mode: Any, consumer: Any) -> None:
    items = tuple(Item(name, name, seed=i) for i, name in enumerate(("fresh", "live-parameter", "inference", "conj")))
    items = tuple(replace(item, dtype="complex64") if item.name == "conj" else item for item in items)
    plan = Plan(items, 8, grad_mode=grad_mode, consumer=consumer)
    for check in ("overwritten", "pinned", "arrived", "contained", "order", "held"):
        assert run(written(plan, Attempt(check)), get_named_tensor_buckets_sync) == 0, check


@pytest.mark.parametrize("iterable", ITERABLES)
def test_weights_come_in_the_kind_that_the_plan_says(iterable: Any) -> None:
    plan = Plan((Item("a", "fresh"), Item("b", "slice")), 4, iterable=iterable)
    target = resolve("reference") if iterable.startswith("async") else SOUND
    text = written(plan, Attempt("arrived"), target)

    assert run(text, target.call) == 0
    assert run(text, _collected if iterable.startswith("async") else lambda weights, limit: [list(weights)[1:]]) == 1


async def _collected(weights: Any, limit: float) -> Any:
    await anext(aiter(weights))
    async for pair in weights:
        yield [pair]


# What is judged.

MINE = """
import torch
from bucketproof import Target
from bucketproof.adapters import compaction, packer, sender

def get_buckets(weights, bucket_bytes):
    for name, tensor in weights:
        yield [(name, {kept})]

class Buckets:
    @staticmethod
    def get(weights, bucket_bytes):
        return get_buckets(weights, bucket_bytes)

promised = Target("mine", get_buckets)

def compact(tensor):
    return {kept}

compacting = compaction(compact)

def send(weights, bucket_bytes, deliver):
    for bucket in get_buckets(weights, bucket_bytes):
        deliver(bucket)

async def send_later(weights, bucket_bytes, deliver):
    send(weights, bucket_bytes, deliver)

sending, sending_later = sender(send), sender(send_later)

def pack(named):
    return torch.cat([tensor.detach().clone().view(-1).view(torch.uint8) for _, tensor in named]), [
        (name, tensor.dtype, tensor.shape) for name, tensor in named
    ]

def unpack(payload):
    flat, metadata = payload
    sizes = [shape.numel() * dtype.itemsize for _, dtype, shape in metadata]
    parts = flat.split(sizes)
    return [({name}, part.clone().view(dtype).view(shape)) for (name, dtype, shape), part in zip(metadata, parts)]

packing = packer(pack, unpack)
"""
BROKEN = {"kept": "tensor.detach()", "name": "name.upper()"}
MENDED = {"kept": "tensor.detach().clone(memory_format=torch.contiguous_format)", "name": "name"}

NO_ALIAS = "aliasing.survives-overwrite[exact-cover]"


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's file, in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    path = tmp_path / "mine.py"
    path.write_text(MINE.format(**BROKEN))
    yield path
    sys.modules.pop("mine", None)


@pytest.mark.parametrize(
    ("spec", "cell"),
    [
        ("mine.py:get_buckets", NO_ALIAS),
        ("mine:get_buckets", NO_ALIAS),
        ("mine.py:Buckets.get", NO_ALIAS),
        ("mine.py:promised", NO_ALIAS),
        ("compaction=mine.py:compact", NO_ALIAS),
        ("mine.py:compacting", NO_ALIAS),
        ("mine.py:sending", NO_ALIAS),
        ("mine.py:sending_later", NO_ALIAS),
        ("mine.py:packing", "values.conserved[fresh]"),
        ("mine.py:packing", "packing.round-trip"),
    ],
)
def test_a_users_bucketer_is_loaded_and_mended(spec: str, cell: str, mine: Path, runner: Any) -> None:
    """The script fails now, and no longer when the file is mended; and so it does for a mended copy by its name."""
    target = resolve(spec)
    path = mine.with_name("script.py")
    path.write_text(script_of(failing(target, cell), target, spec), encoding="utf-8")
    copy = mine.with_name("mended.py")
    copy.write_text(MINE.format(**MENDED))
    named = spec.removeprefix("compaction=").replace("mine", "mended")
    others = ("mended.py:pack", "mended.py:unpack") if cell.startswith("packing") else (named,)

    assert runner(path) == 1
    assert runner(path, *others) == 0
    mine.write_text(MINE.format(**MENDED))
    assert runner(path) == 0


def test_a_script_needs_nobody_who_has_imported_torch_before(mine: Path) -> None:
    """And says in one line what has happened."""
    target = resolve("mine.py:get_buckets")
    path = mine.with_name("script.py")
    path.write_text(script_of(failing(target, NO_ALIAS), target, "mine.py:get_buckets"), encoding="utf-8")
    kept = MINE.format(**BROKEN)
    mine.write_text("import torch\n" + kept[kept.index("def get_buckets") : kept.index("promised =")])
    done = subprocess.run([sys.executable, str(path)], cwd=mine.parent, capture_output=True, text=True, check=False)

    assert done.returncode == 1, done.stderr
    assert re.fullmatch(r"'layers.0.weight' was other than it was handed over .*a5 a5 a5 a5\n", done.stdout)


def test_a_function_that_was_given_is_imported_by_its_own_name(detached: Outcome) -> None:
    text = script_of(detached, Target("mine", base_guard), "")
    assert 'load("bucketproof.reference.generations:base_guard")' in text
    assert run(text, base_guard) == 1


def test_what_has_no_name_has_no_script(detached: Outcome) -> None:
    nameless = Target("nameless", lambda weights, limit: base_guard(weights, limit))
    assert script_of(detached, nameless, "") == ""


def test_a_packer_whose_functions_have_no_name_is_judged_as_a_bucketer_alone(mine: Path) -> None:
    mine.write_text(MINE.format(**BROKEN) + "\nnameless = packer(lambda named: pack(named), unpack)\n")
    target = resolve("mine.py:nameless")
    assert 'load("mine.py:nameless")' in script_of(
        failing(target, "values.conserved[fresh]"), target, "mine.py:nameless"
    )
    assert script_of(failing(target, "packing.round-trip"), target, "mine.py:nameless") == ""


def test_a_script_ends_with_2_if_there_is_nothing_to_judge(detached: Outcome, tmp_path: Path, runner: Any) -> None:
    path = tmp_path / "script.py"
    path.write_text(script_of(detached, resolve("base-guard"), "base-guard"))
    for name in ("no.such:thing", "nothing.py:thing", "bucketproof.reference:nothing", "math:sqrt", "nonsense"):
        assert runner(path, name) == 2, name


# Trying.


def test_a_script_that_shows_nothing_is_none(detached: Outcome) -> None:
    """As of a target that fails only now and then."""
    assert script_of(detached, resolve("sync-generator"), "sync-generator") == ""


def test_trying_leaves_the_process_as_it_was() -> None:
    before = torch.get_num_threads(), torch.is_grad_enabled(), torch.get_default_dtype(), set(sys.modules)
    for name in ("takes-one-thread", "leaves-grad-off", "sets-the-default-dtype"):
        outcome = failing(resolve(name), "lifecycle.leaves-no-trace")
        assert script_of(outcome, resolve(name), name)
    assert (torch.get_num_threads(), torch.is_grad_enabled(), torch.get_default_dtype()) == before[:3]
    assert "_bucketproof_script" not in sys.modules


def test_a_target_that_hangs_is_not_tried_again_and_again(detached: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bucketproof.properties.limits.SECONDS", 0.2)
    monkeypatch.setattr("bucketproof.repro.SECONDS", 0.1)
    calls = []

    def hangs(weights: object, limit: float) -> object:
        calls.append(limit)
        while True:
            pass

    assert script_of(detached, Target("hangs", hangs), "base-guard") == ""
    assert len(calls) <= 3


def test_an_error_of_the_writer_costs_no_verdict(detached: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object) -> str:
        raise RuntimeError("a bug")

    monkeypatch.setattr("bucketproof.repro.write", fails)
    found = scripted(detached, resolve("base-guard"), "base-guard")
    assert found == unscripted(detached, "none could be written that shows it")
    assert found.failure
    assert found.failure.script == ""


# Pasting.


def test_definitions_come_without_annotations_and_registration() -> None:
    found = module("bucketproof.strategies.provenances.shared").definitions
    assert found["tied"].startswith("def tied(shape, dtype, memory):\n")
    assert "entry = module.state_dict()" in found["state_dict"]
    assert found["_Module"] == "class _Module(torch.nn.Module):\n    pass"
    assert "@staticmethod" in module("bucketproof.strategies.provenances.fresh").definitions["_EndsInAView"]


def test_what_a_definition_refers_to_is_found() -> None:
    text = "def f(a, b=C):\n    d = e(a)\n    def g():\n        return h(d)\n    return [i for i in j] + [g()]"
    assert references(text) == ("C", "e", "h", "j")


def test_two_things_of_one_name_are_refused() -> None:
    mine, facts = "def is_shared(tensor): ...", Place("bucketproof.properties.evidence", "facts")
    linker = Linker({"user": "def user():\n    return _span, facts", "_span": mine, "facts": facts})
    with pytest.raises(Unwritable, match="there are two things called _span"):
        linker.link(["user"])
    with pytest.raises(Unwritable, match="nothing is called mystery"):
        Linker({"user": "def user():\n    return mystery"}).link(["user"])
    with pytest.raises(Unwritable, match="does not define nothing"):
        Linker({"nothing": Place(facts.module, "nothing")}).link(["nothing"])


# Files.


def test_file_names_are_safe_and_all_different() -> None:
    ids = ["aliasing.survives-overwrite[set_]", "values.order", "a[b/../c]", "a[b-..-c]", "A[B-..-C]", "smoke"]
    found = file_names(dict.fromkeys(ids))
    assert found["aliasing.survives-overwrite[set_]"] == "aliasing.survives-overwrite-set_.py"
    assert found["values.order"] == "values.order.py"
    assert len({name.lower() for name in found.values()}) == len(ids)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+\.py", name) for name in found.values())


def verdict(*outcomes: Outcome) -> Verdict:
    facts: dict[str, Any] = {"target": "mine", "origin": {}, "profile": "smoke", "seed": 0, "seconds": 1.0}
    empty = {name: {} for name in Verdict.__dataclass_fields__ if name in ("provenances", "promises")}
    return Verdict(**facts, environment=environment(), cells=outcomes, **empty)


def test_a_script_is_written_for_each_failing_cell_that_has_one(tmp_path: Path) -> None:
    failure = Failure("A sentence.", "what", "Plan((), 1)", (), (), script="print(1)\n")
    with_one = Outcome("values.order", "fail", "MUST", failure=failure)
    without = Outcome("device.place", "fail", "MUST", failure=replace(failure, script=""))
    passing = Outcome("values.tied", "pass", "MUST")
    (tmp_path / "there" / "kept.txt").parent.mkdir()
    (tmp_path / "there" / "kept.txt").write_text("mine")
    with folder(str(tmp_path / "there")) as put:
        said = put(verdict(with_one, without, passing))

    assert {each.name: each.read_text() for each in (tmp_path / "there").iterdir()} == {
        "values.order.py": "print(1)\n",
        "kept.txt": "mine",
    }
    assert said == f"{tmp_path / 'there'} has a script for each of 1 failing cells, and none for device.place.\n"
    with folder(None) as put:
        assert put(verdict(with_one)) == ""
    line = "With --repro DIR, each failing cell is written as a script that needs torch and the target alone.\n"
    assert (hint(verdict(with_one)), hint(verdict(without, passing))) == (line, "")


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    assert main(["check", "base-guard", "--repro", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err == (
        f"bucketproof: {tmp_path / 'file'} is a file: name the folder that scripts are to be written into\n"
    )
    assert main(["check", "base-guard", "--repro", str(tmp_path / "file" / "below")]) == 2
    assert "no script can be written into" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_that_is_read_only_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(BadRequest, match="no script can be written into"), folder(str(tmp_path)):
        pass


def test_the_command_writes_scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str], runner: Any) -> None:
    asked = ["--profile", "smoke", "--only", DETACHED, "--only", "ownership.no-copy[fresh]", "-n0"]
    code = main(["check", "base-guard", *asked, "--repro", str(tmp_path / "new")])

    assert code == 1
    assert f"{tmp_path / 'new'} has a script for each of 1 failing cells.\n" in capsys.readouterr().out
    (path,) = (tmp_path / "new").iterdir()
    assert path.name == "aliasing.survives-overwrite-detach.py"
    assert runner(path) == 1
    assert runner(path, "bucketproof.reference:get_named_tensor_buckets") == 0


def test_a_verdict_that_was_kept_has_its_scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failure = Failure("A sentence.", "what", "Plan((), 1)", (), (), script="print(1)\n")
    kept, folder = tmp_path / "verdict.json", tmp_path / "scripts"
    kept.write_text(verdict(Outcome("values.order", "fail", "MUST", failure=failure)).to_json())

    assert main(["report", str(kept), "--repro", str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder} has a script for each of 1 failing cells.\n"
    assert (folder / "values.order.py").read_text() == "print(1)\n"
    assert main(["report", str(kept)]) == 0
    assert capsys.readouterr().out.endswith("is written as a script that needs torch and the target alone.\n")


def test_what_is_known_and_what_passes_has_no_script(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = next(each for each in cells() if each.id == DETACHED)
    known = Trial(resolve("base-guard"), SMOKE, known={DETACHED: Known("", "")}, spec="base-guard").judge(cell)
    assert known.failure
    assert known.failure.script == ""
    fails = Trial(resolve("base-guard"), SMOKE, spec="base-guard").judge(cell)
    assert fails.failure
    assert "def check(" in fails.failure.script
    assert Trial(resolve("reference"), SMOKE, spec="reference").judge(cell).failure is None


def test_a_bucketer_that_fails_smoke_has_a_script(mine: Path) -> None:
    mine.write_text("def loses(weights, bucket_bytes):\n    for _ in weights:\n        pass\n    return []\n")
    smoke = Trial(resolve("mine.py:loses"), SMOKE, spec="mine.py:loses").smoke
    assert smoke.failure
    assert run(smoke.failure.script, None) == 1
    assert shows(smoke.failure.script, resolve("mine.py:loses").call)
    assert not shows(smoke.failure.script, get_named_tensor_buckets_sync)


def test_a_packer_is_named_by_its_halves() -> None:
    target = packer(pack_aligned, unpack_aligned)
    found = subject(target, "aligned-packer", in_parts=True)
    assert found.lines == (
        'return load("bucketproof.reference:pack_aligned"), load("bucketproof.reference:unpack_aligned")',
    )
    assert Promises(padding=15).padding == target.promises.padding
