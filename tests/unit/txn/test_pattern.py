"""Patterns for names: the same verdicts as Python's own engine, and none of its traps."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.coordinator.txn import pattern
from fencepost.coordinator.txn.pattern import BadPattern, Pattern

NAMES = ["", "a", "b", "abc", "aaaa", "xx", "xxxxx", "tx-12", "a.bcd", "ab", "c", "abc-1.2", "]a", "a-_9", "a\nb", "é"]
PATTERNS = [
    "abc", "a*", "(a+)+$", "a|b", "x{2,4}", "x{2}", "x{2,}", "[a-z0-9_-]+", "^tx-\\d+$", "[^a]", "", "a{0}", "(?:ab)?c",
    "\\w+-[\\d.]+", "[]a]+", ".*", "a.b", "[\\w.-]+", "\\x61", "\\D*", "[^\\d]*", "a??b*?", "(|a)b", "\\.|a", "[a-]+",
    "$^", "a^b", "\\S+", "[\\]a]*", "x*x*x*x*x*",
]  # fmt: skip


@pytest.mark.parametrize("text", PATTERNS)
def test_verdicts_are_those_of_re(text: str) -> None:
    compiled, reference = Pattern(text), re.compile(text, re.ASCII)
    for name in NAMES:
        assert compiled.matches(name) == bool(reference.fullmatch(name)), name


def test_quoting_and_wide_escapes_are_java_and_re2s() -> None:
    """What Java's Pattern.quote makes, and code points over 255."""
    assert Pattern("\\Qa.b\\E.*").matches("a.bcd")
    assert not Pattern("\\Qa.b\\E.*").matches("axbcd")
    assert Pattern("\\Q(").matches("(")
    assert Pattern("\\x{1F600}").matches("😀")


@pytest.mark.parametrize(
    "text",
    [
        "(", ")", "a)", "[a", "[z-a]", "[a-\\d]", "[\\D]", "a**", "*a", "+", "a{3", "a{}", "a{4,2}", "a{1001}", "\\1",
        "\\b", "(?=a)", "(?i)a", "(?P<n>a)", "\\", "\\x{", "\\x{}", "\\x{110000}", "\\xg1", "[[:alpha:]]",
        "(a{1000}){1000}", "(" * 51 + ")" * 51, "a" * 1001, "\\pL",
    ],
)  # fmt: skip
def test_what_is_wrong_too_large_or_not_linear_is_refused(text: str) -> None:
    with pytest.raises(BadPattern):
        Pattern(text)


def test_no_pattern_can_hold_up_the_broker() -> None:
    """Steps, not seconds, are counted: a backtracking engine would need 2**1000 of them here."""
    compiled = Pattern("(a|a)*(a|aa)*(a*)*b")
    assert not compiled.matches("a" * 1000)
    assert len(compiled._moves) < 10


def test_the_memory_of_moves_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern, "MAX_CACHED_MOVES", 5)
    compiled = Pattern("[a-z]*")
    assert compiled.matches("thequickbrownfoxjumpsoverthelazydog")
    assert len(compiled._moves) <= 5


atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "(a|b)", "(ab|)", "^", "$"])
parts = st.builds("".join, st.tuples(atoms, st.sampled_from(["", "*", "+", "?", "{1,2}"])))
texts = st.lists(parts, max_size=5).map("".join).filter(lambda text: not re.search(r"[\^$][*+?{]", text))


@given(text=texts, name=st.text("ab", max_size=6))
def test_small_patterns_agree_with_re(text: str, name: str) -> None:
    # Python's $ also matches before a newline at the end; names here have none.
    assert Pattern(text).matches(name) == bool(re.fullmatch(text, name))
