"""The memory of a failing run as a picture: a bar for each storage, and below it who has to do with which bytes."""

from __future__ import annotations

from bucketproof.markup import Markup, cut, tag
from bucketproof.properties.outcome import Mark, Storage

_LONGEST = 120
_INKS = ("handed-over", "overwritten", "held")


def patterns() -> Markup:
    """What the bars are filled with; a page needs it once. They differ in more than their colours."""
    strokes = {
        "handed-over": (),
        "overwritten": (tag("path", d="M-2 10 L10 -2 M-2 2 L2 -2 M6 10 L10 6", class_="stroke"),),
        "held": (tag("path", d="M0 4 H8 M4 0 V8", class_="stroke"),),
    }
    inks = [_pattern(kind, strokes[kind]) for kind in _INKS]
    return tag("svg", tag("defs", *inks), width=0, height=0, aria_hidden="true", focusable="false", class_="defs")


def picture(storage: Storage) -> Markup:
    """A storage, and what became of it, in the order in which it did."""
    rows = [_row(mark, storage) for mark in storage.marks]
    title = cut(storage.text, _LONGEST)
    return tag("figure", tag("figcaption", title), _axis(storage.nbytes), *rows, class_="storage")


def _pattern(kind: str, strokes: tuple[Markup, ...]) -> Markup:
    ground = tag("rect", width=8, height=8, class_="ground")
    size = {"width": 8, "height": 8, "patternUnits": "userSpaceOnUse"}
    return tag("pattern", ground, *strokes, id=f"ink-{kind}", class_=f"ink-{kind}", **size)


def _axis(nbytes: int) -> Markup:
    """Where the storage begins, where its middle is, and where it ends."""
    begin = tag("text", "byte 0", x="0", y=12)
    middle = tag("text", str(nbytes // 2), x=_percent(nbytes // 2, nbytes), y=12, text_anchor="middle")
    end = tag("text", str(nbytes), x="100%", y=12, text_anchor="end")
    ticks = [begin, middle, end] if nbytes > 1 else [begin, end]
    return tag("div", tag("svg", *ticks, class_="axis", aria_hidden="true", focusable="false"), class_="row")


def _row(mark: Mark, storage: Storage) -> Markup:
    length = max(mark.end - mark.start, 0)
    where = f"{length} {'byte' if length == 1 else 'bytes'} from byte {mark.start} on"
    text = cut(mark.text, _LONGEST)
    label = tag("span", text, tag("small", where), class_="label")
    return tag("div", label, _bar(mark, storage.nbytes, f"{text}: {where}, of {storage.nbytes}"), class_="row")


def _bar(mark: Mark, nbytes: int, title: str) -> Markup:
    start, end = _percent(mark.start, nbytes), _percent(max(mark.end - mark.start, 0), nbytes)
    track = tag("rect", x="0", y="2", width="100%", height="18", class_="track")
    part = tag("rect", x=start, y="2", width=end, height="18", class_=f"part {mark.kind}")
    middle = tag("line", x1="50%", x2="50%", y1="2", y2="20", class_="middle")
    return tag("svg", tag("title", title), track, part, middle, class_="bar", role="img")


def _percent(part: int, whole: int) -> str:
    """In whole numbers, which are written alike everywhere; what is beyond the end is at the end."""
    hundredths = min(part, whole) * 10_000 // max(whole, 1)
    return f"{hundredths // 100}.{hundredths % 100:02}%"
