"""Subscriptions by regular expression: RE2's syntax, matched against whole topic names (KIP-848)."""

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import TYPE_CHECKING

from fencepost.coordinator.group.consumer.group import ConsumerGroup, count, count_regex
from fencepost.coordinator.group.consumer.records import (
    ConsumerRecord,
    EpochRecord,
    GroupEpoch,
    RegexRecord,
    ResolvedRegex,
)
from fencepost.coordinator.group.consumer.refused import Refused
from fencepost.coordinator.group.consumer.topics import metadata_hash
from fencepost.coordinator.group.timers import within
from fencepost.coordinator.regexes import InvalidRegex, Regex, compile_regex
from fencepost.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from fencepost.coordinator.group.consumer.context import View

REFRESH_MIN_INTERVAL_MS = 10_000
"""The shortest time between two resolutions of a group's expressions."""


class Change(Enum):
    """How a request changed its member's regular expression."""

    NONE = auto()
    UPDATED = auto()
    """A new expression that is not resolved yet: the epoch is raised when it is."""
    UPDATED_AND_RESOLVED = auto()


def _compiled(regex: str) -> Regex:
    """The expression, ready to match. Raises Refused with INVALID_REGULAR_EXPRESSION."""
    try:
        return compile_regex(regex)
    except InvalidRegex as error:
        raise Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, f"SubscribedTopicRegex {error}.") from error


def resolve(
    expressions: Iterable[str], view: "View", may_see: Callable[[str], bool] | None = None
) -> dict[str, ResolvedRegex]:
    """The topics that each expression matches as a whole; only those that the requesting member may see."""
    names = view.image.topics_by_name
    found = {}
    for regex in expressions:
        matcher = _compiled(regex)
        topics = frozenset(name for name in names if matcher.fullmatch(name) and (may_see is None or may_see(name)))
        found[regex] = ResolvedRegex(topics, view.image.offset, view.now_ms)
    return found


def note(
    group: ConsumerGroup, old: str | None, new: str | None, view: "View"
) -> tuple[Change, str | None, frozenset[str]]:
    """The effect on the expressions when a member that subscribed to `old` subscribes to `new`.

    Returns the change, the expression that lost its last subscriber, and the expressions to resolve now (all of the
    group's, if any has to be). Raises Refused.
    """
    change, unused, wanted = Change.NONE, None, False
    if old != new:
        change = Change.UPDATED
        if old and group.regexes.get(old) == 1:
            unused = old
        if new and not group.regexes.get(new):
            _compiled(new)
            wanted = True
        elif (new and new in group.resolved) or (old and not new):
            change = Change.UPDATED_AND_RESOLVED
    if not wanted and not group.regexes:
        return change, unused, frozenset()
    last = next(iter(group.resolved.values()), None)
    if last is not None and within(last.timestamp_ms, REFRESH_MIN_INTERVAL_MS + 1, view.now_ms):
        return change, unused, frozenset()
    expressions = dict(group.regexes)
    if old:
        count(expressions, old, -1)
    if new:
        count(expressions, new, 1)
    wanted = wanted or len(expressions) != len(group.resolved)
    wanted = wanted or (last is not None and last.version < view.new_topics_at)
    interval_ms = view.config.group_consumer_regex_refresh_interval_ms
    wanted = wanted or (last is not None and not within(last.timestamp_ms, interval_ms + 1, view.now_ms))
    return change, unused, frozenset(expressions) if wanted else frozenset()


def note_resolved(group: ConsumerGroup, resolved: dict[str, ResolvedRegex], view: "View") -> list[ConsumerRecord]:
    """The records of resolved expressions: their topics, and a new epoch if these have changed.

    Expressions without a subscriber are left out.
    """
    topics = dict(group.topics)
    records: list[ConsumerRecord] = []
    bump = False
    for regex, found in resolved.items():
        if regex not in group.regexes:
            continue
        old = group.resolved.get(regex)
        before = frozenset[str]() if old is None else old.topics
        if before != found.topics:
            bump = True
            count_regex(topics, before, -1)
            count_regex(topics, found.topics, 1)
        records.append(RegexRecord(group.group_id, regex, found))
    hashed = metadata_hash(topics, view.image)
    if bump or hashed != group.metadata_hash:
        records.append(EpochRecord(group.group_id, GroupEpoch(group.epoch + 1, hashed)))
    return records
