"""Torch's sanitizer for streams: it follows who reads and writes what on which stream, whatever comes out of it."""

from __future__ import annotations

import io
from contextlib import redirect_stderr
from importlib import import_module
from typing import Any

from bucketproof.properties.cuda.unwaited import unwaited
from bucketproof.properties.target import Target
from bucketproof.strategies import Plan


def races(target: Target, plan: Plan, device: str) -> str:
    """What the sanitizer says of one sync, in a line; nothing if it found no race.

    From its first use on it looks at each allocation of the process, which takes its time.
    """
    module: Any = import_module("torch.cuda._sanitizer")
    module.cuda_sanitizer.enable()
    try:
        with redirect_stderr(io.StringIO()):  # where it tells each race on a page of its own
            error = unwaited(target, plan, device, times=1).error
    finally:
        module.cuda_sanitizer.disable()
    return error if error.startswith(module.CUDASanitizerErrors.__name__) else ""
