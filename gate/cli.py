"""The command line: `bucketproof check TARGET`, and what goes with it.

Exit codes: 0 every promise holds, but for known failures; 1 a promise is broken; 2 the request cannot be met;
3 no verdict; 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn, TextIO

from bucketproof.diff import Baseline
from bucketproof.examples import warn
from bucketproof.kills import HEADS, Kill, Matrix, markdown, row
from bucketproof.known import KnownFile, relisted
from bucketproof.lists import LISTS, table
from bucketproof.merging import merged
from bucketproof.output import destination
from bucketproof.progress import Progress
from bucketproof.properties.limits import usable_cores
from bucketproof.report import Style, render, render_changes
from bucketproof.reports import FORMATS, add_options, reports, summarise
from bucketproof.repro_files import folder, folders, hint
from bucketproof.request import (
    COMPACTION,
    DEVICE_NAMES,
    PROFILE_NAMES,
    BadRequest,
    NoVerdict,
    Request,
    placed,
    split,
)
from bucketproof.runner import Interrupted, run
from bucketproof.verdict import Verdict, read


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
    except KeyboardInterrupt as stopped:
        return _complain(str(stopped) or "interrupted, no verdict", 130)
    except BrokenPipeError:
        # Whoever read the report has seen enough; else Python would complain about it at its exit.
        _drop_output()
        return 3
    except OSError as error:
        if not error.filename:
            _drop_output()
        return _complain(f"{error.filename or 'the output'} cannot be used: {error.strerror}", 3)
    return code


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _check(options: argparse.Namespace) -> int:
    # A name that is empty is an error: in CI it is a variable that was not set.
    target = "reference" if options.target is None else options.target
    target = target if options.compaction is None else f"{COMPACTION}{options.compaction}"
    listed, baseline = _known(options), Baseline.of(read(options.baseline)) if options.baseline else None
    known = options.known if listed and listed.text else None
    groups, device = placed(tuple(dict.fromkeys(split(options.groups))), options.device)
    request = Request(
        target,
        profile=options.profile,
        seed=_seed(options),
        only=tuple(options.only),
        workers=options.workers,
        groups=groups,
        device=device,
        known=known,
        shard=options.shard,
    )
    if options.profile == "nightly":
        warn()
    with (
        destination(options.json) as write,
        destination(options.known if options.accept else None) as rewrite,
        reports(options, options.json, options.known, options.baseline) as publish,
        folder(options.repro) as put,
    ):
        found, stopped = _judged(request)
        verdict = replace(found, strict=options.strict, baseline=baseline)
        if listed and options.accept:
            verdict = _accepted(verdict, listed, rewrite)
        _tell(verdict, write, publish, put)
    summarise(verdict)
    if stopped:
        raise stopped
    return verdict.exit_code


def _tell(
    verdict: Verdict,
    write: Callable[[str], None],
    publish: Callable[[Verdict], None],
    put: Callable[[Verdict], str],
) -> None:
    """Print a verdict, and write it, its reports and its scripts."""
    # First of all: a disk that is full is no reason not to tell it.
    _print(render(verdict, _style(sys.stdout)))
    write(verdict.to_json())
    publish(verdict)
    _print(put(verdict) or hint(verdict))


def _judged(request: Request) -> tuple[Verdict, Interrupted | None]:
    """The verdict, or as much of it as there is, and what came in between."""
    try:
        return run(request), None
    except Interrupted as stopped:
        return stopped.verdict, stopped


def _report(options: argparse.Namespace) -> int:
    with reports(options, options.verdict) as publish, folder(options.repro) as put:
        verdict = read(options.verdict)
        publish(verdict)
        told = put(verdict)
    if not (told or any(getattr(options, name) for name in FORMATS)):
        told = render(verdict, _style(sys.stdout)) + hint(verdict)
    _print(told)
    return 0


def _merge(options: argparse.Namespace) -> int:
    with (
        destination(options.json) as write,
        reports(options, options.json, *options.verdicts) as publish,
        folder(options.repro) as put,
    ):
        verdict = merged(options.verdicts)
        _tell(verdict, write, publish, put)
    summarise(verdict)
    return verdict.exit_code


def _known(options: argparse.Namespace) -> KnownFile | None:
    """The list of known failures, if there is one: all that can be wrong with it is said before anything is judged."""
    if options.known is None:
        if options.accept:
            raise BadRequest("--accept rewrites the list of known failures: say with --known which file that is")
        return None
    if options.json and Path(options.json).resolve() == Path(options.known).resolve():
        raise BadRequest(f"{options.json} is named twice; give each file a name of its own")
    listed = KnownFile.read(options.known, missing_ok=options.accept)
    if options.accept:
        listed.must_be_rewritable()
    return listed


def _accepted(verdict: Verdict, listed: KnownFile, rewrite: Callable[[str], None]) -> Verdict:
    """The verdict as it is when all that fails is on the list, which is written."""
    after = listed.accept(verdict.cells)
    if after != listed:
        rewrite(after.text)
    before, now = listed.entries(), after.entries()
    new, gone = len(now.keys() - before.keys()), len(before.keys() - now.keys())
    _print(f"{listed.path} lists {len(now)} cells: {new} new, {gone} taken off.\n\n")
    return replace(verdict, cells=relisted(verdict.cells, now))


def _diff(options: argparse.Namespace) -> int:
    verdict = replace(read(options.new), baseline=Baseline.of(read(options.old)))
    _print(render_changes(verdict, _style(sys.stdout)))
    return int(bool(verdict.against))


def _seed(options: argparse.Namespace) -> int:
    """What to draw where nothing was asked for. A night's draws are repeated by giving the seed that it reports."""
    if options.seed is not None:
        return int(options.seed)
    return secrets.randbelow(1 << 32) if options.profile == "nightly" else 0


