"""Offsets per partition, and the JSON that Spark's Kafka source uses for them in options and checkpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from fencepost.protocol.topics import TopicPartition

EARLIEST = -2
"""In options and in ListOffsets: the first offset that the log still holds."""
LATEST = -1
"""In options and in ListOffsets: the end of the log; with read_committed, the last stable offset."""

Offsets = dict[TopicPartition, int]
OffsetTree = dict[str, dict[str, int]]
PositionTree = dict[str, Any]
"""The JSON of a `Position`."""

LAST_STABLE = "{} (last stable)"
"""The key of a topic's last stable offsets in `latestOffset` of a query's progress. No topic can have this name."""
_FIRST, _MISSING = " (first batch)", " (missing)"
_TOPIC_ID = " (topic id)"
"""Behind the name of a topic, which has no spaces: a key for more than its offsets."""


class Position(NamedTuple):
    """How far a stream has planned, as Spark's checkpoint keeps it."""

    offsets: Offsets
    """The next records to read."""
    topic_ids: Mapping[str, str] = {}
    """The ids of the topics at that time, as hex; empty where a broker has none."""
    first: Offsets | None = None
    """Where the first micro-batch begins, if this is its start or its end."""
    missing: Mapping[TopicPartition, int] = {}
    """How far partitions were read that are not there now, and may come back."""

    @classmethod
    def of(cls, tree: PositionTree) -> Position:
        """Raises ValueError, TypeError or AttributeError for another shape."""
        offsets, topic_ids, first, missing = {}, {}, {}, {}
        for key, value in tree.items():
            if key.endswith(_TOPIC_ID):
                topic_ids[key.removesuffix(_TOPIC_ID)] = str(value)
            elif key.endswith(_FIRST):
                first[key.removesuffix(_FIRST)] = value
            elif key.endswith(_MISSING):
                missing[key.removesuffix(_MISSING)] = value
            else:
                offsets[key] = value
        return cls(offsets_of(offsets), topic_ids, offsets_of(first) if first else None, offsets_of(missing))

    @property
    def tree(self) -> PositionTree:
        """The tree for the checkpoint. Equal positions have equal JSON, by which Spark compares."""
        first = {topic + _FIRST: partitions for topic, partitions in tree_of(self.first or {}).items()}
        if self.first == {}:
            first[_FIRST] = {}
        ids = {topic + _TOPIC_ID: self.topic_ids[topic] for topic in sorted(self.topic_ids)}
        missing = {topic + _MISSING: partitions for topic, partitions in tree_of(self.missing).items()}
        return {**tree_of(self.offsets), **first, **missing, **ids}

    @property
    def is_initial(self) -> bool:
        """Whether the first micro-batch begins here, or where it began before the query was started again."""
        return self.first == self.offsets

    def created_again(self, later: Mapping[str, str]) -> set[str]:
        return {topic for topic, topic_id in self.topic_ids.items() if later.get(topic, topic_id) != topic_id}


def parse_partition_offsets(text: str, lowest: int) -> Offsets:
    """Numbers per partition from JSON such as {"topic": {"0": 23, "1": -2}}.

    Raises ValueError for other JSON, for partitions below 0 and for numbers below `lowest`.
    """
    try:
        return offsets_of(json.loads(text, object_pairs_hook=_no_duplicates), lowest)
    except (ValueError, TypeError, AttributeError) as error:
        reason = f" ({error})" if str(error) else ""
        raise ValueError(f'must be JSON such as {{"topic": {{"0": 23}}}}{reason}') from None


def offsets_of(tree: Any, lowest: int = 0) -> Offsets:
    """The offsets in a parsed tree. Raises ValueError, TypeError or AttributeError if the tree has another shape."""
    offsets: Offsets = {}
    for topic, partitions in tree.items():
        for number, offset in partitions.items():
            if type(offset) is not int or offset < lowest:
                raise ValueError(f"{topic}-{number}: {offset!r} must be a whole number, {lowest} or above")
            offsets[TopicPartition(topic, _partition_number(topic, number))] = offset
    return offsets


def tree_of(offsets: Mapping[TopicPartition, int]) -> OffsetTree:
    """The tree for the checkpoint. It is sorted, because Spark compares offsets by their JSON text."""
    tree: OffsetTree = {}
    for tp in sorted(offsets):
        tree.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return tree


def _partition_number(topic: str, text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{text!r} is not a partition number of {topic}")
    return int(text)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name!r} appears twice")
    return dict(pairs)
