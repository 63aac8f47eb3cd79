"""Released bucketers of other projects, taken from the wheels they were published in.

``load("verl@0.9.1")`` gives the function that verl 0.9.1 ships, by running the one file that defines it; the
project is neither installed nor imported. Importing this package touches neither network nor cache.

A project is added by one file here, which says where its bucketers are, what they promise and why, and how each is
called. What such a file supplies in place of the rest of the project is never what is judged.
"""

import re
from dataclasses import dataclass, field

from bucketproof.reference.released import registry
from bucketproof.reference.released.registry import Bucketer, Made, Packer, Sender
from bucketproof.reference.released.wheels import Unavailable, Wheel, default_cache, fetch

__all__ = [
    "Made",
    "Packer",
    "Released",
    "Sender",
    "Unavailable",
    "Wheel",
    "default_cache",
    "fetch",
    "is_spec",
    "known",
    "load",
]

# neither a path nor, thanks to the look-ahead, a file such as ``old@2.py:attr``
_SPEC = re.compile(r"(?P<project>\w[\w.-]*)@(?!.*\.py\b)(?P<version>[^@:/\\\s]+)(:(?P<which>[\w-]+))?")


@dataclass(frozen=True)
class Released:
    """A bucketer as published. ``made`` is or calls the project's own code.

    ``sha256`` is the digest of the wheel, ``source`` the member that defines the function, ``promises`` what
    the project promises where that differs from the defaults, ``reasons`` where it says so, ``why`` a sentence on
    what the function is for.
    """

    spec: str
    made: Made
    project: str
    version: str
    sha256: str
    source: str
    promises: dict[str, object] = field(hash=False)
    reasons: dict[str, str] = field(hash=False)
    why: str

    @property
    def call(self) -> Bucketer:
        """The callable ``(weights, bucket_bytes)``, of what is one."""
        if isinstance(self.made, (Packer, Sender)):
            raise TypeError(f"{self.spec} is a {type(self.made).__name__.lower()}, and no callable that gives buckets")
        return self.made


def is_spec(text: str) -> bool:
    """Whether ``text`` has the form ``package@version`` or ``package@version:which``."""
    return _SPEC.fullmatch(text) is not None


def known() -> tuple[str, ...]:
    """The specs of all releases that were tried; ``load`` tries other versions of these projects too."""
    return registry.specs()


def load(spec: str) -> Released:
    """The released bucketer that ``spec`` names. Raises ``Unavailable``, a line that says what to do."""
    project, version, which = _parts(spec)
    chosen = registry.find(project, which)
    wheel, promised = fetch(project, version, releases=chosen.releases), chosen.promised(version)
    return Released(
        spec=chosen.spec(version),
        made=_built(chosen, wheel),
        project=project,
        version=version,
        sha256=wheel.sha256,
        source=chosen.source,
        promises={name: said.value for name, said in promised.items()},
        reasons={name: said.because for name, said in promised.items()},
        why=chosen.why,
    )


def _parts(spec: str) -> tuple[str, str, str]:
    if not (match := _SPEC.fullmatch(spec)):
        raise Unavailable(f"{spec!r} has not the form package@version[:which]; known: {', '.join(known())}")
    project = re.sub(r"[-_.]+", "-", match["project"]).lower()
    return project, match["version"], match["which"] or ""


def _built(chosen: registry.Adapter, wheel: Wheel) -> Made:
    try:
        return chosen.build(wheel)
    except Unavailable as error:
        versions = ", ".join(chosen.releases)
        raise Unavailable(f"{chosen.spec(wheel.version)}: {error}; the adapter knows {versions}") from error
