"""The tests of the suite itself. They use the installed package; nothing here changes what a host project sees."""

from __future__ import annotations

import os
from pathlib import Path

import bucketproof


def pytest_report_header() -> str:
    """Say which copy is tested: an old install beside a new checkout has cost people afternoons."""
    return f"bucketproof: {Path(bucketproof.__file__).parent}"


def pytest_configure() -> None:
    """A test that judges something is not to write into the summary of the job that runs the tests."""
    os.environ.pop("GITHUB_STEP_SUMMARY", None)
