"""The zoo: every fault of `bucketproof.reference.faults` on trial, and the matrix of what catches it.

A fault is *caught* if the property that must catch it does, *misattributed* if only others do, and else *missed*.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache, partial

from bucketproof.kills import Catch, Kill
from bucketproof.properties import PROFILES, Cell, Target, cells, limits
from bucketproof.properties.judging import Detection, drawn, survey
from bucketproof.reference.faults import DEVICE_FAULTS, FAULTS
from bucketproof.request import BadRequest, NoVerdict, near
from bucketproof.strategies import DEVICES
from bucketproof.strategies.devices import CPU
from bucketproof.targets import target_of

_PATIENCE = 1.0
"""Seconds until a run counts as hung. Faults that hang do so in many campaigns, each of which waits so long."""

USUAL = ("fresh", "full-tensor", "slice", "exact-cover", "detach", "numpy", "partial-slice", "tied")
"""Provenances on which most faults show, if they show on any."""

_drawn = lru_cache(maxsize=None)(drawn)


def visit(names: Sequence[str], profile: str, seed: int, workers: int) -> Iterator[Kill]:
    """Judge these faults by every cell. Raises `BadRequest` or `NoVerdict`.

    They are judged as `check` does, without the search for the smallest plan.
    """
    every = {**FAULTS, **DEVICE_FAULTS}
    for name in names:
        if name not in every:
            raise BadRequest(f"no fault {name!r}{near(name, every)} See: bucketproof list faults")
        if lack := DEVICES[every[name].device].lacks():
            raise BadRequest(f"fault {name!r} shows on {every[name].device} alone: {lack}")
    judged = partial(kill, profile=profile, seed=seed)
    return _spread(judged, names, workers)


def judged_here() -> tuple[list[str], str]:
    """The names of the faults that this machine can judge, and a line on the others, if there are any."""
    lacks = {device: lack for device in DEVICES if (lack := DEVICES[device].lacks())}
    here = [each.name for each in DEVICE_FAULTS.values() if each.device not in lacks]
    left = [each for each in DEVICE_FAULTS.values() if each.device in lacks]
    note = f"{len(left)} faults were not judged: {lacks[left[0].device]}.\n" if left else ""
    return [*FAULTS, *here], note


def usual_cells(on: Collection[str] = ()) -> Iterator[Cell]:
    """The cells of the usual provenances and these, and those of none."""
    return (cell for cell in cells() if cell.provenance is None or cell.provenance in {*USUAL, *on})


def kill(name: str, *, profile: str, seed: int) -> Kill:
    """Judge one fault by every cell."""
    fault, started = (FAULTS.get(name) or DEVICE_FAULTS[name]), time.perf_counter()
    judged = cells() if fault.device == CPU else cells([fault.device])
    here = (cell for cell in judged if cell.device == fault.device)
    found = detections(target_of(fault), here, profile, seed, fault.device)
    catches = [Catch(cell, seen.examples, round(seen.seconds, 3)) for cell, seen in found.items()]
    return Kill.of(fault, catches, time.perf_counter() - started)


def detections(
    target: Target, judged: Iterable[Cell], profile: str, seed: int, device: str = CPU
) -> dict[str, Detection]:
    """The cells that are broken, of one device, each with the first run that broke it."""
    found: dict[str, Detection] = {}
    by_campaign: dict[str, list[Cell]] = defaultdict(list)
    for cell in judged:
        if not cell.unpromised(target.promises):
            by_campaign[cell.campaign].append(cell)
    for campaign, several in by_campaign.items():
        plans = _drawn(campaign, target.promises, PROFILES[profile], seed, device)
        found |= survey(target, several, plans, device).broken
    return found


def _spread(judged: partial[Kill], names: Sequence[str], workers: int) -> Iterator[Kill]:
    if not workers:
        yield from map(judged, names)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_impatient) as pool:
        try:
            yield from pool.map(judged, names)
        except BrokenProcessPool:
            raise NoVerdict("the process of a fault died, or was ended") from None
        except Exception as error:
            raise NoVerdict(f"the suite itself failed: {type(error).__name__}: {error}") from error
        finally:
            pool.shutdown(cancel_futures=True)


def _impatient() -> None:
    limits.SECONDS = _PATIENCE
    # From a keyboard the whole group is interrupted: this one at once, and the one that tells the matrix by itself.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
