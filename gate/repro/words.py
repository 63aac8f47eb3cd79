"""What each script says in words of its own: constants, and functions that depend on the plan and on promises."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator

from bucketproof.properties import Run
from bucketproof.properties.boundaries import _groups, first_fit
from bucketproof.repro.schedule import at_boundaries, is_patient
from bucketproof.repro.setting import Setting
from bucketproof.repro.source import listed
from bucketproof.strategies import PROVENANCES, Custody
from bucketproof.strategies.content import POISON


def words(setting: Setting) -> dict[str, str]:
    """A text for each name."""
    return {**dict(_constants(setting)), **dict(_functions(setting))}


def function(signature: str, lines: Iterable[str]) -> str:
    """The text of a function."""
    return f"def {signature}:\n" + textwrap.indent("\n".join(lines), "    ")


def number(value: float) -> str:
    """A number as code."""
    return f"float({str(value)!r})" if math.isinf(value) or math.isnan(value) else repr(value)


def consuming(setting: Setting) -> list[str]:
    """What the consumer does with a bucket, and the lenders when it has it."""
    lines = ["HELD.append((bucket, pairs(bucket)))"] if setting.plan.consumer == "hold" else []
    numbers = at_boundaries(setting.plan) if setting.attempt.check == "overwritten" else ()
    return [*lines, *(_overwriting(numbers, patient=is_patient(setting.plan)) if numbers else [])]


def _overwriting(numbers: tuple[int, ...], *, patient: bool) -> Iterator[str]:
    if patient:
        yield "# Lenders write now what was delivered, with all that came before it."
        yield "DELIVERED.extend(name for name, _ in pairs(bucket))"
        yield "waiting = [number for number, name in enumerate(GIVEN) if name not in DELIVERED]"
        yield "before = min(waiting, default=len(GIVEN))"
    else:
        yield "# Lenders write now, but for what was pulled last."
        yield "before = len(GIVEN) - 1"
    yield f"for number in {numbers}:"
    yield "    if number < before:"
    yield "        overwrite(number)"


# Constants.


def _constants(setting: Setting) -> Iterator[tuple[str, str]]:
    comments = {**_COMMENTS, "STOP": _ENDS.get(setting.plan.ends, "weights before the producer fails")}
    return ((name, f"{name} = {value}  # {comments[name]}") for name, value in _values(setting))


def _values(setting: Setting) -> Iterator[tuple[str, object]]:
    plan, promises = setting.plan, setting.promises
    yield "LIMIT", number(plan.bucket_bytes)
    if not setting.attempt.nans:  # else it comes with the content of the suite
        yield "POISON", f"{POISON:#x}"
    yield "JUDGED", listed(dict.fromkeys(item.name for item in setting.judged))
    yield "HELD", []
    yield "DELIVERED", []
    yield "STOP", _stop(setting)
    yield "PADDING", promises.padding or 0
    yield "LOOKAHEAD", promises.lookahead
    yield "CAST", f"torch.{promises.dtype}"
    yield "ERROR", f'{"ProducerExit" if plan.ends == "exit" else "RuntimeError"}("planned")'
    yield "GROUPS", f"[{', '.join(listed(present) for _, present in _groups(Run(plan, target=setting.case.target)))}]"
    yield "BUFFER", number(0 if promises.copies == "when-needed" else min(plan.bucket_bytes, sum(setting.sizes())))


_COMMENTS = {
    "LIMIT": "bytes of a bucket",
    "POISON": "the byte that lenders write over their memory; no weight has it",
    "JUDGED": "the weights that this is about",
    "HELD": "buckets, each with its members",
    "DELIVERED": "names",
    "PADDING": "bytes that may be added to each weight, to align it",
    "LOOKAHEAD": "weights that may be pulled before a bucket comes",
    "CAST": "the dtype that everything is to arrive with",
    "ERROR": "what the producer raises",
    "GROUPS": "weights that belong together",
    "BUFFER": "bytes that may be allocated, whatever is in the bucket",
}


_ENDS = {"close": "buckets after which the consumer closes", "cancel": "weights before the consumer is cancelled"}


def _stop(setting: Setting) -> int:
    """After how many weights a producer fails or a consumer is cancelled, or after how many buckets it closes."""
    if setting.attempt.check in ("growing", "handles"):
        return len(setting.plan.items) // 2
    return setting.plan.ends_at + (setting.plan.ends == "close")


# Functions.


def _functions(setting: Setting) -> Iterator[tuple[str, str]]:
    promises = setting.promises
    yield "Broken", _BROKEN
    yield "ProducerExit", _EXIT
    if not setting.clears:
        yield "consumed", function("consumed(bucket)", ['"""The consumer takes a bucket."""', *consuming(setting)])
    yield "let_go", _let_go(setting)
    yield "seen", _seen(setting)
    yield "is_over", _is_over(setting)
    yield "is_shared", _IS_SHARED.format(members="members[:-1]" if promises.bound == "soft" else "members")
    yield "is_contiguous", _IS_CONTIGUOUS if promises.layout == "contiguous" else _IS_ANYHOW
    yield "is_whole", _IS_WHOLE if promises.padding is None else _IS_PACKED
    yield "needed", _needed(setting)
    yield "largest", _LARGEST_CAST if setting.casts else _LARGEST
    yield "in_order", _IN_ORDER if promises.order == "kept" else _IN_ANY_ORDER
    yield "expected", _expected(setting)


def _let_go(setting: Setting) -> str:
    custodies = {PROVENANCES[item.provenance].custody for item in setting.items}
    held = {Custody.LENT: "BUFFERS.clear()", Custody.SHARED: "KEPT.clear()"}
    lines = [line for custody, line in held.items() if custody in custodies]
    return function("let_go()", ['"""The producer drops all memory."""', *lines])


def _seen(setting: Setting) -> str:
    facts = {"shape": "tuple(tensor.shape)", "dtype": "tensor.dtype", "device": "str(tensor.device)"}
    if setting.promises.dtype is None:
        del facts["dtype"]
    elif setting.attempt.bits:
        facts["bytes"] = "bits(tensor)"
    listed = ", ".join(f'"{name}": {code}' for name, code in facts.items())
    return function("seen(tensor)", ['"""What of a weight must arrive."""', f"return {{{listed}}}"])


def _is_over(setting: Setting) -> str:
    bound = setting.promises.bound or ""
    what = {"soft": "more than the limit, without its last weight", "strict": "as much as the limit, or more"}
    over = f"total {'>=' if bound == 'strict' else '>'} LIMIT"
    lines = [
        f'"""Whether a bucket holds {what.get(bound, "more than the limit")}."""',
        f"total = sum(nbytes for _, nbytes in {'members[:-1]' if bound == 'soft' else 'members'})",
    ]
    if setting.promises.atomic_groups:
        lines.append("names = {name for name, _ in members}")
        over += " and not any(names <= set(group) for group in GROUPS)  # a group may not be split"
    return function("is_over(members)", [*lines, f"return {over}"])


def _needed(setting: Setting) -> str:
    doc = '"""How many bytes have to be allocated for a weight."""'
    if setting.promises.copies != "when-needed":
        return function("needed(tensor, whose)", [doc, "return largest(tensor) + PADDING"])
    in_place = "in_place = tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg())"
    cast = " and tensor.dtype is CAST" if setting.casts else ""
    kept = f'return 0 if whose == "owned" and in_place{cast} else largest(tensor)'
    return function("needed(tensor, whose)", [doc, in_place, kept])


def _expected(setting: Setting) -> str:
    sizes = setting.sizes()
    if setting.attempt.check == "exact":
        doc, partition = "The weights that fill the limit.", [_fitting(sizes, setting.plan.bucket_bytes)]
    else:
        doc = "What first-fit makes of these sizes."
        partition = first_fit(sizes, setting.plan.bucket_bytes, strict=setting.promises.bound == "strict")
    named = [[setting.plan.items[index].name for index in members if sizes[index]] for members in partition]
    return function("expected()", [f'"""{doc}"""', f"return [{', '.join(listed(each) for each in named if each)}]"])


def _fitting(sizes: list[int], limit: float) -> list[int]:
    """The first items, as many as there are within the limit."""
    return [index for index in range(len(sizes)) if sum(sizes[: index + 1]) <= limit]


_BROKEN = '''class Broken(Exception):
    """What must not happen has happened."""'''
_EXIT = '''class ProducerExit(BaseException):
    """What a producer raises that is no Exception."""'''
_IS_SHARED = '''def is_shared(members):
    """Whether a weight above the limit is not alone."""
    return any(nbytes > LIMIT for _, nbytes in {members})'''
_IS_CONTIGUOUS = """def is_contiguous(tensor):
    return tensor.is_contiguous()"""
_IS_ANYHOW = '''def is_contiguous(tensor):
    """It need not be."""
    return True'''
_IS_WHOLE = '''def is_whole(tensor):
    """Whether its storage holds nothing else."""
    return tensor.untyped_storage().nbytes() <= tensor.nbytes'''
_IS_PACKED = '''def is_whole(tensor):
    """What is packed is sent together."""
    return True'''
_LARGEST = """def largest(tensor):
    return tensor.nbytes"""
_LARGEST_CAST = '''def largest(tensor):
    """Its bytes, as it comes or as it is to arrive."""
    return tensor.numel() * max(tensor.itemsize, CAST.itemsize)'''
_IN_ORDER = """def in_order(names):
    return list(names)"""
_IN_ANY_ORDER = '''def in_order(names):
    """Any is promised to do."""
    return sorted(names)'''
