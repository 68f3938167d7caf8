"""The work of one task: a range of offsets, and where it is found."""

from typing import NamedTuple

from fencepost.protocol.topics import TopicPartition
from fencepost.spark_connector.network.wire import Address


class Stored(NamedTuple):
    """What a task that reads the stores needs to know of its range, besides its offsets."""

    log: int
    aborted: tuple[tuple[int, int], ...]
    """(producer id, first offset) of the aborted transactions that overlap the range."""


class OffsetRange(NamedTuple):
    """The offsets of one task, from `start` to before `stop`, and where it finds them: the partition's leader when it
    was planned, or the log in the stores.
    """

    tp: TopicPartition
    start: int
    stop: int
    leader: Address | None = None
    stored: Stored | None = None
