"""How long a run with known failures takes, beside the same run where they pass, and where they are not known.

    python tests/benchmarks/known.py [PROFILE [ROUNDS]]

One bucketer does the same work twice, and gives what it has delivered another name in the end, or the same. The
commands are run in turn, so that what else the machine does touches all of them.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bucketproof.verdict import read

MINE = """
from bucketproof.reference import get_named_tensor_buckets

async def right(weights, bucket_bytes, end=""):
    async for bucket in get_named_tensor_buckets(weights, bucket_bytes):
        # One name is left alone, for it is that of the single tensor which a target must be able to bucket.
        yield [(name if name == "weight" else name + end, tensor) for name, tensor in bucket]

def wrong(weights, bucket_bytes):
    return right(weights, bucket_bytes, "!")
"""
ONLY = ("aliasing", "ownership", "values")
SIDES = {"they pass": ("right",), "they are known": ("wrong", "--known", "k.toml"), "they fail": ("wrong",)}


def check(folder: Path, profile: str, target: str, *options: str) -> float:
    """Seconds from the start of the command to its end."""
    started = time.perf_counter()
    only = [f"--only={each}" for each in ONLY]
    command = [sys.executable, "-m", "bucketproof", "check", f"mine.py:{target}", "--profile", profile, *only, *options]
    done = subprocess.run(command, capture_output=True, check=False, cwd=folder)
    assert done.returncode in (0, 1), done.stderr.decode()
    return time.perf_counter() - started


def main() -> None:
    profile, rounds = (*sys.argv[1:], *("smoke", "3")[len(sys.argv) - 1 :])
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "mine.py").write_text(MINE)
        check(folder, profile, "wrong", "--known=k.toml", "--accept", "--json=v.json")
        counts = read(str(folder / "v.json")).counts
        for _ in range(int(rounds)):
            for side, arguments in SIDES.items():
                seconds[side].append(check(folder, profile, *arguments))
    print(f"{len(os.sched_getaffinity(0))} cores, {rounds} rounds, profile {profile}, {counts['known']} known failures")
    for side, taken in seconds.items():
        print(f"where {side:14}  median {statistics.median(taken):5.1f} s, longest {max(taken):5.1f} s")
    ratios = [known / passing for known, passing in zip(seconds["they are known"], seconds["they pass"], strict=True)]
    print(f"known to passing, round by round: median {statistics.median(ratios):.2f}, highest {max(ratios):.2f}")


if __name__ == "__main__":
    main()
