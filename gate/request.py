"""What can be asked for, and how a request that cannot be met is refused. Imports nothing that is slow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

PROFILE_NAMES = ("smoke", "gate", "nightly")
"""The names of `bucketproof.properties.PROFILES`, which cannot be had without importing Hypothesis."""

DEVICE_NAMES = ("cpu", "cuda", "all")
"""What `--device` takes: the ids of `bucketproof.strategies.DEVICES`, which is slow to import, or all of them."""

COMPACTION = "compaction="
"""What the name of a lone compaction function begins with, where targets are named."""

_LONGEST = 300


class BadRequest(ValueError):
    """The request cannot be met. The message is one line that says what is wrong and how to mend it."""


class NoVerdict(RuntimeError):
    """The suite itself failed. The message is one line."""


@dataclass(frozen=True)
class Request:
    """What to judge, and how long to look."""

    target: str = "reference"
    profile: str = "gate"
    seed: int = 0
    only: tuple[str, ...] = ()
    workers: int = 0
    """How many processes judge; with none, this one does."""
    groups: tuple[str, ...] = ()
    """What is judged beside the plain contract."""
    device: str = "cpu"
    """Where it is judged: one of `DEVICE_NAMES`."""
    known: str | None = None
    """The file that lists the cells that are known to fail."""
    shard: str | None = None
    """Which part of the cells is judged, as in `2/4`."""


def parts_of(shard: str) -> tuple[int, int]:
    """`2/4` as numbers. Raises `BadRequest`."""
    number, _, of = shard.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise BadRequest(f"no shard {shard!r}: say which of how many, from 1/4 to 4/4")
    return int(number), int(of)


def split(given: Iterable[str]) -> tuple[str, ...]:
    """Names that were given one by one, or several with commas between them."""
    return tuple(name.strip() for each in given for name in each.split(","))


def placed(groups: tuple[str, ...], device: str) -> tuple[tuple[str, ...], str]:
    """The groups that are no devices, and the device. A device is a group, too, which may be asked for by its name."""
    named = [each for each in groups if each in DEVICE_NAMES[1:-1]]
    return tuple(each for each in groups if each not in named), "all" if named and device == "cpu" else device


def near(word: str, known: Iterable[str], otherwise: str = ".") -> str:
    """`; did you mean 'this' or 'that'?`, or the `otherwise` if nothing that is known comes close."""
    matches = get_close_matches(word, list(dict.fromkeys(known)), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(map(repr, matches))}?" if matches else otherwise


def told(error: BaseException) -> str:
    """An exception's type and message in one line, for messages of torch can be pages."""
    line = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    return line if len(line) <= _LONGEST else line[:_LONGEST] + " ..."
