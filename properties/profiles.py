"""Profiles: how long to look. They are applied to each search, never loaded: a host's own settings stay."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase


@dataclass(frozen=True)
class Profile:
    """A named amount of search."""

    name: str
    examples: int
    """Plans drawn for each campaign."""
    repeatable: bool
    """Whether the same seed, zero by default, gives the same plans; else each run draws others and keeps failures."""

    @property
    def registered(self) -> str:
        """The name under which Hypothesis knows the settings."""
        return f"bucketproof-{self.name}"


PROFILES = {
    profile.name: profile
    for profile in (Profile("smoke", 20, True), Profile("gate", 100, True), Profile("nightly", 3000, False))
}
"""The amounts of search that there are, by their names."""


def examples() -> Path:
    """Where failures are kept from one night to the next: not in the folder that the command is run from."""
    cache = os.environ.get("BUCKETPROOF_CACHE")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return (Path(cache) if cache else home / "bucketproof") / "examples"


class _Forgiving(ExampleDatabase):
    """A database that is no reason for a run to fail. One that is not there keeps nothing."""

    def __init__(self, database: ExampleDatabase) -> None:
        super().__init__()
        self._database = database

    def fetch(self, key: bytes) -> Iterator[bytes]:
        with suppress(Exception):
            yield from self._database.fetch(key)

    def save(self, key: bytes, value: bytes) -> None:
        with suppress(Exception):
            self._database.save(key, value)

    def delete(self, key: bytes, value: bytes) -> None:
        with suppress(Exception):
            self._database.delete(key, value)


def keep_in(database: ExampleDatabase) -> None:
    """Let the profiles that keep what has failed keep it there, in this process, as far as that can be."""
    for profile in PROFILES.values():
        if not profile.repeatable:
            _register(profile, _Forgiving(database))


def _register(profile: Profile, database: ExampleDatabase | None = None) -> None:
    # Each field is said here: a profile without a parent would inherit whatever is active, which on CI is another.
    settings.register_profile(
        profile.registered,
        parent=settings.get_profile("default"),
        max_examples=profile.examples,
        derandomize=False,  # the seed says what is drawn; derandomize would ignore it
        database=database,
        deadline=None,  # the first call on a cold machine may take seconds
        phases=(Phase.generate, Phase.shrink) if profile.repeatable else (Phase.reuse, Phase.generate, Phase.shrink),
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much),
        print_blob=False,
        report_multiple_bugs=False,
    )


for _profile in PROFILES.values():
    _register(_profile)
keep_in(DirectoryBasedExampleDatabase(examples()))
