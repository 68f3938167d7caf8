"""All transactional ids of this broker: decisions on them, and the state beside their records."""

from collections.abc import Callable, Collection, Iterator
from typing import TypeAlias

from fencepost.coordinator.ports import Clock, LogWriteFailed, Ticket
from fencepost.coordinator.runtime.runtime import CoordinatorRuntime
from fencepost.coordinator.runtime.shard import Shard
from fencepost.coordinator.txn import expiry, machine
from fencepost.coordinator.txn.commands import Command, Complete, TxnDecision, WriteMarkers
from fencepost.coordinator.txn.config import TxnConfig
from fencepost.coordinator.txn.shard_state import TxnShardState
from fencepost.coordinator.txn.state import (
    DEAD,
    PHASES,
    CompleteAbort,
    CompleteCommit,
    Completed,
    Dead,
    Ongoing,
    TxnRecord,
    TxnState,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

TxnShard: TypeAlias = Shard[TxnShardState, TxnRecord]
TxnRuntime: TypeAlias = CoordinatorRuntime[TxnShardState, TxnRecord, str]

EXPIRY_BATCH = 500


class TxnStore:
    """The whole state of the coordinator. No method waits, so no other task runs in between.

    `ended` is called for each complete transaction, with its follow-up and the new state of its id. The runtime's
    timers are keyed by transactional id: each is the time at which to abort an open transaction (row T10).
    """

    def __init__(
        self, runtime: TxnRuntime, clock: Clock, config: TxnConfig, ended: Callable[[WriteMarkers, Completed], None]
    ) -> None:
        self.config = config
        self.runtime = runtime
        self._clock = clock
        self._ended = ended
        self._marked: list[WriteMarkers] = []
        """Transactions that have all their markers; every read of the state calls `complete` first."""
        self._behind: dict[TxnShard, None] = {}
        """Shards with Complete records that are not appended yet."""
        self._unsettled: dict[str, Ticket] = {}
        """Ids whose newest partitions may not be durable yet, with the ticket of their append."""

    # Finding

    def __len__(self) -> int:
        return sum(len(shard.state) for shard in self.runtime.shards())

    def partition_for(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` that holds an id (row T1)."""
        return self.runtime.partition_for(transactional_id)

    def refusal(self, transactional_id: str) -> ErrorCode:
        """The error of every request for this id while its shard is not active; else NONE."""
        return self.runtime.refusal(transactional_id)

    def shard_of(self, transactional_id: str) -> TxnShard:
        """The shard of an id, made on first use."""
        if self._marked:
            self.complete()
        return self.runtime.shard_of(transactional_id)

    def shards(self) -> list[TxnShard]:
        """Every shard, active or not."""
        self.complete()
        return self.runtime.shards()

    def state_of(self, transactional_id: str) -> TxnState:
        """The state of an id; DEAD if it is unknown."""
        if self._marked:
            self.complete()
        shard = self.runtime.find(transactional_id)
        return DEAD if shard is None else shard.state.state_of(transactional_id)

    # Deciding

    def decide(self, transactional_id: str, command: Command) -> tuple[TxnDecision, Ticket]:
        """Decide, append and apply; return the decision, and the ticket that must be durable before its reply leaves.

        Raises LogWriteFailed; nothing has changed then.
        """
        if self._marked:
            self.complete()
        shard, now_ms = self.runtime.shard_of(transactional_id), self._clock.now_ms()
        state = shard.state.state_of(transactional_id)
        decision = machine.decide(transactional_id, state, command, now_ms, self.config.transaction_version)
        ticket = shard.write(decision.log) if decision.log else shard.log.newest
        for record in decision.log:
            self._watch(transactional_id, record.state)
            if isinstance(record.state, Ongoing):
                self._unsettled[transactional_id] = ticket
            else:
                self._unsettled.pop(transactional_id, None)
        return decision, ticket

    def marked(self, follow_up: WriteMarkers) -> None:
        """Every partition has its marker: from now on every reader of the state sees the transaction as complete.

        `catch_up` appends its Complete record, or it shares a batch with the log's next record. Until then the Prepare
        record is enough: after a crash the coordinator writes the markers again and completes the transaction again.
        """
        self._marked.append(follow_up)

    def complete(self) -> None:
        """Apply the Complete records of all marked transactions. Every read of the state calls this first."""
        marked, self._marked = self._marked, []
        for follow_up in marked:
            name = follow_up.transactional_id
            shard, version = self.runtime.shard_of(name), self.config.transaction_version
            if shard.refusal:
                continue  # unloaded since; from the Prepare record the next load completes it
            state = shard.state.state_of(name)
            [record] = machine.decide(name, state, Complete(), self._clock.now_ms(), version).log
            assert isinstance(record.state, CompleteCommit | CompleteAbort)
            shard.note(record)
            self._behind[shard] = None
            self._ended(follow_up, record.state)

    def catch_up(self) -> None:
        """Append the records of all complete transactions. Raises LogWriteFailed; the next call appends the rest."""
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

    def is_ongoing_with(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Collection[TopicPartition]
    ) -> bool:
        """Whether exactly this identity has an open transaction with all `partitions`, durably, that may be written."""
        if self._marked:
            self.complete()
        shard = self.runtime.find(transactional_id)
        state = None if shard is None else shard.state.open.get(transactional_id)
        return (
            state is not None
            and state.producer.producer_id == producer_id
            and state.producer.epoch == producer_epoch
            and state.partitions.issuperset(partitions)
            and not state.is_kept
            and transactional_id not in self._unsettled
        )

    def settle(self, transactional_id: str, ticket: Ticket) -> None:
        """Note that `ticket`, of a decision about this id, is durable, and so is every earlier append."""
        if self._unsettled and (waits := self._unsettled.get(transactional_id)) is not None:
            assert ticket.end_offset is not None, "a durable record has its offset"
            if waits.end_offset is not None and waits.end_offset <= ticket.end_offset:
                del self._unsettled[transactional_id]

    def loaded(self, shard: TxnShard) -> None:
        """Start the timers of a shard's open transactions."""
        for name, state in shard.state.open.items():
            self._watch(name, state)

    def unloading(self, shard: TxnShard) -> None:
        """Bring a shard's state up to date, and release the state kept beside it."""
        self.complete()
        self._behind.pop(shard, None)
        for name in [name for name in self._unsettled if self.runtime.find(name) is shard]:
            del self._unsettled[name]

    def _watch(self, transactional_id: str, state: TxnState) -> None:
        """Start the timer of an open transaction, or stop that of an ended one."""
        timers = self.runtime.timers
        if not isinstance(state, Ongoing):
            timers.stop(transactional_id)
        elif state.timeout_ms == expiry.NO_TIMEOUT_MS:
            timers.stop(transactional_id)  # it became part of a two-phase commit when it was kept
        elif transactional_id not in timers:
            delay_ms = expiry.due_in_ms(state, self._clock.now_ms())
            if delay_ms is not None:
                self.runtime.set_timer(transactional_id, delay_ms)

    def tombstones(self, shard: TxnShard) -> Iterator[list[TxnRecord]]:
        """The tombstones of the shard's expired ids, some hundred to a batch (row T12).

        Each batch is made when the caller asks for it, so an id that was used meanwhile stays.
        """
        now_ms = self._clock.now_ms()
        version = self.config.transaction_version
        expiration_ms = self.config.transactional_id_expiration_ms
        unused = list(expiry.unused_ids(shard.state.items(), now_ms, expiration_ms))
        for start in range(0, len(unused), EXPIRY_BATCH):
            batch = unused[start : start + EXPIRY_BATCH]
            decisions = [machine.decide(name, self.state_of(name), command, now_ms, version) for name, command in batch]
            records = [record for decision in decisions for record in decision.log]
            if records:
                yield records

    # Figures

    @property
    def counts(self) -> dict[str, int]:
        """How many ids are in each state, by Kafka's names."""
        self.complete()
        return {
            phase.name: sum(shard.state.count(phase) for shard in self.runtime.shards())
            for phase in PHASES
            if phase is not Dead
        }

    @property
    def oldest_open_started_ms(self) -> int | None:
        """When the oldest open transaction began, in ms since 1970; None when none is open."""
        open_states = (state for shard in self.runtime.shards() for state in shard.state.open.values())
        return min((state.started_ms for state in open_states), default=None)