def _zoo(options: argparse.Namespace) -> int:
    # Only now, for it imports torch.
    from bucketproof.zoo import judged_here, visit

    names, note = (options.fault, "") if options.fault else judged_here()
    seed, started = _seed(options), time.perf_counter()
    with destination(options.json) as write, destination(options.markdown) as publish:
        kills, stopped = _visited(visit(names, options.profile, seed, options.workers), len(names))
        if stopped and not kills:
            raise stopped
        matrix = Matrix(options.profile, seed, time.perf_counter() - started, kills, len(names))
        write(matrix.to_json())
        publish(markdown(matrix))
    _print(f"{table([HEADS, *map(row, matrix.kills)])}\n{matrix.summary()}\n{note}")
    if stopped:
        raise type(stopped)(f"{str(stopped) or 'interrupted'}, {matrix.missing} of {len(names)} faults were not judged")
    return matrix.exit_code


def _visited(visit: Iterable[Kill], of: int) -> tuple[tuple[Kill, ...], KeyboardInterrupt | NoVerdict | None]:
    """What has become of the faults, or of as many as there are, and what came in between."""
    kills: list[Kill] = []
    progress = Progress("faults", "not caught")
    try:
        for kill in visit:
            kills.append(kill)
            progress.show(len(kills), of, sum(each.status != "caught" for each in kills))
    except (KeyboardInterrupt, NoVerdict) as stopped:
        return tuple(kills), stopped
    finally:
        progress.clear()
    return tuple(kills), None


