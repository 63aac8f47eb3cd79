"""lifecycle.terminates"""

from __future__ import annotations

import os
import threading
from typing import Any

from bucketproof.repro.parts.slots import before

SECONDS = 10


def check(bucketer: Any) -> None:
    """A sync ends, and so does the one that follows it."""
    watch = threading.Timer(SECONDS, give_up)
    watch.daemon = True
    watch.start()
    for _ in range(2):
        before(bucketer)
    watch.cancel()


def give_up() -> None:
    print(f"it did not end within {SECONDS} seconds", flush=True)
    os._exit(1)
