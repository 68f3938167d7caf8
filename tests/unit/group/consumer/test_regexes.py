"""Subscriptions by regular expression: when they are resolved, and what comes of it (G4)."""

import sys
import time
from dataclasses import replace

import pytest

from fencepost.coordinator.group.consumer import regexes
from fencepost.coordinator.group.consumer.context import View
from fencepost.coordinator.group.consumer.records import RegexRecord
from fencepost.coordinator.group.consumer.refused import Refused
from fencepost.protocol.errors import ErrorCode
from tests.kit.patterns import NEEDS_RE2
from tests.unit.group.consumer.kit import NOW, Paper, assignment, image


def resolve(paper: Paper) -> None:
    """What the service does after a heartbeat."""
    view = View(paper.image, 0, paper.config, paper.now_ms)
    for record in regexes.note_resolved(paper.group, regexes.resolve(paper.context.resolve, view), view):
        paper.group.apply(record)


def by_expression(expression: str = "t.*") -> Paper:
    """`a`, whose expression is resolved and assigned."""
    paper = Paper(image=image(t=2, tt=1, u=1))
    paper.beat("a", 0, topics=None, regex=expression)
    resolve(paper)
    paper.beat("a", 1)
    return paper


def test_a_broker_without_re2_refuses_expressions_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Alpine, for which google-re2 has no wheel."""
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(Refused, match=r"Install it there: pip install 'fencepost\[patterns\]'") as refused:
        Paper(image=image(t=1)).beat("a", 0, topics=None, regex="only-here.*")
    assert refused.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION


@NEEDS_RE2
def test_a_new_expression_is_resolved_after_the_heartbeat_that_brings_it_g4() -> None:
    paper = Paper(image=image(t=2, tt=1, u=1))
    reply = paper.beat("a", 0, topics=None, regex="t.*")
    assert (reply.member_epoch, reply.assignment, paper.context.resolve) == (1, {}, {"t.*"})
    resolve(paper)
    assert paper.group.resolved["t.*"].topics == {"t", "tt"}
    assert paper.group.epoch == 2
    assert paper.beat("a", 1).assignment == assignment(t=(0, 1), tt=(0,))


@NEEDS_RE2
def test_the_whole_name_must_match_g4() -> None:
    view = View(image(t=1, tt=1, at=1), 0, Paper().config, NOW)
    assert regexes.resolve(["t", "t+", ".t"], view)["t"].topics == {"t"}
    assert regexes.resolve(["t+"], view)["t+"].topics == {"t", "tt"}
    assert regexes.resolve([".t"], view)[".t"].topics == {"tt", "at"}


@pytest.mark.parametrize("expression", ["a(", "(?=a)", r"(a)\1", "[b-a]", "a**"])
def test_what_re2_does_not_know_is_refused_g4(expression: str) -> None:
    paper = Paper()
    with pytest.raises(Refused) as refused:
        paper.beat("a", 0, topics=None, regex=expression)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert expression in str(refused.value)


@NEEDS_RE2
def test_no_expression_can_hold_the_broker_up_g4() -> None:
    """Python's own module would take minutes for this one."""
    view = View(image(**{"a" * 200: 1}), 0, Paper().config, NOW)
    start = time.process_time()
    assert regexes.resolve(["(a+)+b"], view)["(a+)+b"].topics == frozenset()
    assert time.process_time() - start < 1


@NEEDS_RE2
def test_an_expression_that_is_known_needs_no_resolving_g4() -> None:
    paper = by_expression()
    reply = paper.beat("b", 0, topics=None, regex="t.*")
    assert paper.context.resolve == frozenset()
    assert (reply.member_epoch, paper.group.epoch) == (3, 3)


@NEEDS_RE2
def test_names_and_an_expression_add_up_g4() -> None:
    paper = Paper(image=image(t=1, u=1))
    paper.beat("a", 0, topics=("u",), regex="t")
    resolve(paper)
    assert paper.beat("a", 2).assignment == assignment(t=(0,), u=(0,))


@NEEDS_RE2
def test_the_last_subscriber_takes_the_expression_along_g4() -> None:
    paper = by_expression()
    paper.beat("b", 0, topics=None, regex="t.*")
    paper.beat("b", -1)
    assert "t.*" in paper.group.resolved
    paper.beat("a", 2, regex="u")
    assert RegexRecord("g", "t.*", None) in paper.context.log
    resolve(paper)
    paper.beat("a", -1)
    assert (paper.group.resolved, paper.group.topics, paper.group.regexes) == ({}, {}, {})


@NEEDS_RE2
def test_topics_that_came_are_looked_for_ten_seconds_later_at_most_g4() -> None:
    paper = by_expression()
    paper.image = replace(image(t=2, tt=1, u=1, tu=1), offset=7)
    paper.open()

    def wanted(later_ms: int) -> frozenset[str]:
        view = View(paper.image, 7, paper.config, NOW + later_ms)
        return regexes.note(paper.group, "t.*", "t.*", view)[2]

    assert wanted(regexes.REFRESH_MIN_INTERVAL_MS) == frozenset()
    assert wanted(regexes.REFRESH_MIN_INTERVAL_MS + 1) == {"t.*"}


@NEEDS_RE2
def test_where_no_topics_came_it_is_resolved_once_in_a_while_g4() -> None:
    paper = by_expression()
    interval_ms = paper.config.group_consumer_regex_refresh_interval_ms

    def wanted(later_ms: int) -> frozenset[str]:
        return regexes.note(paper.group, "t.*", "t.*", View(paper.image, 0, paper.config, NOW + later_ms))[2]

    assert wanted(interval_ms) == frozenset()
    assert wanted(interval_ms + 1) == {"t.*"}
    assert wanted(-1) == {"t.*"}, "the clock has gone back: it is not waited for"


@NEEDS_RE2
def test_an_expression_that_matches_as_before_raises_no_epoch_g4() -> None:
    paper = by_expression()
    epoch = paper.group.epoch
    view = View(paper.image, 0, paper.config, NOW + 99)
    records = regexes.note_resolved(paper.group, regexes.resolve(["t.*", "unwanted"], view), view)
    assert [type(record) for record in records] == [RegexRecord]
    assert paper.group.epoch == epoch
