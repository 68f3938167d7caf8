"""`ssl.principal.mapping.rules`: how a certificate's subject becomes a principal's name (KIP-371).

The rules are those of Kafka's `SslPrincipalMapper`, quirks included. A pattern is compiled by Python's `re`, so a
pattern that only Java knows (`\\p{Upper}`) is refused.
"""

import re
from dataclasses import dataclass

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_PARSER = re.compile(_RULE)
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)")
_REPLACED = re.compile(r"\\(.)|\$(\d+)", re.DOTALL)


class NoMatchingRule(Exception):
    """No rule matches the subject of a certificate."""


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str] | None
    """None: the rule DEFAULT, which takes the subject as it is."""
    replacement: str = ""
    case: str = ""

    def apply(self, subject: str) -> str | None:
        if self.pattern is None:
            return subject
        if self.pattern.fullmatch(subject) is None:
            return None
        name = self.pattern.sub(self._expanded, subject)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name

    def _expanded(self, match: re.Match[str]) -> str:
        """The replacement as Java expands it. `$12` is group 1 and a 2 if there are fewer than 12 groups."""

        def one(found: re.Match[str]) -> str:
            escaped, digits = found.groups()
            if escaped is not None:
                return str(escaped)
            taken = len(digits)
            while taken > 1 and int(digits[:taken]) > match.re.groups:
                taken -= 1
            if int(digits[:taken]) > match.re.groups:
                return str(found[0])  # no such group: Kafka leaves the text as it is
            return (match[int(digits[:taken])] or "") + str(digits[taken:])

        return _REPLACED.sub(one, self.replacement)


class PrincipalMapper:
    """Compiled rules; the first one that matches decides. Raises ValueError for an invalid rule."""

    def __init__(self, rules: str) -> None:
        self._rules: list[_Rule] = []
        for split in _SPLITTER.finditer(rules.strip()):
            text = split[1]
            match = _PARSER.match(text)
            if match is None or match.end() != len(text):
                raise ValueError(f"{text!r} is not DEFAULT or RULE:pattern/replacement/ with L, U or nothing behind it")
            if match[1] is not None:
                self._rules.append(_Rule(None))
            elif match[2] is not None:
                self._rules.append(_Rule(_compiled(match[2]), match[3], match[4]))

    def name(self, subject: str) -> str:
        """The principal's name for a subject. Raises NoMatchingRule."""
        for rule in self._rules:
            if (name := rule.apply(subject)) is not None:
                return name
        raise NoMatchingRule(f"no rule in ssl.principal.mapping.rules matches the certificate's subject {subject!r}")

    def __str__(self) -> str:
        return ", ".join(
            "DEFAULT"
            if rule.pattern is None
            else f"RULE:{rule.pattern.pattern}/{rule.replacement}" + (f"/{rule.case}" if rule.case else "")
            for rule in self._rules
        )


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.ASCII)  # \w and \d mean ASCII in Java
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
