"""A log that another broker leads, as this broker reads it from the stores for consumers (KIP-392).

It is a `PartitionLog` over committed rows. Nothing is ever appended to it, and it is in no `LogManager`: retention,
merging and compaction are the owner's. So its rows may be replaced at any time. It does not learn that at once: reads
of the old rows find the same records, until their bytes are gone. Then the log is opened anew.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fencepost.broker.cluster.commit.rounds import Rounds
from fencepost.broker.cluster.commit.shared_log import ColdRows, SharedLog
from fencepost.broker.cluster.commit.shared_logs import index_of, opened_of, tail_of
from fencepost.broker.cluster.engine import Placement, Row, RowKind
from fencepost.broker.cluster.reading.loading import LoadedLog
from fencepost.broker.cluster.reading.row_reading import Foreign
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.log.storage.store import Store
from fencepost.protocol.topics import TopicPartition


class RowPlace(NamedTuple):
    """What identifies a row whose bytes could not be read."""

    base: int
    end: int
    placement: Placement


class FollowedRows(SharedLog):
    """The rows of a followed log."""

    def __init__(self, log_id: int, found: LoadedLog | None, scratch: Store, rounds: Rounds, cold: ColdRows) -> None:
        """`found` is the log as the stores have it, None if it has no row yet; `scratch` is an empty directory."""
        super().__init__(log_id, index_of(found), tail_of(found, scratch), rounds, cold, None)
        self.doubted: set[RowPlace] = set()
        """Rows that could not be read. The log has to be opened anew: the owner may have replaced them."""
        self.damaged: set[RowPlace] = set()
        """Rows that could not be read before the log was opened anew. If it still has them, that is an error."""

    def holds(self, row: Row) -> bool:
        """Whether the row is part of the log, although it could not be read.

        Unless the log was opened anew since, the owner may have replaced the row.
        """
        if not super().holds(row):
            return False
        place = RowPlace(row.base, row.end, row.placement)
        if place not in self.damaged:
            self.doubted.add(place)
        return place in self.damaged

    def are_next(self, rows: Sequence[Foreign]) -> bool:
        """Whether `apply_external` may add these rows: they are runs that begin at the end. Others were merged."""
        end = self.end_offset
        for row, _ in rows:
            if row.kind is not RowKind.RUN or row.base != end:
                return False
            end = row.end
        return True


def followed_log(
    rows: FollowedRows, tp: TopicPartition, topic_id: bytes, config: LogConfig, found: LoadedLog | None, epoch: int
) -> PartitionLog:
    """The log over these rows; `epoch` is that of its slot."""
    files = MemoryStore()
    opened = opened_of(rows, found, files, epoch)
    return PartitionLog(tp, topic_id, config, files, opened, log_start_offset=0 if found is None else found.start)


def raise_start(log: PartitionLog, rows: FollowedRows, start: int) -> None:
    """The owner has deleted the records below `start`, which is at most the end. Raises OSError."""
    if start <= log.log_start_offset:
        return
    log.raise_log_start(start)
    gone = sum(row.end <= start for row in rows.index.rows)
    if gone:
        rows.drop_front(gone)
    log.wake()
