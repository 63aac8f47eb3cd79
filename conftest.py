"""The tests of the suite itself. They use the installed package; nothing here changes what a host project sees."""

from __future__ import annotations

from pathlib import Path

import bucketproof


def pytest_report_header() -> str:
    """Say which copy is tested: an old install beside a new checkout has cost people afternoons."""
    return f"bucketproof: {Path(bucketproof.__file__).parent}"
