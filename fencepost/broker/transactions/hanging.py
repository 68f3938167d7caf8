"""Transactions that are open on a partition and that nobody will ever end: found by a periodic check, with proof."""

import logging
from typing import TYPE_CHECKING, NamedTuple, Protocol

from fencepost.broker.ports import HasClock, HasConfig, HasLogs, HasPartitions, HasTransactions
from fencepost.coordinator.ports import Marker
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

if TYPE_CHECKING:
    from fencepost.broker.transactions.markers import Markers

logger = logging.getLogger(__name__)
audit = logging.getLogger("fencepost.audit")
"""What was done to data other than by its owner; one line each, on a logger of its own."""


class Open(NamedTuple):
    """A transaction that a partition holds open."""

    tp: TopicPartition
    producer_id: int
    producer_epoch: int
    first_offset: int


class Hanging(NamedTuple):
    """One that has been proved to hang, and the words of the proof."""

    open: Open
    seen_seconds: float
    """For how long this process has watched it hang, without a break."""
    coordinator_says: str


class _Broker(HasClock, HasConfig, HasLogs, HasPartitions, HasTransactions, Protocol):
    """What the check looks at, and what ends a transaction."""

    @property
    def markers(self) -> "Markers": ...


class HangingCheck:
    """Row T20, by proof. All of this must hold, or nothing is done:

    1. The transaction is open on the partition now, the same one (producer, epoch, first offset) as at every look since
       it was first seen.
    2. Every log of the coordinator could be read, and it has finished loading.
    3. The coordinator has no open and no decided transaction of that producer id with that partition, whatever the
       epoch: neither durable nor in flight. One that it has will get its marker, so it does not hang.
    4. 1 to 3 have held at every look for longer than `transaction.max.timeout.ms`, on a clock that cannot be set.
       Record timestamps say nothing here: clients choose them.

    Between the last look and the marker no other task runs. TV2's implied add is in the coordinator's memory before its
    batch can be appended, so a transaction that is just beginning is covered by 3. Searched are the partitions that
    somebody has asked for since the start: in the others nobody waits.
    """

    def __init__(self, node: _Broker) -> None:
        self._node = node
        self._since: dict[Open, float] = {}
        self.hanging: tuple[Hanging, ...] = ()
        """What the last look found."""
        self.aborted = 0

    async def look(self) -> None:
        """One look; what hangs is logged once, and aborted where `transaction.hanging.abort` says so."""
        now = self._node.clock.monotonic()
        suspects = {found: self._since.get(found, now) for found in self._suspects()}
        self._since = suspects
        patience_seconds = self._node.config.transaction_max_timeout_ms / 1000
        late = [found for found, since in suspects.items() if now - since > patience_seconds]
        known = {hanging.open for hanging in self.hanging}
        self.hanging = tuple([Hanging(found, now - suspects[found], await self._opinion(found)) for found in late])
        for hanging in self.hanging:
            if hanging.open not in known:
                _tell(hanging)
            if self._node.config.transaction_hanging_abort:
                await self._abort(hanging)

    def hangs(self, tp: TopicPartition, producer_id: int) -> bool:
        """Whether 1 to 3 hold at this moment for what the producer has open on the partition."""
        log = self._node.partition(tp)
        entry = None if log is None else log.producers.get(producer_id)
        if entry is None or entry.txn_first_offset < 0 or not self._coordinator_can_tell:
            return False
        return (producer_id, tp) not in self._node.transactions.inspection.owned()

    @property
    def _coordinator_can_tell(self) -> bool:
        transactions = self._node.transactions
        return transactions.is_running and transactions.inspection.knows_everything

    def _suspects(self) -> list[Open]:
        """What is open on some partition and owned by nobody, in one moment."""
        is_open = [
            Open(log.tp, *transaction[:3])
            for log in self._node.logs.logs()
            if not log.offline
            for transaction in log.producers.open_transactions()
        ]
        if not is_open or not self._coordinator_can_tell:
            return []
        owned = self._node.transactions.inspection.owned()
        return [found for found in is_open if (found.producer_id, found.tp) not in owned]

    async def _opinion(self, found: Open) -> str:
        """What the coordinator knows of the producer id; a part of the report, not of the proof."""
        transactions = self._node.transactions
        for name in await transactions.inspection.ids_of(found.producer_id):
            state = transactions.store.state_of(name)
            return f"{name!r} has this producer id, is in {state.name} and does not have this partition"
        return "no transactional id has this producer id"

    async def _abort(self, hanging: Hanging) -> None:
        found = hanging.open
        log = self._node.partition(found.tp)
        entry = None if log is None else log.producers.get(found.producer_id)
        if (
            entry is None
            or (entry.epoch, entry.txn_first_offset) != (found.producer_epoch, found.first_offset)
            or not self.hangs(found.tp, found.producer_id)
        ):
            return  # it has changed while the others were looked at: from the start again
        marker = Marker(found.producer_id, found.producer_epoch, False, max(0, entry.coordinator_epoch), 0)
        results = await self._node.markers.write_markers(marker, {found.tp})
        code = results[found.tp]
        self.aborted += code is ErrorCode.NONE
        audit.warning(
            "hanging transaction %s partition=%s producer_id=%d epoch=%d first_offset=%d by=transaction.hanging.abort"
            " proof=open and unknown for %.0f s; %s",
            "aborted" if code is ErrorCode.NONE else f"NOT aborted ({code.name})",
            found.tp,
            *found[1:],
            hanging.seen_seconds,
            hanging.coordinator_says,
        )


def _tell(hanging: Hanging) -> None:
    tp, producer_id, epoch, first_offset = hanging.open
    logger.error(
        "hanging transaction partition=%s producer_id=%d epoch=%d first_offset=%d: open for more than %.0f s and %s;"
        " read_committed consumers stop there, and nothing will end it. Inspect it with `fencepost txn why %s:%d`,"
        " abort it with `fencepost txn hanging --topic %s --partition %d --repair`",
        tp,
        producer_id,
        epoch,
        first_offset,
        hanging.seen_seconds,
        hanging.coordinator_says,
        tp.topic,
        tp.partition,
        tp.topic,
        tp.partition,
    )
