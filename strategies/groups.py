"""Groups: parts of the contract that are judged only where they are asked for.

What is of no group is judged in any case, and needs nothing but torch and one process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

from bucketproof.strategies.devices import CUDA, DEVICES


@dataclass(frozen=True)
class Group:
    """Properties, provenances and kinds of plans that are asked for together."""

    id: str
    sentence: str
    missing: Callable[[], str]
    """What this machine lacks for them, in one line; nothing if they can be judged here."""


GROUPS: dict[str, Group] = {}
"""Every group, by its id."""


def group(id: str) -> Callable[[Callable[[], str]], Callable[[], str]]:
    """Register a group by the function that says what is missing. Its docstring's first line is the sentence.

    It is asked once in each process that judges, and only where the group is asked for.
    """

    def add(missing: Callable[[], str]) -> Callable[[], str]:
        if id in GROUPS:
            raise ValueError(f"group {id!r} is registered twice; give one of them another id")
        GROUPS[id] = Group(id, (missing.__doc__ or "").strip().split("\n")[0], missing)
        return missing

    return add


@group(CUDA)
def cuda() -> str:
    """All of the contract on a CUDA device, and what only such a device can break."""
    return DEVICES[CUDA].lacks()


@group("files")
def files() -> str:
    """Weights that lie in mapped files, or in shared memory of other processes."""
    return ""


@group("safetensors")
def safetensors() -> str:
    """Weights that lie in files of safetensors' format."""
    return "" if find_spec("safetensors") else "safetensors is not installed: pip install safetensors"


@group("manifests")
def manifests() -> str:
    """Whole models: their weights made smaller in memory, and at full size on the meta device."""
    return ""
