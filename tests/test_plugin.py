"""The contract in pytest's words: the plugin, and the factory for a project's own test file."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from bucketproof import conformance
from bucketproof.properties import PROPERTIES, Target
from bucketproof.request import BadRequest

pytest_plugins = ["pytester"]

CONTRACT = ("--pyargs", "bucketproof.properties", "-p", "no:cacheprovider")
QUICK = ("--bucketer-profile=smoke", "--bucketer-only=ownership.no-copy[fresh]")


INI = "[pytest]\nasyncio_default_fixture_loop_scope = function\n"


@pytest.fixture(autouse=True)
def _quiet(pytester: pytest.Pytester) -> None:
    """Without this, pytest-asyncio warns that something will change."""
    pytester.makeini(INI)


def outcomes(result: pytest.RunResult) -> dict[str, int]:
    """How many tests ended in which way."""
    return {name: count for name, count in result.parseoutcomes().items() if name != "warnings"}


def test_the_plugin_loads_without_torch_and_hypothesis() -> None:
    code = "import sys, bucketproof.plugin; sys.exit(bool({'torch', 'hypothesis'} & set(sys.modules)))"

    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_a_project_that_does_not_ask_notices_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_it(request):
            assert request.config.pluginmanager.hasplugin("bucketproof")
            assert "bucketproof.trial" not in sys.modules
            assert "torch" not in sys.modules
        """
    )

    result = pytester.runpytest_subprocess("-p", "no:hypothesispytest")

    assert outcomes(result) == {"passed": 1}
    assert "bucketproof:" not in result.stdout.str()


def test_a_cell_is_a_test_that_is_named_after_it(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess(*CONTRACT, "--bucketer=reference", *QUICK, "-v")

    result.stdout.fnmatch_lines(
        [
            "bucketproof: target reference, profile smoke, seed 0",
            "*::test_contract[[]smoke] PASSED*",
            "*::test_contract[[]ownership.no-copy[[]fresh]] PASSED*",
        ]
    )
    assert result.ret == 0


def test_without_a_bucketer_the_reference_is_judged(pytester: pytest.Pytester) -> None:
    assert outcomes(pytester.runpytest_inprocess(*CONTRACT, *QUICK)) == {"passed": 2}


def test_a_failing_cell_is_a_failing_test_that_explains_itself(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess(*CONTRACT, "--bucketer=always-clone", *QUICK)

    result.stdout.fnmatch_lines(
        [PROPERTIES["ownership.no-copy"].sentence, "*", "The plan, as code:", "  Plan(", "*", "With --repro DIR, *"]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*def test_contract*")
    assert outcomes(result) == {"passed": 1, "failed": 1}


def test_workers_say_the_same(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess(*CONTRACT, "--bucketer=always-clone", *QUICK, "-n2")

    assert "Smallest stream:" in result.stdout.str()
    assert outcomes(result) == {"passed": 1, "failed": 1}


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--bucketer=base-gard"], "bucketproof: no built-in target 'base-gard'; did you mean 'base-guard'?*"),
        (
            ["--bucketer-only=ownrship"],
            "bucketproof: no property, family or cell 'ownrship'; did you mean 'ownership'?*",
        ),
        (["--bucketer=mine.py:number"], "bucketproof: mine.py:number: *"),
    ],
)
def test_a_bad_request_is_one_line(pytester: pytest.Pytester, arguments: list[str], line: str) -> None:
    pytester.path.joinpath("mine.py").write_text("def number(weights, bucket_bytes): return 3\n")

    result = pytester.runpytest_inprocess(*CONTRACT, *arguments)

    result.stdout.fnmatch_lines([line])
    result.stdout.no_fnmatch_line("*Traceback*")
    assert outcomes(result) == {"errors": 1}


def test_an_unknown_profile_is_a_usage_error(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess(*CONTRACT, "--bucketer-profile=smok")

    assert result.ret == pytest.ExitCode.USAGE_ERROR


HOST = """
    import hypothesis
    from hypothesis import given, settings, strategies
    from bucketproof import conformance
    from bucketproof.reference import always_clone, get_named_tensor_buckets

    settings.register_profile("host", max_examples=7, deadline=1234)
    settings.load_profile("host")

    ONLY = ["ownership.no-copy[fresh]"]
    test_sound = conformance(get_named_tensor_buckets, profile="smoke", only=ONLY)
    test_cloning = conformance(always_clone, profile="smoke", only=ONLY)
    ran = []

    @given(strategies.integers())
    def test_of_the_host(number):
        ran.append(number)

    def test_settings_of_the_host():
        assert settings().max_examples == 7
        assert settings.get_current_profile_name() == "host"
        assert len(ran) == 7

    async def test_asynchronous():
        assert True
"""


@pytest.mark.parametrize("plugins", [(), ("-p", "no:xdist")])
def test_two_targets_in_the_file_of_a_project_with_its_own_settings(
    pytester: pytest.Pytester, plugins: tuple[str, ...]
) -> None:
    pytester.makeini(f"{INI}asyncio_mode = auto\naddopts = --strict-markers\nfilterwarnings = error\n")
    pytester.makepyfile(test_host=HOST)

    result = pytester.runpytest_subprocess("-v", *plugins)

    result.stdout.fnmatch_lines(
        [
            "test_host.py::test_sound[[]smoke] PASSED*",
            "test_host.py::test_sound[[]ownership.no-copy[[]fresh]] PASSED*",
            "test_host.py::test_cloning[[]smoke] PASSED*",
            "test_host.py::test_cloning[[]ownership.no-copy[[]fresh]] FAILED*",
        ]
    )
    assert outcomes(result) == {"passed": 6, "failed": 1}


def test_what_is_no_bucketer_fails_once(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from bucketproof import Target, conformance

        test_contract = conformance(Target("mine", lambda weights, bucket_bytes: 3), only=["ownership"])
        """
    )

    result = pytester.runpytest_inprocess()

    assert outcomes(result)["failed"] == 1
    assert outcomes(result)["skipped"] > 1
    result.stdout.fnmatch_lines(["bucketproof: *"])


@pytest.mark.parametrize(
    ("arguments", "error", "line"),
    [
        ({"make_buckets": "mine:f"}, TypeError, "takes the bucketer, a callable .* or a Target, but got str"),
        ({"make_buckets": print, "profile": "gte"}, BadRequest, "no profile 'gte'; did you mean 'gate'?"),
        ({"make_buckets": print, "only": ["vlues"]}, BadRequest, "no property, family or cell 'vlues'; did you mean"),
    ],
)
def test_conformance_refuses_what_it_cannot_use(arguments: dict[str, Any], error: type[Exception], line: str) -> None:
    with pytest.raises(error, match=line):
        conformance(**arguments)


def test_conformance_is_found_however_often_it_is_imported() -> None:
    """A module of the same name would take its place in the package at the second import."""
    code = "from bucketproof import conformance; from bucketproof import conformance as again, Target, Verdict; "

    check = f"{code} assert conformance is again and callable(again) and Target and Verdict"
    assert subprocess.run([sys.executable, "-c", check], check=False, timeout=60).returncode == 0


def test_a_target_keeps_its_name() -> None:
    target = Target("named", print)

    (case, *_) = [mark.args[1][0].values[0] for mark in conformance(target, only=["ownership"]).pytestmark]  # type: ignore[attr-defined]
    assert case.trial.target is target
