"""The contract as tests, one for each cell: `pytest --pyargs bucketproof.properties --bucketer TARGET`."""

from __future__ import annotations

import pytest

from bucketproof.plugin import contract
from bucketproof.trial import Case


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize("case", contract(metafunc.config))


def test_contract(case: Case, request: pytest.FixtureRequest) -> None:
    case.run(request.node)
