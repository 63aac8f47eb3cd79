"""The command line: `bucketproof check TARGET` and `bucketproof list`.

Exit codes: 0 every promise holds; 1 a promise is broken; 2 the request cannot be met; 3 no verdict;
130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from importlib.metadata import version
from typing import Any, NoReturn, TextIO

from bucketproof.lists import LISTS
from bucketproof.output import destination
from bucketproof.report import Style, render
from bucketproof.request import COMPACTION, PROFILE_NAMES, BadRequest, Request
from bucketproof.runner import NoVerdict, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks for, and return the exit code."""
    try:
        options = _parser().parse_args(arguments)
        code: int = options.do(options)
        sys.stdout.flush()
    except BadRequest as error:
        return _complain(str(error), 2)
    except NoVerdict as error:
        return _complain(str(error), 3)
    except KeyboardInterrupt:
        return _complain("interrupted, no verdict", 130)
    except BrokenPipeError:
        # Whoever read the report has seen enough; else Python would complain about it at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 3
    return code


def _check(options: argparse.Namespace) -> int:
    target = f"{COMPACTION}{options.compaction}" if options.compaction else options.target or "reference"
    seed = _seed(options.profile) if options.seed is None else options.seed
    request = Request(target, options.profile, seed, tuple(options.only), options.workers)
    with destination(options.json) if options.json else nullcontext(_nowhere) as write:
        verdict = run(request)
        write(verdict.to_json())
    _print(render(verdict, _style(sys.stdout)))
    return verdict.exit_code


def _seed(profile: str) -> int:
    """What to draw where nothing was asked for. A night's draws are repeated by giving the seed that it reports."""
    return secrets.randbelow(1 << 32) if profile == "nightly" else 0


def _list(options: argparse.Namespace) -> int:
    _print(LISTS[options.what]())
    return 0


def _nowhere(text: str) -> None:
    """Write nothing, for nothing was asked for."""


def _print(text: str) -> None:
    # A name in a plan may have characters that the terminal has not.
    encoding = sys.stdout.encoding or "ascii"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))


def _style(stream: TextIO) -> Style:
    colour = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    try:
        "✓✗·".encode(stream.encoding or "ascii")
    except UnicodeEncodeError:
        return Style(colour, unicode=False)
    return Style(colour)


def _complain(line: str, code: int) -> int:
    print(f"bucketproof: {line}", file=sys.stderr)
    return code


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line, as all others are."""

    def error(self, message: str) -> NoReturn:
        raise BadRequest(f"{message} (see {self.prog} --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser("bucketproof", description="The property-based correctness gate for weight-sync bucketers.")
    parser.add_argument("--version", action="version", version=f"bucketproof {version('bucketproof')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_check(commands)
    what = _add(commands, "list", _list, "say what there is")
    what.add_argument("what", choices=LISTS, metavar="{" + ",".join(LISTS) + "}")
    return parser


def _add_check(commands: Any) -> None:
    check = _add(commands, "check", _check, "judge a bucketer", _EXITS)
    judged = check.add_mutually_exclusive_group()
    judged.add_argument(
        "target",
        nargs="?",
        metavar="TARGET",
        help="package.module:attr, path/to/file.py:attr, or a name from `bucketproof list targets`",
    )
    judged.add_argument(
        "--compaction",
        metavar="ATTR",
        help="judge a lone compaction function, named in the same way, by aliasing, ownership and values",
    )
    check.add_argument("--profile", choices=PROFILE_NAMES, default="gate", help="how long to look (default: gate)")
    check.add_argument("--seed", type=int, metavar="N", help="what to draw (default: 0, but each night another)")
    check.add_argument(
        "-n",
        type=_count,
        default=_usable_cores(),
        dest="workers",
        metavar="WORKERS",
        help="processes that judge; 0 for this one (default: every core)",
    )
    check.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="ID",
        help="judge only this family, property or cell; may be repeated (see `bucketproof list properties`)",
    )
    check.add_argument("--json", metavar="F", help="write the verdict to this file")


def _add(commands: Any, name: str, do: Callable[[argparse.Namespace], int], summary: str, epilog: str = "") -> Any:
    command = commands.add_parser(name, help=summary, description=summary.capitalize() + ".", epilog=epilog)
    command.set_defaults(do=do)
    return command


_EXITS = (
    "exit codes: 0 every promise holds; 1 a promise is broken; 2 the request cannot be met; 3 no verdict, "
    "for the process of the target or the suite died; 130 interrupted"
)


def _count(text: str) -> int:
    count = int(text)
    if count < 0:
        raise argparse.ArgumentTypeError("there cannot be fewer processes than none")
    return count


def _usable_cores() -> int:
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1


if __name__ == "__main__":
    sys.exit(main())
