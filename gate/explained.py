"""The explanation of a failing cell, as HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bucketproof.markup import Markup, block, cut, tag
from bucketproof.properties.outcome import Failure, Outcome, Step
from bucketproof.svg import picture

LONGEST = 400
"""Characters of a line that are shown. The plan has the names in full."""

_MOST = 12
"""Lines that are shown at once of what can be hundreds."""
_AROUND = 2
"""Steps that are shown before and after one that went wrong, where there are too many."""


def explanation(cell: Outcome) -> list[Markup]:
    """The broken sentence, what happened, the smallest stream, the steps, the memory, the plan, and a script."""
    failure = cell.failure
    noted = [tag("p", *reason(cell), class_="reason")] if cell.reason or cell.link else []
    if failure is None:
        return noted or [tag("p", "no explanation")]
    return [
        *noted,
        tag("p", failure.sentence, class_="sentence"),
        *_part("What happened", [tag("p", cut(failure.what, LONGEST))]),
        *_part("Smallest stream", _items(failure)),
        *_part("Step by step", _steps(failure)),
        *_part("Memory", [picture(storage) for storage in failure.storages]),
        *_part("The plan, as code", [_code(failure.plan, "The plan")]),
        *_script(failure.script),
        *([tag("p", f"There is no script for it: {failure.unscripted}.")] if failure.unscripted else []),
        tag("p", _effort(cell), class_="effort"),
    ]


def scrolled(content: Markup, name: str) -> Markup:
    """What may be wider than the page, in a box of its own that can be scrolled by keyboard, too."""
    return block("div", content, class_="scroll", role="region", aria_label=name, tabindex=0)


def reason(cell: Outcome) -> list[str]:
    """Why a cell is what it is, and where to read more."""
    return [cut(cell.reason, LONGEST), *_link(cell.link)]


def _link(link: str) -> list[str]:
    if not link:
        return []
    # Only such a link leads somewhere and nowhere else; what else it may be is shown as it is.
    is_safe = link.startswith(("https://", "http://"))
    return [" ", tag("a", cut(link, LONGEST), href=link, rel="noreferrer") if is_safe else cut(link, LONGEST)]


def _part(title: str, content: Sequence[Markup]) -> list[Markup]:
    return [tag("h5", title), *content] if content else []


def _items(failure: Failure) -> list[Markup]:
    lines = [tag("li", cut(item, LONGEST)) for item in failure.items]
    if not lines:
        return []
    shown, rest = lines[:_MOST], lines[_MOST:]
    more = [_folded(f"{len(rest)} more", block("ol", *rest, start=_MOST, class_="items"))] if rest else []
    # By the numbers that what happened calls them by.
    return [block("ol", *shown, *(tag("li", each, class_="more") for each in more), start=0, class_="items")]


def _steps(failure: Failure) -> list[Markup]:
    """The steps by number; what is long and uneventful is folded away."""
    told = list(_numbered(failure.steps))
    if not told:
        return []
    lines = [_step(number, *steps) for number, steps in enumerate(told, 1)]
    parts = []
    for is_shown, start, end in _stretches(_shown(told)):
        part = lines[start:end]
        parts += part if is_shown else [_uneventful(part)]
    return [block("ol", *parts, class_="steps")]


def _numbered(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Each step with those that belong to it."""
    group: list[Step] = []
    for step in steps:
        if group and not step.depth:
            yield group
            group = []
        group.append(step)
    if group:
        yield group


def _shown(told: Sequence[Sequence[Step]]) -> list[bool]:
    """Which steps are shown at once: the first, the last, and those around what went wrong."""
    ends = {*range(_MOST // 2), *range(len(told) - _AROUND, len(told))}
    wrong = [number for number, steps in enumerate(told) if any(step.wrong for step in steps)]
    near = {number for each in wrong for number in range(each - _AROUND, each + _AROUND + 1)}
    return [len(told) <= _MOST or number in ends | near for number in range(len(told))]


def _stretches(shown: Sequence[bool]) -> Iterator[tuple[bool, int, int]]:
    """Runs of what is shown and what is not, from the first to before the last."""
    start = 0
    for end in range(1, len(shown) + 1):
        if end == len(shown) or shown[end] != shown[start]:
            yield shown[start], start, end
            start = end


def _uneventful(steps: Sequence[Markup]) -> Markup:
    told = f"{len(steps)} more {'step' if len(steps) == 1 else 'steps'}, in which nothing went wrong"
    return tag("li", _folded(told, block("ol", *steps, class_="steps")), class_="more")


def _script(script: str) -> list[Markup]:
    if not script:
        return []
    title = f"A script that shows it with torch and the target alone ({len(script.splitlines())} lines)"
    return [block("details", tag("summary", title), _code(script, "The script"), class_="script")]


def _code(text: str, name: str) -> Markup:
    return scrolled(tag("pre", tag("code", text)), name)


def _folded(title: str, content: Markup) -> Markup:
    return block("details", tag("summary", title), content)


def _step(number: int, first: Step, *others: Step) -> Markup:
    belonging = [block("ul", *(tag("li", *_told(step), class_=_class(step)) for step in others))] if others else []
    return tag("li", *_told(first), *belonging, value=number, class_=_class(first))


def _told(step: Step) -> list[str]:
    text = cut(step.text, LONGEST)
    return [tag("strong", "✗ wrong: "), text] if step.wrong else [text]


def _class(step: Step) -> str | None:
    return "wrong" if step.wrong else None


def _effort(cell: Outcome) -> str:
    plans = f"{cell.examples} {'plan' if cell.examples == 1 else 'plans'} judged"
    return f"{cell.level}, {plans}, {cell.seconds:.1f} s"
