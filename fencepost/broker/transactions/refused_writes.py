"""Why a partition rejected a producer's batch, stored in the coordinator's fencing history."""

from typing import TYPE_CHECKING, Protocol

from fencepost.broker.ports import HasTransactions
from fencepost.coordinator.txn.causes import EXPLAINED
from fencepost.coordinator.txn.state import DEAD
from fencepost.protocol.batch_header import CorruptBatch, read_header

if TYPE_CHECKING:
    from fencepost.coordinator.txn.causes import Caller
    from fencepost.protocol.errors import ErrorCode
    from fencepost.protocol.topics import TopicPartition


class RefusedWrite(Protocol):
    """A batch that a partition rejected."""

    tp: "TopicPartition"
    batch: bytes | bytearray | memoryview
    error: "ErrorCode"
    message: str | None


def explain_refused(
    node: HasTransactions, transactional_id: str | None, write: RefusedWrite, caller: "Caller | None"
) -> None:
    """Store the rejected producer and the reason, if the code is one of `EXPLAINED`."""
    if write.error not in EXPLAINED:
        return
    try:
        header = read_header(write.batch)
    except CorruptBatch:
        return
    name = transactional_id if header.is_transactional else None
    state = DEAD if name is None else node.transactions.store.state_of(name)
    shown = (header.producer_id, header.producer_epoch)
    reason = f"{write.tp}: {write.message or write.error.name}"
    node.transactions.history.refused_write(name, state, shown, write.error, reason, caller)
