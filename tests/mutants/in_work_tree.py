"""The conftest of the work tree that `tests/mutation.py` builds: a mutant's run made honest, and quick."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from mutmut.mutation import trampoline

_wrap_in_trampoline = trampoline.wrap_in_trampoline


def _wrap(mutants: dict[str, Callable[..., Any]], is_classmethod: bool = False) -> Any:
    """Call the mutant or the original, and return what it returns.

    mutmut's own wrapper of an asynchronous generator holds what was yielded last until the next item is there. With
    it, every bucketer would keep a flushed bucket alive, and each test that looks for that would fail.
    """
    choose = _wrap_in_trampoline(mutants, is_classmethod)

    def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
        if not inspect.isasyncgenfunction(function):
            return choose(function)

        def call(*args: Any, **options: Any) -> Any:
            return function(*args, **options)

        call.__module__, call.__name__, call.__doc__ = function.__module__, function.__name__, function.__doc__
        return choose(call)

    return wrapped


trampoline.wrap_in_trampoline = _wrap

from bucketproof.properties import judging, limits  # noqa: E402  mutmut's wrapper must be in place
from bucketproof.reference import ownership  # noqa: E402

torch.set_num_threads(1)  # the threads of a pool do not live on in a forked process
limits.SECONDS = 5.0
judging._search = lambda *args: None  # a mutant is dead once a run has broken a cell, however large its plan


def pytest_report_header() -> str:
    """Say which copy is tested, and refuse any that holds no mutants."""
    assert "mutants" in Path(ownership.__file__).parts, ownership.__file__
    return f"mutants: {Path(ownership.__file__).parent}"


@pytest.fixture(scope="session", autouse=True)
def _calibrated_by_the_mutant() -> None:
    # The module was imported before the mutant was chosen. What it takes from its functions then, it takes anew.
    ownership._OWNED = ownership._calibrated()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out the targets that show of a mutant only what others show, too."""
    module = trampoline.get_mutant_under_test().rpartition(".")[0].rpartition(".")[2]
    if module in _SHOWN_BY:
        items[:] = [each for each in items if _target_of(each) in (None, *_SHOWN_BY[module])]


# The sound variants call what the reference does; for their own functions, the reference has nothing to show.
_SHOWN_BY = {"ownership": ("reference",), "sound": ("reference", "sync-generator")}
_JUDGING = ("test_a_sound_variant_is_not_flagged", "test_it_keeps_every_promise")


def _target_of(item: pytest.Item) -> str | None:
    is_judging = isinstance(item, pytest.Function) and item.originalname in _JUDGING
    return item.callspec.params["name"] if is_judging else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Bound the time of each test, for a mutant may loop for ever."""
    with limits.time_limit(20.0):
        return (yield)


def pytest_runtest_setup() -> None:
    # For mutmut, that also makes each test one that a mutant of the calibration is to be tried with.
    if trampoline.get_mutant_under_test() == "stats":
        ownership._calibrated()
