"""Hanging transactions: open on a partition, without a coordinator that will end them. A periodic check proves it."""

import logging
from collections.abc import Collection
from typing import NamedTuple

from fencepost.broker.log.producer_entries import ProducerEntry
from fencepost.broker.peers.other_coordinators import Held, NoAnswer, OtherCoordinators
from fencepost.broker.ports import Broker
from fencepost.broker.security.audit import audit
from fencepost.coordinator.ports import Marker
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

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


class HangingCheck:
    """Row T20, by proof. The check acts only if all of this holds:

    1. The transaction is open on the partition now. It is the same (producer, epoch, first offset) as in every check
       since the first that found it.
    2. All coordinators have read all of their logs and finished loading. With many active brokers each is asked, and
       none has moved meanwhile.
    3. No coordinator has an open or decided transaction of that producer id with that partition, whatever the epoch:
       neither durable nor in flight. A transaction that it has will get its marker, so it does not hang.
    4. 1 to 3 have held in every check for longer than `transaction.max.timeout.ms`, on a monotonic clock.
       Record timestamps prove nothing: clients choose them.

    No other task runs between the last check and the append of the marker. TV2's implicit add is in the coordinator's
    memory before its batch can be appended, so condition 3 covers a transaction that is just beginning. While other
    brokers are asked, other tasks do run. So the producer must have written nothing on the partition since before they
    were asked: what it wrote earlier was of a transaction that its coordinator knew then, and knows until its marker is
    committed; and that marker is read after the answers. The check covers the partitions opened since the start: no
    client waits on the others.
    """

    def __init__(self, node: Broker) -> None:
        self._node = node
        self._since: dict[Open, float] = {}
        self.hanging: tuple[Hanging, ...] = ()
        """What the last check found."""
        self.aborted = 0

    async def look(self) -> None:
        """One check. Logs each hanging transaction once, and aborts it if `transaction.hanging.abort` is set."""
        now = self._node.clock.monotonic()
        suspects = {found: self._since.get(found, now) for found in await self._proved(self._open())}
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

    async def hanging_of(self, partitions: Collection[TopicPartition], producer_id: int) -> set[TopicPartition]:
        """The partitions on which 1 to 3 hold now for the producer's open transaction."""
        opened = [found for found in self._open() if found.tp in partitions and found.producer_id == producer_id]
        return {found.tp for found in await self._proved(opened)}

    def _open(self) -> list[Open]:
        """The transactions that are open on a partition."""
        return [
            Open(log.tp, *transaction[:3])
            for log in self._node.logs.logs()
            if not log.offline
            for transaction in log.producers.open_transactions()
        ]

    async def _proved(self, opened: Collection[Open]) -> list[Open]:
        """Those for which 1 to 3 hold at this moment: until the caller awaits something, they do not change."""
        if not opened:
            return []
        before = {found: self._written(found) for found in opened}
        try:
            held = await self._held_by_others(opened)
        except NoAnswer as error:
            logger.info("whether transactions hang is not known now: %s", error)
            return []
        if held is None:
            return []
        held |= set(self._node.transactions.ids.owned())
        return [
            found
            for found in opened
            if (found.producer_id, found.tp) not in held
            and before[found] is not None
            and self._written(found) == before[found]
        ]

    def _written(self, found: Open) -> ProducerEntry | None:
        """What the producer has written; None if this transaction is not open here any more."""
        log = self._node.partition(found.tp)
        if log is None or (log.commits_remotely and log.high_watermark < log.log_end_offset):
            return None  # what waits for a commit has no place yet
        entry = log.producers.get(found.producer_id)
        if entry is None or (entry.epoch, entry.txn_first_offset) != (found.producer_epoch, found.first_offset):
            return None
        return entry

    async def _held_by_others(self, opened: Collection[Open]) -> Held | None:
        """What the coordinators of other brokers will end; None while this broker's own have not loaded all.

        Raises NoAnswer.
        """
        node, place, transactions = self._node, self._node.place, self._node.transactions
        if not transactions.is_running:
            return None
        if transactions.ids.knows_everything:
            return set()
        others = OtherCoordinators(place, node.metadata, transactions.runtime.count)
        owners = await others.owners()
        held = await others.held(owners)
        if await others.owners() != owners:
            raise NoAnswer("coordinators have moved while they were asked")
        # Markers that were committed before the answers.
        logs = {found.tp: node.partition(found.tp) for found in opened}
        if not await place.read_markers([log for log in logs.values() if log is not None]):
            raise NoAnswer("the markers of other brokers cannot be read")
        own = {number for number, owner in owners.items() if owner.leader == place.node_id}
        return held if transactions.ids.knows(own) else None

    async def _coordinator_state(self, found: Open) -> str:
        """What the coordinator knows of the producer id; for the report, not for the proof."""
        transactions = self._node.transactions
        for name in await transactions.ids.of_producer(found.producer_id):
            state = transactions.ids.state_of(name)
            return f"{name!r} has this producer id, is in {state.name} and does not have this partition"
        return "no transactional id has this producer id"

    async def _abort(self, hanging: Hanging) -> None:
        found = hanging.open
        if found not in await self._proved([found]):
            return  # it changed while others were checked: the next check starts again
        entry = self._written(found)
        assert entry is not None, "it was proved at this moment"
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
