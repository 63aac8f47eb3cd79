"""All that takes a card, in one command, and a page of what came of it: which card, what passed, and what did not.

Run it with `python tests/benchmarks/cuda_card.py card.md`. It takes a checkout with its `dev` extra. It ends with 1 if
anything came out otherwise than it should, and with 2 where there is no card.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from bucketproof.reference.faults import DEVICE_FAULTS
from bucketproof.strategies import DEVICES
from bucketproof.strategies.devices import CUDA

HERE = Path(__file__).parent
CHECK = ("-m", "bucketproof", "check")
GENERATIONS = ("always-clone", "storage-size", "base-guard")
_SHOWN = 60
"""Last lines of a step that are kept."""
_LONGEST = 7200
"""Seconds that a step may take."""


def failing(path: Path) -> tuple[set[str], set[str]]:
    """The cells that fail on the host, and those that do on the card, by the names that they have on the host."""
    cells = json.loads(path.read_text())["cells"]
    failed = {cell["cell"] for cell in cells if cell["status"] == "fail"}
    there = {id for id in failed if id.endswith(f"@{CUDA}]")}
    both = {cell["cell"].replace(f"@{CUDA}]", "]") for cell in cells if cell["cell"].endswith(f"@{CUDA}]")}
    here = {id if "[" in id else f"{id}[{alone(id)}]" for id in failed - there}
    return here & both, {id.replace(f"@{CUDA}]", "]") for id in there} - only_there(both)


def alone(property_id: str) -> str:
    """What a cell is about that has its property's name alone."""
    from bucketproof.properties import PROPERTIES

    return PROPERTIES[property_id].campaigns[0] if property_id in PROPERTIES else "smoke"


def only_there(ids: set[str]) -> set[str]:
    """Those of these cells that the host does not have."""
    from bucketproof.properties import cells

    here = {f"{cell.property.id}[{cell.campaign}]" for cell in cells()}
    return ids - here


def same_cells(path: Path) -> str:
    """What a generation keeps on one side and breaks on the other, in a line; nothing if that is nothing."""
    here, there = failing(path)
    if here == there:
        return ""
    return f"on the host alone: {sorted(here - there)}; on the card alone: {sorted(there - here)}"


Step = tuple[str, tuple[str, ...], int, Callable[[], str]]
"""What it is about, its command, the exit code that is due, and what else is wrong with it."""


def steps(folder: Path) -> list[Step]:
    """All of them, what matters most first."""

    def fine() -> str:
        return ""

    several: list[Step] = [
        ("the reference keeps the contract", (*CHECK, "reference", "--device", CUDA, "-n", "1"), 0, fine),
        ("tests that take a card", ("-m", "pytest", "-q", "-n", "0", str(HERE.parent / "test_cuda_card.py")), 0, fine),
        ("faults of the device are caught", ("-m", "bucketproof", "zoo", *DEVICE_FAULTS, "-n", "1"), 0, fine),
    ]
    for name in GENERATIONS:
        path = folder / f"{name}.json"
        command = (*CHECK, name, "--device", "all", "--profile", "smoke", "--json", str(path))
        several.append((f"{name} fails the same cells", command, 1, lambda path=path: same_cells(path)))  # type: ignore[misc]
    several.append(("a copy that does not fit", (str(HERE / "cuda_oom.py"),), 0, fine))
    several.append(("what it costs", (str(HERE / "cuda_cost.py"),), 0, fine))
    return several


def ran(step: Step) -> tuple[str, list[str]]:
    """What was wrong with a step, if anything, and what it said last."""
    _, command, due, otherwise = step
    try:
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=_LONGEST, check=False)
    except subprocess.TimeoutExpired:
        return f"it took more than {_LONGEST} s", []
    said = (done.stdout + done.stderr).splitlines()[-_SHOWN:]
    if done.returncode != due:
        return f"exit code {done.returncode} where {due} was due", said
    return otherwise(), said


def page(results: list[tuple[Step, str, list[str]]]) -> str:
    """What came of it all, as Markdown."""
    properties = torch.cuda.get_device_properties(0)
    lines = [
        f"# {properties.name}",
        "",
        f"{torch.cuda.device_count()} of them, {properties.total_memory / (1 << 30):.0f} GiB each; torch "
        f"{torch.__version__}, CUDA {torch.version.cuda}.",
        "",
        "| step | outcome |",
        "| --- | --- |",
        *(f"| {step[0]} | {wrong or 'as it should be'} |" for step, wrong, _ in results),
    ]
    for step, _, said in results:
        lines += ["", f"## {step[0]}", "", f"`python {' '.join(step[1])}`", "", "```text", *said, "```"]
    return "\n".join(lines) + "\n"


def main() -> int:
    if lack := DEVICES[CUDA].lacks():
        print(f"cuda_card.py takes a CUDA device: {lack}", file=sys.stderr)
        return 2
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "card.md")
    results: list[tuple[Step, str, list[str]]] = []
    with tempfile.TemporaryDirectory() as folder:
        for step in steps(Path(folder)):
            wrong, said = ran(step)
            results.append((step, wrong, said))
            path.write_text(page(results))  # what there is by now is kept, whatever comes
            print(f"{step[0]}: {wrong or 'as it should be'}", flush=True)
    return int(any(wrong for _, wrong, _ in results))


if __name__ == "__main__":
    sys.exit(main())
