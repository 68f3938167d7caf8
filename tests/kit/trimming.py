"""What `trimming` does in steps, at once."""

from fencepost.broker.log.durability.upkeep import at_once
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.trimming import deleting_records, housekeeping
from fencepost.protocol.errors import ErrorCode


def delete_records(log: PartitionLog, offset: int) -> tuple[ErrorCode, int]:
    """Move the log's start."""
    return at_once(deleting_records(log, offset))


def housekeep(log: PartitionLog, now_ms: int) -> None:
    """Retention by time and size, and forgetting idle producers."""
    at_once(housekeeping(log, now_ms))
