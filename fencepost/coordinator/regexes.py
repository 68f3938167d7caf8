"""Regular expressions that clients send, in RE2's syntax: topic names (KIP-848), transactional ids (KIP-1152).

The library is RE2 itself (docs/decisions/0020-regular-expressions-by-re2.md). Matching takes time linear in the name,
so no pattern can block the broker.
"""

from functools import lru_cache
from typing import Protocol

from fencepost.extras import install


class InvalidRegex(ValueError):
    """The text is not a regular expression of RE2's; the message says why."""


class Regex(Protocol):
    """A compiled regular expression."""

    def fullmatch(self, text: str, /) -> object | None:
        """Whether the whole of `text` matches: a match, or None."""


@lru_cache(maxsize=128)
def compile_regex(text: str) -> Regex:
    """The expression, ready to match. Raises InvalidRegex."""
    try:
        import re2  # imported late: only requests with regular expressions need it
    except ModuleNotFoundError as error:  # an extra of its own: not every platform has a wheel of it
        why = f"the broker has no google-re2. Install it there: {install('patterns')}"
        raise InvalidRegex(f"`{text}` cannot be matched: {why}") from error
    options = re2.Options()
    options.log_errors = False
    try:
        regex: Regex = re2.compile(text, options)
    except re2.error as error:
        why = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise InvalidRegex(f"`{text}` is not a valid regular expression: {why}") from error
    return regex
