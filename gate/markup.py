"""Elements of HTML, SVG and XML, in which a text from a verdict is a text, whatever is in it."""

from __future__ import annotations

import re
from html import escape

# What XML has no place for, or what a reader would not see: it could hide something, or turn the line around it.
# The list is spelled out since what Unicode says of a character depends on the version of Python.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f]"
)
_LONGEST_NAME = 200
"""Characters of a name that are shown."""
_VOID = frozenset({"br", "link", "meta", "wbr"})


class Markup(str):
    """What is markup already, and is not escaped again."""

    __slots__ = ()


def seen(text: str) -> str:
    """The text, with whatever cannot be seen in it written as Python would."""
    return _UNSEEN.sub(lambda found: ascii(found[0])[1:-1], text)


def tag(name: str, /, *content: str, **attributes: object) -> Markup:
    """An element. An underscore in an attribute's name is a hyphen, one at its end is nothing.

    An attribute that is None is left out.
    """
    opening = "".join([name, *(_attribute(*each) for each in attributes.items() if each[1] is not None)])
    inner = "".join(map(_escaped, content))
    return Markup(f"<{opening} />" if name in _VOID else f"<{opening}>{inner}</{name}>")


def _attribute(key: str, value: object) -> str:
    return f' {key.rstrip("_").replace("_", "-")}="{_escaped(str(value))}"'


def _escaped(text: str) -> str:
    return text if isinstance(text, Markup) else escape(seen(text))


def cut(text: str, most: int) -> str:
    """The text, without its middle if it is too long: what differs is mostly at an end."""
    if len(text) <= most:
        return text
    tail = most // 2 - 2
    return f"{text[: most - tail - 3]} … {text[len(text) - tail :]}"


def block(name: str, /, *content: str, **attributes: object) -> Markup:
    """An element with a line for each of its parts, so that a page can be read and compared as a text."""
    return tag(name, "\n", *(Markup(f"{_escaped(each)}\n") for each in content), **attributes)


def breakable(name: str) -> Markup:
    """A name that is not too long, and that a line can be broken in where it has a dot, a hyphen or the like."""
    return Markup(re.sub(r"(?<=[._-])(?=.)|(?<=.)(?=\[)", "<wbr />", _escaped(cut(name, _LONGEST_NAME))))
