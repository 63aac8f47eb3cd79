"""The zoo of faults: bucketers that are wrong on purpose, each with the property that must catch it.

A fault is one function with a docstring of one line, registered by a decorator:

    @fault("memory.lookahead", exposed_by="a stream of more than one bucket")
    def pulls_everything_first(weights: Weights, limit: float) -> Buckets:
        \"\"\"Copies the whole stream before it makes a bucket.\"\"\"

Most differ from a sound bucketer in one decision; `bucketproof.reference.faults.loop` has one that is made of parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

SYNTHETIC = "synthetic"
"""The origin of a fault that nobody has reported yet."""


@dataclass(frozen=True)
class Fault:
    """A wrong bucketer, and what must be said of it."""

    name: str
    """Its function's name, with hyphens."""
    sentence: str
    """What it does, in one line."""
    group: str
    """The family it belongs to: the module it is in."""
    call: Callable[..., Any]
    """The bucketer `(weights, bucket_bytes)` or, if there is an `unpack`, the first half of a packer."""
    property: str
    """The property that must catch it."""
    exposed_by: str
    """The narrowest class of inputs that shows it."""
    origin: str = SYNTHETIC
    """Who has reported it, as in `verl #7139`."""
    on: tuple[str, ...] = ()
    """Provenances that it takes to show, if it does not show on the usual ones."""
    promises: Mapping[str, Any] = field(default_factory=dict)
    """What it promises otherwise than a plain callable does."""
    also: Mapping[str, str] = field(default_factory=dict)
    """Families of properties that it breaks too, by its nature, with the reason."""
    unpack: Callable[..., Any] | None = None
    device: str = "cpu"
    """The device that it takes, by the name that torch has for it: elsewhere it cannot even be called."""
    entries: Callable[..., Any] | None = None
    """What a packer's payload says of its items, if that is not in it."""


FAULTS: dict[str, Fault] = {}
"""Those that show on the host."""
DEVICE_FAULTS: dict[str, Fault] = {}
"""Those that take another device."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


def fault(property: str, *, exposed_by: str, **facts: Any) -> Callable[[_Function], _Function]:
    """Register a bucketer or, with `unpack`, a packer. The other facts are fields of `Fault`."""

    def add(function: _Function) -> _Function:
        register(function, function, property, exposed_by=exposed_by, **facts)
        return function

    return add


def register(function: Callable[..., Any], call: Callable[..., Any], property: str, **facts: Any) -> None:
    """Put `call` into the zoo, under the name and the docstring of `function`.

    Raises ValueError if there is no docstring, or the name is taken.
    """
    name = function.__name__.replace("_", "-")
    if not function.__doc__:
        raise ValueError(f"fault {name!r} has no docstring; say in one line what it does")
    if name in FAULTS or name in DEVICE_FAULTS:
        raise ValueError(f"fault {name!r} is registered twice; give one of them another name")
    group = function.__module__.rpartition(".")[2]
    made = Fault(name, function.__doc__.strip(), group, call, property, **facts)
    (FAULTS if made.device == "cpu" else DEVICE_FAULTS)[name] = made
