"""All transactional ids of this broker: deciding on them, and what must be known beside their records."""

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
    """Everything the coordinator remembers. Nothing in here waits: no other task gets between.

    `ended` is called for each transaction that is complete, with its duty and the state of the id now. The timers of
    the runtime are keyed by transactional id, and say when an open transaction is to be aborted (row T10).
    """

    def __init__(
        self, runtime: TxnRuntime, clock: Clock, config: TxnConfig, ended: Callable[[WriteMarkers, Completed], None]
    ) -> None:
        self.config = config
        self.runtime = runtime
        self._clock = clock
        self._ended = ended
        self._marked: list[WriteMarkers] = []
        """What has all its markers; `complete` before anybody looks."""
        self._behind: dict[TxnShard, None] = {}
        """Shards that have something to append when there is time."""
        self._unsettled: dict[str, Ticket] = {}
        """Ids whose newest partitions are not known to be durable, with the ticket that makes them so."""

    # Finding

    def __len__(self) -> int:
        return sum(len(shard.state) for shard in self.runtime.shards())

    def partition_for(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` that looks after an id (row T1)."""
        return self.runtime.partition_for(transactional_id)

    def refusal(self, transactional_id: str) -> ErrorCode:
        """What every request for this id hears now, because its shard is not active; else NONE."""
        return self.runtime.refusal(transactional_id)

    def shard_of(self, transactional_id: str) -> TxnShard:
        """The shard of an id, made on first use."""
        if self._marked:
            self.complete()
        return self.runtime.shard_of(transactional_id)

    def shards(self) -> list[TxnShard]:
        """Every shard there is."""
        self.complete()
        return self.runtime.shards()

    def state_of(self, transactional_id: str) -> TxnState:
        """What is known of an id."""
        if self._marked:
            self.complete()
        shard = self.runtime.find(transactional_id)
        return DEAD if shard is None else shard.state.state_of(transactional_id)

    # Deciding

    def decide(self, transactional_id: str, command: Command) -> tuple[TxnDecision, Ticket]:
        """One decision, remembered; and the ticket that must be durable before its reply leaves.

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

    def marked(self, duty: WriteMarkers) -> None:
        """Every partition has its marker: for whoever looks from here on, the transaction is complete.

        The record of it is appended by `catch_up`, or in one batch with the next one of its log. Until then the Prepare
        record says as much: after a crash the markers are written once more, and it is complete again.
        """
        self._marked.append(duty)

    def complete(self) -> None:
        """Bring the state up to what has its markers. No one sees when that is done: nobody looks without it."""
        marked, self._marked = self._marked, []
        for duty in marked:
            name = duty.transactional_id
            shard, version = self.runtime.shard_of(name), self.config.transaction_version
            if shard.refusal:
                continue  # unloaded since; the Prepare record says the same to whoever loads it next
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

    def is_ongoing_with(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Collection[TopicPartition]
    ) -> bool:
        """Whether the open transaction of this very identity has all `partitions`, durably, and takes more records."""
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
        """`ticket`, of a decision about this id, is durable, and so is all that came before it."""
        if self._unsettled and (waits := self._unsettled.get(transactional_id)) is not None:
            assert ticket.end_offset is not None, "a durable record has its offset"
            if waits.end_offset is not None and waits.end_offset <= ticket.end_offset:
                del self._unsettled[transactional_id]

    def has_room_for(self, transactional_id: str) -> bool:
        """Whether the id is known, or may become so."""
        return len(self) < self.config.max_transactional_ids or not isinstance(self.state_of(transactional_id), Dead)

    def may_join(self, transactional_id: str, partitions: frozenset[TopicPartition]) -> bool:
        """Whether the transaction stays within its number of partitions."""
        state = self.state_of(transactional_id)
        joined = state.partitions | partitions if isinstance(state, Ongoing) else partitions
        return len(joined) <= self.config.max_partitions_per_transaction

    def loaded(self, shard: TxnShard) -> None:
        """Start the timers of a shard's open transactions."""
        for name, state in shard.state.open.items():
            self._watch(name, state)

    def unloading(self, shard: TxnShard) -> None:
        """Bring a shard's state up to date, and let go of what is known beside it."""
        self.complete()
        self._behind.pop(shard, None)
        for name in [name for name in self._unsettled if self.runtime.find(name) is shard]:
            del self._unsettled[name]

    def _watch(self, transactional_id: str, state: TxnState) -> None:
        """Keep the timer of an open transaction."""
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
            records = [record for decision in decisions for record in decision.log]
            if records:
                yield records

    # Facts

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
