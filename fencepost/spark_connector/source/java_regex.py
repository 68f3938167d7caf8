"""Java's regular expressions for topic names, translated to Python's `re`.

Spark compiles `subscribePattern` with java.util.regex. A topic name has only ASCII letters, digits, `.`, `_` and `-`,
so classes and cases need no Unicode. Parts that mean the same in both languages are kept. Parts that Python writes
differently are translated. All others are refused, including those that only Python understands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_CLASSES = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "XDigit": "0-9a-fA-F",
    "Punct": r"!-/:-@\[-`{-~",
    "L": "a-zA-Z",
    "Ll": "a-z",
    "Lu": "A-Z",
    "N": "0-9",
    "Nd": "0-9",
}
"""The characters of ASCII in the classes that Java calls `\\p{NAME}`."""
# Every alternative that starts like another one but means something else comes first.
_ANYWHERE = r"""
    \\Q (?P<quoted> .*?) (?: \\E | \Z)
  | \\p (?P<property> [LN] | \{\w+\})
  | (?P<same> \\[dDwWsStnrfa] | \\x[0-9a-fA-F]{2} | \\u[0-9a-fA-F]{4} | \\[^a-zA-Z0-9])
"""
_OUTSIDE = re.compile(
    _ANYWHERE
    + r"""
  | \\P (?P<without> [LN] | \{\w+\})
  | \\k< (?P<reference> [a-zA-Z][a-zA-Z0-9]*) >
  | \(\?< (?P<group> [a-zA-Z][a-zA-Z0-9]*) >
  | (?P<end> \\[zZ])
  | (?P<open> \[\^?+ (?! \]))
  | (?P<kept> \\[bBA] | \\[1-9](?![0-9]) | \((?!\?) | \{\d+(?:,\d*)?\} | [^\\\[({])
  | (?P<special_group> \(\?(?: [:=!>] | <[=!] | [ims]*(?:-[ims]+)?: ))
""",
    re.VERBOSE | re.DOTALL,
)
_INSIDE = re.compile(_ANYWHERE + r"| (?P<close> \]) | (?P<literal> (?!&&) [^\\\[])", re.VERBOSE | re.DOTALL)
_FLAGS = re.compile(r"(?:\(\?[ims]+\))*")


def java_pattern(text: str) -> re.Pattern[str]:
    """The compiled pattern. Raises ValueError if it is not a regular expression, or has no translation."""
    try:
        return re.compile("".join(_translated(text)), re.ASCII)
    except re.error as error:
        raise ValueError(f"is not a regular expression that Python can match: {error}") from None


def _translated(text: str) -> Iterator[str]:
    flags = _FLAGS.match(text)
    at = flags.end() if flags is not None else 0
    yield text[:at]
    inside = False
    while at < len(text):
        found = (_INSIDE if inside else _OUTSIDE).match(text, at)
        if found is None:
            raise ValueError(
                f"{text[at : at + 12]!r} at position {at} cannot be translated from Java's regular expressions to"
                " Python's; write the pattern without it"
            )
        kind, part = found.lastgroup, found[found.lastgroup or 0]
        inside = kind == "open" or (inside and kind != "close")
        yield _piece(kind, part, inside)
        at = found.end()


def _piece(kind: str | None, part: str, inside: bool) -> str:
    match kind:
        case "quoted":
            return re.escape(part)
        case "property" | "without":
            name = part.strip("{}")
            if name not in _CLASSES:
                raise ValueError(f"the class \\p{part} is unknown here; the known classes are {', '.join(_CLASSES)}")
            characters = _CLASSES[name]
            return characters if inside else f"[{'^' if kind == 'without' else ''}{characters}]"
        case "reference":
            return f"(?P={part})"
        case "group":
            return f"(?P<{part}>"
        case "end":
            return r"\Z"
        case "literal" if part != "-":
            return re.escape(part)
    return part
