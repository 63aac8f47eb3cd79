"""How often a sound bucketer is flagged: every sound variant, judged by every cell, over many seeds.

    python tests/benchmarks/soundness.py [[FIRST] LAST] [VARIANT...]

It takes the seeds from the first one up to the one before the last, by default 0 to 19, and all variants. It prints a
line for each verdict, and a table in the end. A single flag is a fault of the suite.

The cells are judged in another order for each verdict: what one of them leaves behind, any other may meet.
"""

from __future__ import annotations

import multiprocessing
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from bucketproof.properties import PROFILES, Promises, cells, judge, judging
from bucketproof.strategies import Plan
from bucketproof.targets import resolve

VARIANTS = (
    "reference",
    "sync-generator",
    "class-iterator",
    "mapping-buckets",
    "flush-when-full",
    "copy-on-arrival",
    "copy-at-flush",
    "aligned-packer",
)
PROFILE = "gate"


def judged(work: tuple[str, int]) -> tuple[str, int, Counter[str], list[str], int]:
    """A verdict: the variant, the seed, how many cells have each status, those that do not pass, and the plans run."""
    name, seed = work
    target, shuffled = resolve(name), list(cells())
    random.Random(f"{seed}/{name}").shuffle(shuffled)
    outcomes = [judge(cell, target, PROFILES[PROFILE], seed) for cell in shuffled]
    flags = [each.cell for each in outcomes if each.status not in ("pass", "unpromised")]
    plans = {cell.campaign: each.examples for cell, each in zip(shuffled, outcomes, strict=True) if each.examples}
    return name, seed, Counter(each.status for each in outcomes), flags, sum(plans.values())


def all_judged(names: list[str], seed: int) -> list[tuple[str, int, Counter[str], list[str], int]]:
    """The verdicts on these variants. Those whose promises have no bearing on what is drawn share it."""
    judging.drawn = shared(judging.drawn)
    return [judged((name, seed)) for name in names]


def shared(draw: Callable[..., tuple[Plan, ...]]) -> Callable[..., tuple[Plan, ...]]:
    @cache
    def drawn_once(campaign: str, promises: Promises, *others: Any) -> tuple[Plan, ...]:
        return draw(campaign, promises, *others)

    def drawn(campaign: str, promises: Promises, *others: Any) -> tuple[Plan, ...]:
        # See `drawn_for`: nothing else that the variants promise is looked at there.
        return drawn_once(campaign, Promises(retention=promises.retention), *others)

    return drawn


def main() -> None:
    numbers = [int(each) for each in sys.argv[1:] if each.isdigit()]
    names = [each for each in sys.argv[1:] if not each.isdigit()] or list(VARIANTS)
    first, last = [0, *(numbers or [20])][-2:]
    table: dict[str, Counter[str]] = defaultdict(Counter)
    # A process for each seed.
    with multiprocessing.get_context("spawn").Pool(maxtasksperchild=1) as pool:
        for verdicts in pool.imap_unordered(partial(all_judged, names), range(first, last)):
            for name, seed, counts, flags, plans in verdicts:
                print(f"{name} seed {seed}: {plans} plans, {dict(counts)} {' '.join(flags)}", flush=True)
                table[name].update(counts, seeds=1, plans=plans, flags=len(flags))
    print("\n| variant | seeds | plans run | cells judged | flags |\n|---|---|---|---|---|")
    for name in names:
        found = table[name]
        print(
            f"| `{name}` | {found['seeds']} | {found['plans']} | {found['pass'] + found['flags']} | {found['flags']} |"
        )


if __name__ == "__main__":
    main()
