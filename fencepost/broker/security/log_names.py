"""Names that clients choose, as log lines have them: no name looks like other pairs of the line, or makes it long."""

import re

from fencepost.broker.security.principal import Principal

NAME_CHARS_MAX = 250
"""A topic's name has at most 249. A client without a login can send a user name of many thousands."""
_UNQUOTED = re.compile(r"[\w.:@/+-]*", re.ASCII)


def quoted(name: str) -> str:
    """A name in quotes. A longer one than NAME_CHARS_MAX is cut, with `...` behind the quotes."""
    return repr(name) if len(name) <= NAME_CHARS_MAX else f"{name[:NAME_CHARS_MAX]!r}..."


def principal_text(principal: Principal) -> str:
    """`User:alice`; in quotes if the name has a space, `=` or another character that could end it."""
    text = str(principal)
    return text if len(text) <= NAME_CHARS_MAX and _UNQUOTED.fullmatch(text) else quoted(text)
