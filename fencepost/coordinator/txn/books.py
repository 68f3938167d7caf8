"""The ledgers of all partitions, and what the shell must know beside them: deadlines, and what is not yet durable."""

import logging
from collections.abc import Callable, Collection, Iterator

from fencepost.coordinator.partitioning import partition_for
from fencepost.coordinator.ports import Clock, CoordinatorLogs, KeyValue, LogUnreadable, LogWriteFailed
from fencepost.coordinator.runtime import LostLog, Shard
from fencepost.coordinator.txn import codec, expiry, ledger, machine
from fencepost.coordinator.txn.commands import Command, Complete, TxnDecision, WriteMarkers
from fencepost.coordinator.txn.config import TxnConfig
from fencepost.coordinator.txn.ledger import Ledger
from fencepost.coordinator.txn.state import (
    DEAD,
    PHASES,
    CompleteAbort,
    CompleteCommit,
    Completed,
    Dead,
    Ongoing,
    PrepareAbort,
    PrepareCommit,
    TxnRecord,
    TxnState,
)
from fencepost.protocol.topics import TopicPartition

TxnShard = Shard[Ledger, TxnRecord]

EXPIRY_BATCH = 500


logger = logging.getLogger(__name__)


class Books:
    """Everything the coordinator remembers. Nothing in here waits: no other task gets between.

    `ended` is told of each transaction that is complete, with the duty that it was and the state the id is in now.
    """

    def __init__(
        self, logs: CoordinatorLogs, clock: Clock, config: TxnConfig, ended: Callable[[WriteMarkers, Completed], None]
    ) -> None:
        self.config = config
        self.deadlines: dict[str, float] = {}
        """By id, when its open transaction is to be aborted, on the clock that no one can set back, in seconds."""
        self._logs = logs
        self._clock = clock
        self._shards: dict[int, TxnShard] = {}
        self._ended = ended
        self._marked: list[WriteMarkers] = []
        """What has all its markers; `complete` before anybody looks."""
        self._behind: dict[TxnShard, None] = {}
        """Shards that have something to append when there is time."""
        self._unsettled: dict[str, int] = {}
        """Ids whose newest partitions are not known to be durable, with the end offset that makes them so."""

    def load(self) -> None:
        """Rebuild every ledger from its log. One that can not be read is told of, and lost until it can be."""
        for partition in sorted(self._logs.existing()):
            try:
                shard = self._shard(partition)
                _replay(shard)
            except (codec.UnreadableRecord, LogUnreadable) as error:
                self._lose(partition, error)
                continue
            for name, state in shard.state.open.items():
                self._watch(name, state)

    def _lose(self, partition: int, error: Exception) -> None:
        logger.error(
            "__transaction_state-%d can not be replayed: its ids hear COORDINATOR_NOT_AVAILABLE and their transactions"
            " stay open until it is repaired, all others work: %s; see `fencepost verify`, restore the file from a"
            " backup and start again",
            partition,
            error,
        )
        log = LostLog(str(error))
        self._shards[partition] = Shard(log, self._clock, Ledger(), ledger.apply, self._encode)

    def is_lost(self, transactional_id: str) -> bool:
        """Whether the log that holds the id could not be replayed: its outcome must not be guessed."""
        shard = self._shards.get(self.partition_for(transactional_id))
        return shard is not None and shard.is_lost

    # Finding

    def __len__(self) -> int:
        return sum(len(shard.state) for shard in self._shards.values())

    def partition_for(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` that looks after an id (row T1)."""
        return partition_for(transactional_id, self._logs.count)

    def shard_of(self, transactional_id: str) -> TxnShard:
        """The shard of an id, made on first use."""
        self.complete()
        return self._shard(self.partition_for(transactional_id))

    def shards(self) -> list[TxnShard]:
        """Every shard there is."""
        self.complete()
        return list(self._shards.values())

    def state_of(self, transactional_id: str) -> TxnState:
        """What is known of an id."""
        if self._marked:
            self.complete()
        shard = self._shards.get(self.partition_for(transactional_id))
        return DEAD if shard is None else shard.state.state_of(transactional_id)

    def prepared(self) -> Iterator[tuple[TxnShard, str, PrepareCommit | PrepareAbort]]:
        """Every id whose transaction is decided and may still owe markers."""
        for shard in self.shards():
            for name, state in shard.state.prepared():
                yield shard, name, state

    def _shard(self, partition: int) -> TxnShard:
        shard = self._shards.get(partition)
        if shard is None:
            log = self._logs.log(partition)
            shard = self._shards[partition] = Shard(log, self._clock, Ledger(), ledger.apply, self._encode)
        return shard

    def _encode(self, record: TxnRecord) -> KeyValue:
        return codec.encode(record, self.config.transaction_version)

    # Deciding

    def decide(self, transactional_id: str, command: Command) -> tuple[TxnDecision, int]:
        """One decision, remembered; and the end offset that must be durable before its reply leaves.

        Raises LogWriteFailed; nothing has changed then.
        """
        if self._marked:
            self.complete()
        shard, version = self._shard(self.partition_for(transactional_id)), self.config.transaction_version
        state, now_ms = shard.state.state_of(transactional_id), self._clock.now_ms()
        decision = machine.decide(transactional_id, state, command, now_ms, version)
        end_offset = shard.write(decision.log) if decision.log else shard.log.end_offset
        for record in decision.log:
            self._watch(transactional_id, record.state)
            if isinstance(record.state, Ongoing):
                self._unsettled[transactional_id] = end_offset
            else:
                self._unsettled.pop(transactional_id, None)
        return decision, end_offset

    def marked(self, duty: WriteMarkers) -> None:
        """Every partition has its marker: for whoever looks from here on, the transaction is complete.

        The record of it is appended by `catch_up`, or before the next one of its log. Until then the Prepare record
        says as much: after a crash the markers are written once more, and it is complete again.
        """
        self._marked.append(duty)

    def complete(self) -> None:
        """Bring the state up to what has its markers. No one sees when that is done: nobody looks without it."""
        marked, self._marked = self._marked, []
        for duty in marked:
            name = duty.transactional_id
            shard, version = self._shard(self.partition_for(name)), self.config.transaction_version
            state = shard.state.state_of(name)
            [record] = machine.decide(name, state, Complete(), self._clock.now_ms(), version).log
            assert isinstance(record.state, CompleteCommit | CompleteAbort)
            shard.note(record)
            self._behind[shard] = None
            self._ended(duty, record.state)

    def catch_up(self) -> None:
        """Append the records of all that is complete. Raises LogWriteFailed; what a log lacks comes next time."""
        self.complete()
        failure: LogWriteFailed | None = None
        for shard in tuple(self._behind):
            try:
                shard.catch_up()
            except LogWriteFailed as error:
                failure = error
            else:
                del self._behind[shard]
        if failure is not None:
            raise failure

    def is_settled(self, transactional_id: str, end_offset: int) -> bool:
        """Whether the log of the id is durable below `end_offset`."""
        return self._shard(self.partition_for(transactional_id)).is_settled(end_offset)

    def settle(self, transactional_id: str, end_offset: int) -> None:
        """Everything of this id below `end_offset` is durable."""
        if self._unsettled.get(transactional_id, end_offset + 1) <= end_offset:
            del self._unsettled[transactional_id]

    def is_ongoing_with(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Collection[TopicPartition]
    ) -> bool:
        """Whether the open transaction of this very identity has all `partitions`, durably, and takes more records."""
        if self._marked:
            self.complete()
        shard = self._shards.get(self.partition_for(transactional_id))
        state = None if shard is None else shard.state.open.get(transactional_id)
        return (
            state is not None
            and state.producer.producer_id == producer_id
            and state.producer.epoch == producer_epoch
            and state.partitions.issuperset(partitions)
            and not state.is_kept
            and transactional_id not in self._unsettled
        )

    def has_room_for(self, transactional_id: str) -> bool:
        """Whether the id is known, or may become so."""
        return len(self) < self.config.max_transactional_ids or not isinstance(self.state_of(transactional_id), Dead)

    def may_join(self, transactional_id: str, partitions: frozenset[TopicPartition]) -> bool:
        """Whether the transaction stays within its number of partitions."""
        state = self.state_of(transactional_id)
        joined = state.partitions | partitions if isinstance(state, Ongoing) else partitions
        return len(joined) <= self.config.max_partitions_per_transaction

    def _watch(self, transactional_id: str, state: TxnState) -> None:
        """Keep the deadline of an open transaction."""
        if not isinstance(state, Ongoing):
            self.deadlines.pop(transactional_id, None)
        elif state.timeout_ms == expiry.NO_TIMEOUT_MS:
            self.deadlines.pop(transactional_id, None)  # it became part of a two-phase commit when it was kept
        elif transactional_id not in self.deadlines:
            seconds = expiry.due_in_seconds(state, self._clock.now_ms())
            if seconds is not None:
                self.deadlines[transactional_id] = self._clock.monotonic() + seconds

    def late(self) -> list[str]:
        """The ids whose open transaction has outlived its timeout (row T10)."""
        return expiry.late(self.deadlines, self._clock.monotonic())

    def tombstones(self, shard: TxnShard) -> Iterator[list[TxnRecord]]:
        """What makes the shard forget its unused ids, some hundred to a batch (row T12).

        Each batch is made when it is asked for, so an id that came into use meanwhile is left alone.
        """
        now_ms = self._clock.now_ms()
        version = self.config.transaction_version
        expiration_ms = self.config.transactional_id_expiration_ms
        unused = list(expiry.forgettable(shard.state.items(), now_ms, expiration_ms))
        for start in range(0, len(unused), EXPIRY_BATCH):
            batch = unused[start : start + EXPIRY_BATCH]
            decisions = [machine.decide(name, self.state_of(name), command, now_ms, version) for name, command in batch]
            yield [record for decision in decisions for record in decision.log]

    # Facts

    @property
    def counts(self) -> dict[str, int]:
        """How many ids are in each state, by Kafka's names."""
        self.complete()
        return {
            phase.name: sum(shard.state.count(phase) for shard in self._shards.values())
            for phase in PHASES
            if phase is not Dead
        }

    @property
    def oldest_open_started_ms(self) -> int | None:
        """When the oldest open transaction began, in ms since 1970; None when none is open."""
        open_states = (state for shard in self._shards.values() for state in shard.state.open.values())
        return min((state.started_ms for state in open_states), default=None)


def _replay(shard: TxnShard) -> None:
    """Fold the log into the shard's ledger. Raises codec.UnreadableRecord and LogUnreadable, half way."""
    for batch in shard.log.replay():
        for key, value in batch.records:
            record = codec.decode(key, value)
            if record is not None:
                shard.state.put(record)
