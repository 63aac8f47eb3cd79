"""The contract as a test in a target's own test file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from bucketproof.properties import Target
from bucketproof.trial import Case, Trial, known_to_fail, profile_named, select


def conformance(
    make_buckets: Callable[[Any, Any], Any] | Target,
    profile: str = "gate",
    seed: int = 0,
    only: Iterable[str] = (),
    known: str | os.PathLike[str] | None = None,
    device: str = "cpu",
) -> Callable[..., None]:
    """A pytest test of `make_buckets`, with one case for each cell of the contract.

        from bucketproof import conformance
        from mine import get_named_tensor_buckets

        test_contract = conformance(get_named_tensor_buckets)

    `make_buckets` takes `(weights, bucket_bytes)` and returns an iterable or an async iterable of buckets, or it
    is a `Target`. `only` names the families, properties and cells to judge, as `bucketproof check --only` does.
    `known` is a TOML file that lists cells which are known to fail, as `bucketproof check --known` takes and `--accept`
    writes it. They are strict xfails: one that passes is a failing test, until it is taken off the list.
    `device` is where weights are made, as for `bucketproof check --device`: `cpu`, `cuda` or `all`.

    Raises `BadRequest`, a `ValueError`, for a name that there is not, here and on the list.
    """
    target, listed = _target(make_buckets), known_to_fail(None if known is None else os.fspath(known))
    chosen = select(only, device=device)
    return _test(Trial(target, profile_named(profile), seed, chosen, listed, strict=True))


def _test(trial: Trial) -> Callable[..., None]:
    @pytest.mark.parametrize("case", trial.tests())
    def test_contract(case: Case, request: pytest.FixtureRequest) -> None:
        case.run(request.node)

    return test_contract


def _target(make_buckets: object) -> Target:
    if isinstance(make_buckets, Target):
        return make_buckets
    if not callable(make_buckets):
        kind = type(make_buckets).__name__
        raise TypeError(
            f"conformance() takes the bucketer, a callable (weights, bucket_bytes), or a Target, but got {kind}"
        )
    return Target(getattr(make_buckets, "__qualname__", repr(make_buckets)), make_buckets)
