"""How long `bucketproof check` takes, process start included, for the profiles that run before a merge.

Run it with `python tests/benchmarks/checking.py`. The commands are run in turn, so that what else the machine does
touches all of them.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

TARGETS = ("reference", "base-guard")
PROFILES = ("smoke", "gate")
ROUNDS = 3


def wall(target: str, profile: str) -> float:
    """Seconds from the start of the command to its end."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "bucketproof", "check", target, "--profile", profile]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode in (0, 1), done.stderr.decode()
    return time.perf_counter() - started


def main() -> None:
    commands = [(target, profile) for target in TARGETS for profile in PROFILES]
    seconds: dict[tuple[str, str], list[float]] = {command: [] for command in commands}
    for _ in range(ROUNDS):
        for command in commands:
            seconds[command].append(wall(*command))
    print(f"{len(os.sched_getaffinity(0))} cores, {ROUNDS} rounds")
    for (target, profile), taken in seconds.items():
        print(f"check {target:10} {profile:5}  median {statistics.median(taken):5.1f} s, longest {max(taken):5.1f} s")


if __name__ == "__main__":
    main()
