"""From an attempt to the text of a script."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from bucketproof.repro.asynchrony import Waiting, called
from bucketproof.repro.choice import places
from bucketproof.repro.linker import Linked, Linker, Place, imported
from bucketproof.repro.setting import CHECKS, Setting
from bucketproof.repro.streams import Streams
from bucketproof.repro.subjects import Subject
from bucketproof.repro.words import consuming, function, words

_MODES = {"no_grad": "torch.no_grad", "inference": "torch.inference_mode"}


def write(setting: Setting, judged: Subject, head: Sequence[str]) -> str:
    """The script, with some lines of comment at its head. Raises `Unwritable`."""
    given: dict[str, str | Place] = {**places(setting), **words(setting)}
    streams = [*_streams(setting, given)]
    given |= {"bucketer": _bucketer(judged), "main": _main(setting)}
    linker = Linker(given, _simplified(setting), Waiting() if setting.waits else str)
    linked = linker.link([*streams, "check", "bucketer", "main"])
    body = "\n\n\n".join(filter(None, map(_joined, _sections(linked))))
    return "\n".join(head) + f"\n\n{imported(linker.imports)}\n\n{body}\n\n\n{_LAST}\n"


def _streams(setting: Setting, given: dict[str, str | Place]) -> Iterator[str]:
    """Put the streams among what is given, and say what they are called."""
    streams = Streams(given)
    streams.write(setting.plan, setting.options)
    yield setting.options.name
    if setting.elsewhere:
        mark = {"first": "second"}.get(setting.options.mark, setting.options.mark)
        options = replace(setting.options, name="elsewhere", calm=True, mark=mark)
        streams.write(setting.elsewhere, options)
        yield options.name


def _bucketer(judged: Subject) -> str:
    doc = '"""What is judged, unless something else is named on the command line."""'
    return function("bucketer(arguments)", [doc, "if arguments:", f"    return {judged.other}", *judged.lines])


def _main(setting: Setting) -> str:
    call = "check(bucketer(arguments))"
    call = f"asyncio.run({call})" if setting.waits else call
    mode = _MODES.get(setting.plan.grad_mode)
    return _MAIN.format(call=f"with {mode}():\n            {call}" if mode else call)


def _simplified(setting: Setting) -> Callable[[str], str]:
    """To leave out of a definition what makes no difference in this script."""
    consumed = _consumed(setting)
    judges_all = len(setting.judged) == len(setting.plan.items)
    records = f"set_grad_enabled({setting.plan.grad_mode == 'enabled'})"

    def simplify(text: str) -> str:
        text = text.replace("set_grad_enabled(GRAD)", records)
        if not setting.casts:
            text = text.replace("promised(tensor)", "tensor")
        if judges_all:
            text = text.replace("name in JUDGED and ", "").replace(" if name in JUDGED]", "]")
            text = text.replace("    if name not in JUDGED:\n        return\n", "")
        if not setting.promises.padding:
            text = re.sub(r" \+ PADDING( \* len\(\w+\))?", "", text)
        text = re.sub(r"(\n *)consumed\(bucket\)(\1del bucket)?(?=\n|$)", consumed, text)
        return text if setting.is_coroutine else called(text, waits=setting.waits)

    return simplify


def _consumed(setting: Setting) -> str:
    """What stands where a bucket is consumed, on each new line. Whoever drops one must not name it any longer."""
    lines = consuming(setting)
    line = r"\1consumed(bucket)" if setting.clears or len(lines) > 1 else "".join(rf"\1{line}" for line in lines)
    return line if setting.plan.consumer == "hold" else rf"{line}\1del bucket"


# What a reader wants to know first comes first: the stream, what must hold of it, and then what these are made of.


def _sections(linked: list[Linked]) -> Iterator[list[Linked]]:
    rest = list(linked)
    for belongs in (_is_constant, _is_of_stream, _is_of_check, _is_helper, lambda each: True):
        yield sorted((each for each in rest if belongs(each)), key=lambda each: each.name not in _FIRST)
        rest = [each for each in rest if not belongs(each)]


_FIRST = ("LIMIT", "check")
"""What comes first in its section."""


def _is_constant(each: Linked) -> bool:
    return not each.origin and "\n" not in each.text and "ProducerExit" not in each.text


def _is_of_stream(each: Linked) -> bool:
    return not each.origin and each.name in ("weights", "elsewhere", "produced", "produced_elsewhere")


def _is_of_check(each: Linked) -> bool:
    return each.origin.startswith(CHECKS)


def _is_helper(each: Linked) -> bool:
    return each.name not in ("load", "bucketer", "main", "greedy", "taken", "packing", "compacting")


def _joined(section: list[Linked]) -> str:
    """Definitions with the space between them that is usual: constants that follow one another have none."""
    text = ""
    for before, each in zip([None, *section], section, strict=False):
        are_lines = before is not None and "\n" not in before.text + each.text
        text += each.text if before is None else ("\n" if are_lines else "\n\n\n") + each.text
    return text


_MAIN = '''def main(arguments):
    """1 if it happens, 0 if it does not, and 2 if that cannot be said."""
    try:
        {call}
    except Broken as broken:
        print(broken)
        return 1
    except BaseException as error:
        print(f"it cannot be said: {{error!r}}", file=sys.stderr)
        return 2
    print("it did not happen")
    return 0'''
_LAST = """if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))"""
