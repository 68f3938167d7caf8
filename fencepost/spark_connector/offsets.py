"""Offsets per partition, and the JSON that Spark's Kafka source uses for them in options and checkpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fencepost.protocol.topics import TopicPartition

EARLIEST = -2
"""In options and in ListOffsets: the first offset that the log still holds."""
LATEST = -1
"""In options and in ListOffsets: the end of the log; with read_committed, the last stable offset."""

Offsets = dict[TopicPartition, int]
OffsetTree = dict[str, dict[str, int]]


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
