"""The line that counts."""

from __future__ import annotations

import sys

import pytest

from bucketproof import progress
from bucketproof.progress import Progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What time it is."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_it_tells_what_is_done_what_fails_and_how_long_the_rest_may_take(
    clock: list[float], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    line = Progress("cells")

    clock[0] = 10.0
    line.show(10, 40)
    clock[0] = 100.0
    line.show(20, 60, 3)
    line.clear()
    line.show(60, 60, 3)

    assert capfd.readouterr().err == (
        "\r10 of 40 cells judged, about 30 s left\x1b[K"
        "\r20 of 60 cells judged, 3 failing, about 3 min left\x1b[K"
        "\r\x1b[K"
    )


def test_it_is_quiet_where_nobody_watches(clock: list[float], capfd: pytest.CaptureFixture[str]) -> None:
    line = Progress("cells")
    line.show(1, 2)
    line.clear()

    assert capfd.readouterr().err == ""
