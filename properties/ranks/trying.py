"""What ranks are sent to do: to run a plan on a target, and to judge what they have seen."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from functools import cache

import torch.distributed as dist

from bucketproof.properties import PROPERTIES
from bucketproof.properties.contract import Cell, Problem, cells
from bucketproof.properties.judging import cheap_collections, failure_of
from bucketproof.properties.outcome import Failure
from bucketproof.properties.run import Partition, Run
from bucketproof.properties.running import execute
from bucketproof.properties.target import Target
from bucketproof.strategies import GROUPS, Custody, Plan

assert PROPERTIES  # they are registered when the first of the package's names is asked for


@dataclass(frozen=True)
class Report:
    """What one rank has seen of a run."""

    broken: dict[str, Failure]
    """The cells that it broke."""
    partition: Partition
    pulled: int
    """How many items the producer had handed over."""
    said: str
    """What the target raised, in words."""
    hung: bool
    has_left: bool
    """Whether it has waited for the others in vain."""


_LAST: list[Run] = []


def try_out(target: bytes, plan: Plan, judged: tuple[str, ...]) -> Report:
    """Run a plan. The target is what it is made again by, pickled."""
    with cheap_collections():
        run = execute(_made(target), plan)
        if judged and any(given.custody is Custody.LENT for given in run.handed_over):
            # Properties ask for this one where they have seen something written, and of a broadcast that is under way
            # each rank sees more or less. But all of them must run it, or none.
            _ = run.calm
        found = {id: problems for id in judged if (problems := _cells()[id].problems(run))}
    _LAST[:] = [run]
    broken = {id: failure_of(_cells()[id], run, problems) for id, problems in found.items()}
    return Report(broken, run.partition(), len(run.handed_over), run.said, run.hung, not dist.is_initialized())


def tell(cell: str, what: str) -> Failure:
    """The last run, told as one that broke this cell."""
    return failure_of(_cells()[cell], _LAST[0], [Problem(what)])


@cache
def _made(target: bytes) -> Target:
    again = pickle.loads(target)
    made: Target = again()
    return made


@cache
def _cells() -> dict[str, Cell]:
    return {cell.id: cell for cell in cells(GROUPS)}
