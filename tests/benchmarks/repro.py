"""Every reproduction script of the zoo, run against its fault and against a bucketer that keeps the same promises.

Run it with `python tests/benchmarks/repro.py`, or with the names of some faults. It takes minutes: each fault is judged
in the cells of its own property, at smoke profile, until three of them have failed.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from bucketproof.properties import PROFILES, Cell, Outcome, judge, limits
from bucketproof.reference import compact
from bucketproof.reference.faults import FAULTS
from bucketproof.reference.faults.cutting import _split, grouped_buckets
from bucketproof.reference.faults.loop import buckets, refuse, total
from bucketproof.reference.faults.registry import Fault
from bucketproof.repro import scripted
from bucketproof.targets import target_of
from bucketproof.zoo import usual_cells

HERE = Path(__file__).resolve()
FAILING = 3
"""Failing cells of a fault that are looked at."""

# What keeps the promises that some faults make and break.


def casting(weights: Any, limit: float) -> Any:
    """A sound bucketer that casts everything to bfloat16."""
    return buckets(weights, limit, keep=_cast)


def _cast(tensor: torch.Tensor) -> torch.Tensor:
    return compact(tensor if tensor.dtype is torch.bfloat16 else compact(tensor).to(torch.bfloat16))


def strict(weights: Any, limit: float) -> Any:
    """A sound bucketer whose buckets hold less than the limit."""
    return buckets(weights, limit, fits=lambda bucket, tensor, limit: total(bucket) + tensor.nbytes < limit)


def refusing(weights: Any, limit: float) -> Any:
    """A sound bucketer that refuses what is above the limit."""

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.nbytes > limit:
            raise ValueError("too large")
        return compact(tensor)

    return buckets(weights, limit, keep=keep)


def splitting(weights: Any, limit: float) -> Any:
    """A sound bucketer that splits what is above the limit."""
    refuse(limit)
    return buckets(_split(weights, limit, at_least=1), limit)


def grouping(weights: Any, limit: float) -> Any:
    """A sound bucketer that keeps groups together."""
    return grouped_buckets(weights, limit)


COUNTERPARTS = {
    ("dtype", "bfloat16"): "casting",
    ("bound", "strict"): "strict",
    ("oversize", "error"): "refusing",
    ("oversize", "split"): "splitting",
}


def counterpart(fault: Fault) -> tuple[str, ...]:
    """What to name on a script's command line: a sound bucketer that promises what the fault does."""
    if fault.unpack:
        return "bucketproof.reference:pack_aligned", "bucketproof.reference:unpack_aligned"
    if "atomic_groups" in fault.promises:
        return (f"{HERE}:grouping",)
    for promise, name in COUNTERPARTS.items():
        if promise in fault.promises.items():
            return (f"{HERE}:{name}",)
    sound = "get_named_tensor_buckets" if target_of(fault).is_async else "get_named_tensor_buckets_sync"
    return (f"bucketproof.reference:{sound}",)


# Judging.


def failing(name: str, cells: Iterable[Cell] | None = None) -> Iterator[Outcome]:
    """The failing cells of a fault's own property, with their scripts."""
    fault = FAULTS[name]
    target = target_of(fault)
    for cell in usual_cells(fault.on) if cells is None else cells:
        if cell.property.id == fault.property and not cell.unpromised(target.promises):
            outcome = judge(cell, target, PROFILES["smoke"], 0)
            if outcome.status == "fail":
                yield scripted(outcome, target, name)


def judged(name: str) -> list[Outcome]:
    """Some of them."""
    if FAULTS[name].property == "lifecycle.terminates":
        limits.SECONDS = 1.0
    return [*itertools.islice(failing(name), FAILING)]


# Running.

_SERVER = """
import json, os, runpy, sys
import torch
import bucketproof.adapters, bucketproof.reference.faults

print("ready", flush=True)
for line in sys.stdin:
    sys.argv = json.loads(line)
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(1, 2)
        os.dup2(1, 0)
        os.chdir(os.path.dirname(sys.argv[0]))
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as ended:
            os._exit(ended.code or 0)
        os._exit(99)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Runner:
    """Runs scripts in fresh processes, without the seconds that it takes each of them to import torch."""

    def __enter__(self) -> Runner:
        pipe = subprocess.PIPE
        self._server = subprocess.Popen([sys.executable, "-c", _SERVER], stdin=pipe, stdout=pipe, text=True)
        assert self._answer() == "ready"
        return self

    def __exit__(self, *error: object) -> None:
        self._server.communicate()

    def __call__(self, path: Path, *arguments: str) -> int:
        """The exit code of a script."""
        assert self._server.stdin
        self._server.stdin.write(json.dumps([str(path), *arguments]) + "\n")
        self._server.stdin.flush()
        return int(self._answer())

    def _answer(self) -> str:
        assert self._server.stdout
        return self._server.stdout.readline().strip()


def codes(run: Runner, fault: Fault, outcome: Outcome, folder: Path) -> tuple[int, int] | None:
    """The exit codes of an outcome's script against its fault and against a sound bucketer; None without a script."""
    assert outcome.failure
    if not outcome.failure.script:
        return None
    path = folder / "script.py"
    path.write_text(outcome.failure.script.replace("SECONDS = 10", "SECONDS = 2"), encoding="utf-8")
    return run(path), run(path, *counterpart(fault))


def main() -> int:
    names = sys.argv[1:] or list(FAULTS)
    tally: Counter[str] = Counter()
    lengths: list[int] = []
    context, wrong = get_context("spawn"), []
    with Runner() as run, tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(2, mp_context=context) as pool:
        for name, outcomes in zip(names, pool.map(judged, names), strict=True):
            found = {each.cell: codes(run, FAULTS[name], each, Path(folder)) for each in outcomes}
            tally.update(f"scripts end with {each}" if each else "cells have no script" for each in found.values())
            lengths += [len(each.failure.script.splitlines()) for each in outcomes if each.failure]
            # A cell may lack one, such as where it hangs for what went before in the process; a fault may not.
            if (1, 0) not in found.values() or set(found.values()) - {(1, 0), None}:
                wrong.append(f"{name}: {found}")
                print(wrong[-1], flush=True)
    print(f"{len(names)} faults: {', '.join(f'{count} {what}' for what, count in sorted(tally.items()))}")
    print(f"their median length is {sorted(lengths)[len(lengths) // 2]} lines")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
