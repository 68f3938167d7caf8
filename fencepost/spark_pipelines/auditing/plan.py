"""What an audit has to read: pieces that tasks can take one by one, and what is known of each partition before."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from fencepost.protocol.topics import TopicPartition
from fencepost.spark_connector.network.wire import ConnectionSettings
from fencepost.spark_pipelines.auditing.rules import Bounds, Owner


class SegmentPiece(NamedTuple):
    """One segment of a stopped broker's log. `size_bytes` is what there is to read."""

    tp: TopicPartition
    number: int
    directory: str
    base_offset: int
    size_bytes: int


class RangePiece(NamedTuple):
    """Offsets `start` to before `stop` of a partition of a running broker; below `stable` the aborted ones are listed.

    `number` counts the partition's pieces. `size_bytes` is a guess for the bar of progress: offsets, in truth.
    """

    tp: TopicPartition
    number: int
    start: int
    stop: int
    stable: int
    connection: ConnectionSettings
    size_bytes: int


Piece = SegmentPiece | RangePiece


@dataclass
class Plan:
    """All pieces, and by partition the bounds. `owners`, by producer id, where it is known before: else None."""

    source: str
    pieces: list[Piece] = field(default_factory=list)
    bounds: dict[TopicPartition, Bounds] = field(default_factory=dict)
    owners: dict[int, Owner] | None = None

    def pieces_of(self, tp: TopicPartition) -> list[Piece]:
        """One partition's, in order."""
        return sorted((one for one in self.pieces if one.tp == tp), key=lambda one: one.number)
