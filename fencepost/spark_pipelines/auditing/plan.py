"""The plan of an audit: the pieces that tasks read, and the known bounds of each partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from fencepost.protocol.topics import TopicPartition
from fencepost.spark_connector.network.wire import ConnectionSettings
from fencepost.spark_pipelines.auditing.rules import Bounds, Owner


class SegmentPiece(NamedTuple):
    """One segment of a stopped broker's log. `size_bytes` is its size."""

    tp: TopicPartition
    number: int
    directory: str
    base_offset: int
    size_bytes: int


class RangePiece(NamedTuple):
    """Offsets `start` to before `stop` of a running broker's partition. The broker lists aborted ones below `stable`.

    `number` is the piece's number in its partition. `size_bytes` is an estimate for progress: it counts offsets.
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
    """All pieces, and the bounds by partition. `owners` are by producer id; None if they are not known yet."""

    source: str
    pieces: list[Piece] = field(default_factory=list)
    bounds: dict[TopicPartition, Bounds] = field(default_factory=dict)
    owners: dict[int, Owner] | None = None

    def pieces_of(self, tp: TopicPartition) -> list[Piece]:
        """The pieces of one partition, in order."""
        return sorted((one for one in self.pieces if one.tp == tp), key=lambda one: one.number)
