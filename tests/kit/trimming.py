"""What `trimming` does in steps, at once."""

from fencepost.broker.log import trimming
from fencepost.broker.log.durability.upkeep import at_once, sync_all
from fencepost.broker.log.partition import PartitionLog
from fencepost.protocol.errors import ErrorCode


def delete_records(log: PartitionLog, offset: int) -> tuple[ErrorCode, int]:
    """Move the log's start."""
    return at_once(trimming.deleting_records(log, offset))


def housekeep(log: PartitionLog, now_ms: int) -> None:
    """Retention by time and size, and forgetting idle producers."""
    if trimming.housekeep(log, now_ms):
        sync_all(log.log_start_files())
        at_once(trimming.deleting_segments(log, now_ms))
