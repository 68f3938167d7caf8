"""Hanging transactions: open on a partition, without a coordinator that will end them. A periodic check proves it."""

import logging
from typing import TYPE_CHECKING, NamedTuple, Protocol

from fencepost.broker.ports import HasClock, HasConfig, HasLogs, HasPartitions, HasTransactions
from fencepost.broker.security.audit import audit
from fencepost.coordinator.ports import Marker
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

if TYPE_CHECKING:
    from fencepost.broker.transactions.markers import Markers

logger = logging.getLogger(__name__)


class Open(NamedTuple):
    """A transaction that is open on a partition."""

    tp: TopicPartition
    producer_id: int
    producer_epoch: int
    first_offset: int


class Hanging(NamedTuple):
    """An open transaction that is proved to hang, with the proof in words."""

    open: Open
    seen_seconds: float
    """For how long each check of this process has found it hanging."""
    coordinator_says: str


class _Broker(HasClock, HasConfig, HasLogs, HasPartitions, HasTransactions, Protocol):
    """What the check needs."""

    @property
    def markers(self) -> "Markers": ...


class HangingCheck:
    """Row T20, by proof. The check acts only if all of this holds:

    1. The transaction is open on the partition now. It is the same (producer, epoch, first offset) as in every check
       since the first that found it.
    2. The coordinator read all of its logs and finished loading.
    3. The coordinator has no open or decided transaction of that producer id with that partition, whatever the epoch:
       neither durable nor in flight. A transaction that it has will get its marker, so it does not hang.
    4. 1 to 3 have held in every check for longer than `transaction.max.timeout.ms`, on a monotonic clock.
       Record timestamps prove nothing: clients choose them.

    No other task runs between the last check and the append of the marker. TV2's implicit add is in the coordinator's
    memory before its batch can be appended, so condition 3 covers a transaction that is just beginning. The check
    covers the partitions opened since the start: no client waits on the others.
    """

    def __init__(self, node: _Broker) -> None:
        self._node = node
        self._since: dict[Open, float] = {}
        self.hanging: tuple[Hanging, ...] = ()
        """What the last check found."""
        self.aborted = 0

    async def look(self) -> None:
        """One check. Logs each hanging transaction once, and aborts it if `transaction.hanging.abort` is set."""
        now = self._node.clock.monotonic()
        suspects = {found: self._since.get(found, now) for found in self._suspects()}
        self._since = suspects
        timeout_seconds = self._node.config.transaction_max_timeout_ms / 1000
        late = [found for found, since in suspects.items() if now - since > timeout_seconds]
        known = {hanging.open for hanging in self.hanging}
        self.hanging = tuple(
            [Hanging(found, now - suspects[found], await self._coordinator_state(found)) for found in late]
        )
        for hanging in self.hanging:
            if hanging.open not in known:
                _report(hanging)
            if self._node.config.transaction_hanging_abort:
                await self._abort(hanging)

    def hangs(self, tp: TopicPartition, producer_id: int) -> bool:
        """Whether 1 to 3 hold now for the producer's open transaction on the partition."""
        log = self._node.partition(tp)
        entry = None if log is None else log.producers.get(producer_id)
        if entry is None or entry.txn_first_offset < 0 or not self._coordinator_loaded:
            return False
        return (producer_id, tp) not in self._node.transactions.inspection.owned()

    @property
    def _coordinator_loaded(self) -> bool:
        transactions = self._node.transactions
        return transactions.is_running and transactions.inspection.knows_everything

    def _suspects(self) -> list[Open]:
        """The transactions that are open on a partition and that no coordinator owns, without a checkpoint."""
        is_open = [
            Open(log.tp, *transaction[:3])
            for log in self._node.logs.logs()
            if not log.offline
            for transaction in log.producers.open_transactions()
        ]
        if not is_open or not self._coordinator_loaded:
            return []
        owned = self._node.transactions.inspection.owned()
        return [found for found in is_open if (found.producer_id, found.tp) not in owned]

    async def _coordinator_state(self, found: Open) -> str:
        """What the coordinator knows of the producer id; for the report, not for the proof."""
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
            return  # it changed while others were checked: the next check starts again
        marker = Marker(found.producer_id, found.producer_epoch, False, max(0, entry.coordinator_epoch), 0)
        results = await self._node.markers.write_markers(marker, {found.tp})
        code = results[found.tp]
        self.aborted += code is ErrorCode.NONE
        audit.warning(
            "HANGING_TRANSACTION result=%s partition=%s producer_id=%d epoch=%d first_offset=%d"
            " by=transaction.hanging.abort proof=open and unknown for %.0f s; %s",
            "aborted" if code is ErrorCode.NONE else f"not aborted ({code.name})",
            found.tp,
            *found[1:],
            hanging.seen_seconds,
            hanging.coordinator_says,
        )


def _report(hanging: Hanging) -> None:
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