def _survey(options: argparse.Namespace) -> int:
    # Only now, for it imports torch.
    from bucketproof.survey import Order, cache_folder, chosen, survey
    from bucketproof.survey_pages import markdown, page, terminal
    from bucketproof.surveyed import Surveyed

    specs = chosen(options.name)
    order = Order(specs, options.profile, _seed(options), cache_folder(options.cache), options.workers)
    entries, progress = [], Progress("targets")
    with (
        destination(options.json) as write,
        destination(options.html) as draw,
        destination(options.markdown) as publish,
        folders(options.repro) as put,
    ):
        for entry in survey(order):
            entries.append(entry)
            progress.show(len(entries), len(specs))
        progress.clear()
        surveyed = Surveyed(options.profile, order.seed, date.today().isoformat(), tuple(entries))
        write(surveyed.to_json())
        draw(page(surveyed))
        publish(markdown(surveyed))
        told = put([(each.spec, each.verdict) for each in entries if each.verdict])
    _print(terminal(surveyed) + told)
    return surveyed.exit_code


def _docs(options: argparse.Namespace) -> int:
    # Only now, for it imports torch.
    from bucketproof.pages import write

    _print(write(options.folder))
    return 0


def _list(options: argparse.Namespace) -> int:
    _print(LISTS[options.what](_groups(options)))
    return 0


def _groups(options: argparse.Namespace) -> tuple[str, ...]:
    chosen = split(options.groups)
    if not chosen:
        return ()
    # Only now, for it imports torch.
    from bucketproof.trial import must_be_groups

    return must_be_groups(chosen)


def _print(text: str) -> None:
    # A name in a plan may have characters that the terminal has not.
    encoding = sys.stdout.encoding or "ascii"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))


def _style(stream: TextIO) -> Style:
    colour = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    try:
        "✓✗≈★·".encode(stream.encoding or "ascii")
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
    _add_zoo(commands)
    _add_survey(commands)
    diff = _add(commands, "diff", _diff, "say what has changed from one verdict to another", _DIFF_EXITS)
    diff.add_argument("old", metavar="OLD", help="a verdict, as `bucketproof check --json` writes it")
    diff.add_argument("new", metavar="NEW", help="a later one")
    report = _add(commands, "report", _report, "show a verdict that was kept, or write reports of it")
    report.add_argument("verdict", metavar="VERDICT", help="a verdict, as `bucketproof check --json` writes it")
    _add_reports(report)
    merge = _add(commands, "merge", _merge, "make one verdict of those on the parts of a run", _MERGE_EXITS)
    merge.add_argument("verdicts", nargs="+", metavar="VERDICT", help="what `bucketproof check --shard --json` wrote")
    merge.add_argument("--json", metavar="F", help="write the verdict to this file")
    _add_reports(merge)
    docs = _add(commands, "docs", _docs, "write the pages on the contract, provenances, promises and verdicts")
    docs.add_argument("folder", metavar="DIR", help="the folder to write them into")
    what = _add(commands, "list", _list, "say what there is")
    what.add_argument("what", choices=LISTS, metavar="{" + ",".join(LISTS) + "}")
    _add_groups(what, "show what belongs to this group, too")
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
    _add_effort(check, "gate")
    check.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="ID",
        help="judge only this family, property or cell; may be repeated (see `bucketproof list properties`)",
    )
    _add_groups(check, "judge this group of cells, too")
    check.add_argument(
        "--device",
        choices=DEVICE_NAMES,
        default="cpu",
        help="where weights are made: in memory of the host, on a CUDA device, or on both in turn (default: cpu)",
    )
    check.add_argument("--shard", metavar="K/N", help="judge only the K-th of N parts, for `bucketproof merge`")
    check.add_argument("--known", metavar="F", help="let the cells fail that this TOML file lists as known")
    check.add_argument("--accept", action="store_true", help="rewrite that file: list what fails now, and nothing else")
    check.add_argument("--baseline", metavar="F", help="let fail only what got worse since the verdict in this file")
    check.add_argument(
        "--strict",
        action="store_true",
        help="count a failing SHOULD, and a cell that is listed as known and passes",
    )
    check.add_argument("--json", metavar="F", help="write the verdict to this file")
    _add_reports(check)


