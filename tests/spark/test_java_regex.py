"""`subscribePattern`: Java's regular expressions in Python, compared with java.util.regex in Spark's JVM."""

from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fencepost.spark_connector.source.java_regex import java_pattern
from tests.spark.java_patterns import REFUSED, TRANSLATED

NAMES = ("orders", "orders-eu", "old-orders", "Orders.2024", "orders_eu_eu", "a.b", "aXb", "x-1", "__x", "{2}", "aab")
"""The last but one cannot be a topic, but shows whether braces were taken for a quantifier."""


def matches(text: str) -> list[str]:
    return [name for name in NAMES if java_pattern(text).search(name)]


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_translated_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be translated|is not a regular expression|is unknown here"):
        java_pattern(text)


@pytest.fixture(scope="module")
def java(spark: Any) -> Any:
    """Which names hold the pattern, by Java; None if Java does not compile it."""
    from pyspark.errors import IllegalArgumentException

    def found(text: str) -> list[str] | None:
        try:
            pattern = spark._jvm.java.util.regex.Pattern.compile(text)
        except IllegalArgumentException:
            return None
        return [name for name in NAMES if pattern.matcher(name).find()]

    return found


@pytest.mark.spark
def test_the_translated_patterns_find_what_java_finds(java: Any) -> None:
    assert {text: matches(text) for text in TRANSLATED} == {text: java(text) for text in TRANSLATED}


FRAGMENTS = (
    *"abexO1._-^$|()[]{}*+?,\\&", "(?:", "(?<g>", "\\k<g>", "(?i)", "(?i:", "(?!", "\\Q", "\\E", "\\p{Lower}", "[^",
    "{2}", "\\w", "\\b", "\\1", "eu", "\\.", "&&", "(?>",
)  # fmt: skip


@pytest.mark.spark
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=7).map("".join))
@example("a{2}{3}")
def test_no_pattern_finds_anything_else_than_in_java(java: Any, text: str) -> None:
    """A pattern may be refused. One that is taken compiles in Java too, and finds the same names there."""
    try:
        found = matches(text)
    except ValueError:
        return
    assert found == java(text)
