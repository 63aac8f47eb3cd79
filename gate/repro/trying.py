"""Trying a script before it is given out: one that shows nothing is none."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

from bucketproof.properties.judging import cheap_collections
from bucketproof.properties.limits import time_limit
from bucketproof.properties.surroundings import undisturbed

_TRIES = 2
"""A target that remembers its last sync may be out of step."""


def shows(text: str, bucketer: Any) -> bool:
    """Whether a script shows what it is about, of this bucketer; for None, of what it loads itself."""
    return any(run(text, bucketer) == 1 for _ in range(_TRIES))


def hangs(text: str) -> bool:
    """Whether a script that waits for an end waits in vain, in a process of its own: in this one it would be lost."""
    with tempfile.TemporaryDirectory(prefix="bucketproof-") as folder:
        path = Path(folder, "script.py")
        path.write_text(_PATIENCE.sub("SECONDS = 2", text), encoding="utf-8")
        try:
            ended = subprocess.run([sys.executable, str(path)], capture_output=True, timeout=_AT_MOST, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return False
    return ended.returncode == 1


_PATIENCE = re.compile("^SECONDS = .*$", re.MULTILINE)
_AT_MOST = 60.0
"""Seconds for a process that is to end within two."""


def run(text: str, bucketer: Any) -> int:
    """Run a script in this process, which is as before afterwards. Gives its exit code."""
    script = ModuleType("_bucketproof_script")
    with undisturbed(), cheap_collections(), _in_place(script), _silence(), time_limit():
        exec(compile(text, script.__name__, "exec"), vars(script))
        if bucketer is not None:
            script.bucketer = lambda arguments: bucketer  # type: ignore[attr-defined]
        code: int = script.main([])
        gc.collect()  # a producer that only a cycle holds is closed while its script is still there
        vars(script).clear()
    return code


@contextmanager
def _in_place(module: ModuleType) -> Iterator[None]:
    """Where dataclasses look for it."""
    with patch.dict(sys.modules, {module.__name__: module}):
        yield


@contextmanager
def _silence() -> Iterator[None]:
    """What is said, and what a producer raises where nobody can catch it, is nobody's concern here."""
    with (
        redirect_stdout(StringIO()),
        redirect_stderr(StringIO()),
        patch.object(sys, "unraisablehook", lambda unraisable: None),
    ):
        yield
