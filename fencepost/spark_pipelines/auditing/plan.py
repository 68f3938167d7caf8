"""The plan of an audit: the pieces that tasks read, and the known bounds of each partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from fencepost.protocol.topics import TopicPartition
from fencepost.spark_connector.network.wire import ConnectionSettings
from fencepost.spark_pipelines.auditing.bounds import Bounds
from fencepost.spark_pipelines.auditing.owners import Owner

if TYPE_CHECKING:
    from fencepost.broker.cluster.engine import Row
    from fencepost.broker.log.storage.txn_index import AbortedTransaction
    from fencepost.spark_connector.source.store_settings import StoreSettings


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


class StorePiece(NamedTuple):
    """Adjacent rows of one log in the stores of a cluster, as the cut has them, without inline bytes."""

    tp: TopicPartition
    number: int
    log: int
    start: int
    """The log start offset at the cut."""
    rows: tuple[Row, ...]
    folded_to: int
    """The offset of the snapshot of the log's producers."""
    compacted: bool
    """Whether a broker may compact the log while the audit runs."""
    aborted: tuple[AbortedTransaction, ...]
    """The aborted transactions that end in the rows: the list by which readers filter."""
    settings: StoreSettings
    size_bytes: int


Piece = SegmentPiece | RangePiece | StorePiece


@dataclass
class Plan:
    """All pieces, and the bounds by partition. `owners` are by producer id; None if they are not known yet."""

    source: str
    pieces: list[Piece] = field(default_factory=list)
    bounds: dict[TopicPartition, Bounds] = field(default_factory=dict)
    owners: dict[int, Owner] | None = None
    rules: list[str] | None = None
    """The rules that the audit checks; None: those that need no stores."""

    def pieces_of(self, tp: TopicPartition) -> list[Piece]:
        return sorted((one for one in self.pieces if one.tp == tp), key=lambda one: one.number)