def _add_groups(command: Any, summary: str) -> None:
    command.add_argument(
        "--with",
        action="append",
        default=[],
        dest="groups",
        metavar="GROUP",
        help=f"{summary}; several with commas, or repeated (see `bucketproof list groups`)",
    )


def _add_reports(command: Any) -> None:
    add_options(command)
    command.add_argument("--repro", metavar="DIR", help="write a script for each failing cell into this folder")


def _add_zoo(commands: Any) -> None:
    zoo = _add(commands, "zoo", _zoo, "judge the suite: run its faults, and say what catches them", _ZOO_EXITS)
    zoo.add_argument("fault", nargs="*", metavar="FAULT", help="names from `bucketproof list faults` (default: all)")
    _add_effort(zoo, "smoke")
    zoo.add_argument("--json", metavar="F", help="write the kill matrix to this file")
    zoo.add_argument("--markdown", metavar="F", help="write it as a page")


def _add_survey(commands: Any) -> None:
    command = _add(commands, "survey", _survey, "fetch and judge what other projects have released", _SURVEY_EXITS)
    command.add_argument(
        "name",
        nargs="*",
        metavar="NAME",
        help="projects, releases and targets, such as verl, verl@0.9.1 (default: all)",
    )
    _add_effort(command, "gate")
    command.add_argument(
        "--cache", metavar="DIR", help="where wheels and verdicts are kept (default: $BUCKETPROOF_CACHE)"
    )
    command.add_argument("--json", metavar="F", help="write what was found to this file")
    command.add_argument("--html", metavar="F", help="write it as a page that needs no network")
    command.add_argument("--markdown", metavar="F", help="write it as Markdown")
    command.add_argument(
        "--repro", metavar="DIR", help="write a script for each thing that goes wrong into this folder"
    )


def _add_effort(command: Any, profile: str) -> None:
    command.add_argument(
        "--profile", choices=PROFILE_NAMES, default=profile, help=f"how long to look (default: {profile})"
    )
    command.add_argument("--seed", type=int, metavar="N", help="what to draw (default: 0, but each night another)")
    command.add_argument(
        "-n",
        type=_count,
        default=usable_cores(),
        dest="workers",
        metavar="WORKERS",
        help="processes that judge; 0 for this one (default: every core)",
    )


def _add(commands: Any, name: str, do: Callable[[argparse.Namespace], int], summary: str, epilog: str = "") -> Any:
    command = commands.add_parser(name, help=summary, description=summary.capitalize() + ".", epilog=epilog)
    command.set_defaults(do=do)
    return command


_EXITS = (
    "A cell is: pass; fail; known, if it fails and is listed by --known; fixed, if it is listed and passes; "
    "unpromised; skipped, if the target failed smoke or this machine lacks what its group needs; or error, if it has "
    "no verdict. Exit codes: 0 every promise holds, but for known failures or, with --baseline, nothing got worse; "
    "1 a promise is broken; 2 the request cannot be met; 3 no verdict, for the process of the target or the suite "
    "died, or this machine lacks what all cells need; 130 interrupted"
)

_DIFF_EXITS = "exit codes: 0 nothing got worse; 1 something did; 2 one of the files is no verdict"

_SURVEY_EXITS = (
    "It runs code of other projects, each in a process of its own. What was judged is kept, and judged again only if "
    "the wheel, the profile, the seed or the suite is another. Exit codes: 0 each target has a verdict, whatever it "
    "is; 2 the request cannot be met; 3 a target has none, for its package could not be had or its process died; "
    "130 interrupted"
)

_MERGE_EXITS = "exit codes: 0, 1 and 3 as for check; 2 the verdicts are not of one run, or a part is missing"

_ZOO_EXITS = "exit codes: 0 every fault is caught by its own property; 1 one is not; 2 and 3 as for check"


def _count(text: str) -> int:
    count = int(text)
    if count < 0:
        raise argparse.ArgumentTypeError("there cannot be fewer processes than none")
    return count


if __name__ == "__main__":
    sys.exit(main())
