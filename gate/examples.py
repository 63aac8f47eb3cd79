"""Where a nightly run keeps what it has found: a folder, or any database of Hypothesis's that is named."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import TYPE_CHECKING

from bucketproof.request import BadRequest, told

if TYPE_CHECKING:
    from hypothesis.database import ExampleDatabase

VARIABLE = "BUCKETPROOF_DATABASE"
"""The environment variable that names a database, as a target is named. All processes of a run have it."""

_PROBE = b"bucketproof"


def use() -> None:
    """Keep what fails in the database that is named, in this process. Raises `BadRequest` if there is none."""
    if name := os.environ.get(VARIABLE):
        from bucketproof.properties.profiles import keep_in

        keep_in(_named(name))


def warn() -> None:
    """Say so on stderr if what fails cannot be kept. It is no reason not to look for it."""
    name = os.environ.get(VARIABLE)
    if why := _wrong_with(_named(name)) if name else _wrong_with_folder():
        print(f"bucketproof: what fails tonight is told, but not kept for the next night: {why}", file=sys.stderr)


def _named(name: str) -> ExampleDatabase:
    # Only now, for it imports torch.
    from hypothesis.database import ExampleDatabase

    from bucketproof.targets import attribute

    try:
        found = attribute(name)
    except BadRequest as error:
        raise BadRequest(f"${VARIABLE}: {error}") from error
    if not isinstance(found, ExampleDatabase):
        raise BadRequest(f"${VARIABLE}: {name} is no ExampleDatabase of Hypothesis's but a {type(found).__name__}")
    return found


def _wrong_with(database: ExampleDatabase) -> str | None:
    try:
        database.save(_PROBE, _PROBE)
        database.delete(_PROBE, _PROBE)
    except Exception as error:
        return f"the database ${VARIABLE}={os.environ[VARIABLE]} raised {told(error)}"
    return None


def _wrong_with_folder() -> str | None:
    from bucketproof.properties.profiles import examples

    try:
        examples().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=examples()) as file:
            file.write(_PROBE)
    except OSError as error:
        return f"{examples()} cannot be written: {error.strerror}. $BUCKETPROOF_CACHE names another place"
    return None
