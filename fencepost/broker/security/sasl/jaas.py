"""Kafka's JAAS syntax in `sasl.jaas.config`: `Module required name="value" ... ;`."""

import re
from typing import NamedTuple

_WORD = re.compile(r'\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s="\';]+)|(?P<mark>[=;]))')
_FLAGS = ("required", "requisite", "sufficient", "optional")
_USER = "user_"


class JaasModule(NamedTuple):
    """A login module with its options. Its `repr` shows no value: they are secrets."""

    name: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"JaasModule({self.name!r}, {sorted(self.options)})"

    @property
    def users(self) -> dict[str, str]:
        """The passwords of PlainLoginModule's users: the options `user_NAME="PASSWORD"`."""
        return {name.removeprefix(_USER): value for name, value in self.options.items() if name.startswith(_USER)}


def parse_jaas(text: str) -> JaasModule:
    """Parse the configuration of one login module. Raises ValueError, whose text has no secret."""
    words = _words(text)
    if not words or words[-1] != ("mark", ";"):
        raise ValueError("the JAAS configuration does not end with a semicolon")
    if len(words) < 3 or words[0][0] == "mark":
        raise ValueError("the JAAS configuration needs a login module and a control flag, `Module required ...;`")
    if words[1][1].lower() not in _FLAGS:
        raise ValueError(f"the JAAS configuration needs a control flag after the login module: {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    rest = words[2:-1]
    for place in range(0, len(rest), 3):
        triple = rest[place : place + 3]
        kinds = [kind for kind, _ in triple]
        if len(triple) < 3 or kinds[0] == "mark" or triple[1] != ("mark", "=") or kinds[2] == "mark":
            raise ValueError(f'option {place // 3 + 1} of the JAAS configuration is not of the form name="value"')
        options[triple[0][1]] = triple[2][1]
    return JaasModule(words[0][1], options)


def _words(text: str) -> list[tuple[str, str]]:
    words: list[tuple[str, str]] = []
    place, text = 0, text.strip()
    while place < len(text):
        found = _WORD.match(text, place)
        if found is None:
            raise ValueError(f"the JAAS configuration has an unexpected character at position {place + 1}")
        kind = str(found.lastgroup)
        value = re.sub(r"\\(.)", r"\1", found[kind]) if kind == "quoted" else found[kind]
        words.append((kind, value))
        place = found.end()
    return words
