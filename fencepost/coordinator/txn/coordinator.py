"""The transaction coordinator: it serves requests, writes markers, and aborts or expires by timers."""

import logging
from collections.abc import Collection
from dataclasses import replace

import trio

from fencepost.coordinator.partitioning import partition_for
from fencepost.coordinator.ports import (
    Clock,
    CoordinatorLogs,
    LogWriteFailed,
    MarkerWriter,
    ProducerIdSource,
    RemoteCoordinators,
    TopicView,
)
from fencepost.coordinator.runtime.runtime import CoordinatorRuntime
from fencepost.coordinator.txn import commands, expiry, listing, wire_codes
from fencepost.coordinator.txn.bounds import TxnBounds
from fencepost.coordinator.txn.causes import Caller
from fencepost.coordinator.txn.commands import Answer, Waiting, resolve
from fencepost.coordinator.txn.completion import Completion
from fencepost.coordinator.txn.config import TxnConfig
from fencepost.coordinator.txn.deciding import Decisions
from fencepost.coordinator.txn.fencing_history import FencingHistory
from fencepost.coordinator.txn.ids import TransactionalIds, TxnRuntime, TxnShard
from fencepost.coordinator.txn.shard_state import TxnRecords
from fencepost.coordinator.txn.state import Ongoing
from fencepost.coordinator.txn.taken_ids import expire_idle_ids, take_ids
from fencepost.coordinator.txn.tallies import Tallies
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import GROUP_TOPIC, TRANSACTION_TOPIC, TopicPartition

logger = logging.getLogger(__name__)

MAX_CHECK_INTERVAL_MS = 500
"""No transaction exceeds its timeout by more than this and the time its markers take."""
MAX_ENSURE_ROUNDS = 16


class TransactionCoordinator:
    """All partitions of `__transaction_state`. One instance serves every request that concerns transactions.

    Correctness rests on this order: the Prepare record is durable, then the markers are written and durable, then the
    waiting requests continue. Markers that prove the decision may be durable before the record: a load looks for them
    first (`Doubts`). The Complete record is appended when all are durable, and before any later record of its log.
    Requests that find a transaction in Prepare wait for its completion and are decided again. So clients of one node do
    not receive CONCURRENT_TRANSACTIONS (table 0, row 12).
    """

    def __init__(
        self,
        *,
        logs: CoordinatorLogs,
        markers: MarkerWriter,
        producer_ids: ProducerIdSource,
        topics: TopicView,
        clock: Clock,
        config: TxnConfig | None = None,
        others: RemoteCoordinators | None = None,
    ) -> None:
        """`others`: the coordinators of other brokers; None if this broker is alone."""
        self.config = config = replace(config or TxnConfig())
        """The current settings; `change_to` changes them at run time."""
        self.runtime: TxnRuntime = CoordinatorRuntime(
            TRANSACTION_TOPIC, logs, clock, TxnRecords(config), self, self._timer_interval_s
        )
        """Loads and unloads the partitions; its timers, by transactional id, abort open transactions (row T10)."""
        self.ids = TransactionalIds(self.runtime)
        """Read access to the states."""
        self.tallies = Tallies()
        """How transactions ended."""
        self.markers = markers
        self._bounds = TxnBounds(self.ids, clock, config)
        self.history = FencingHistory(clock)
        """Why requests were refused, and which clients took which identities."""
        self._completion = Completion(markers, clock, config, self.history, self.tallies)
        self._decisions = Decisions(self.runtime, self._completion, self.history, producer_ids, clock, config)
        self._producer_ids = producer_ids
        self._topics = topics
        self._others = others
        self._clock = clock
        self.submit = self._decisions.submit
        """The answer to a command; for EndTxn (row T7) it is durable and, on one node, visible before the answer."""
        self.is_ongoing_with = self._decisions.is_ongoing_with
        """Produce's fast path: whether a transaction is open and may be written, durably."""

    @property
    def is_running(self) -> bool:
        """Whether its logs are loaded and it serves requests."""
        return self._completion.nursery is not None

    @property
    def completing(self) -> int:
        """How many decided transactions still lack markers."""
        return len(self._completion)

    # Start and run

    async def start(self) -> None:
        """Load every partition that has a log; transactions whose log cannot be read stay as they are."""
        await self.runtime.load_all()
        logger.info("transactions loaded ids=%d open=%d", len(self.ids), len(self.runtime.timers))

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Finish what a crash left undone, then watch timeouts and expiry until cancelled.

        Requests are served only while this runs; before, the answer is COORDINATOR_LOAD_IN_PROGRESS.
        """
        async with trio.open_nursery() as nursery:
            self._completion.nursery = nursery
            try:
                for shard in self.runtime.shards():
                    self._resume(nursery, shard)
                nursery.start_soon(self._completion.append_completed)
                nursery.start_soon(self.runtime.serve)
                nursery.start_soon(expire_idle_ids, self.runtime, self._clock, self.config, self.history)
                task_status.started()
                await trio.sleep_forever()
            finally:
                self._completion.nursery = None

    def loaded(self, shard: TxnShard) -> None:
        """Start the timers of a shard, and write the markers that its transactions lack."""
        for name, state in shard.state.open.items():
            self._decisions.watch(name, state)
        if self._completion.nursery is not None:
            self._resume(self._completion.nursery, shard)

    def _resume(self, nursery: trio.Nursery, shard: TxnShard) -> None:
        for name, state in shard.state.prepared():
            logger.info("transactional id %r: writing the markers of its %s again", name, state.name)
            self.history.decided_before(name)
            self._completion.resume(shard, name, state)
        self._decisions.doubts.resume(nursery, shard)
        if self._others is not None and self._others.lost_some(shard.partition):
            take_ids(self.submit, nursery, shard)

    @property
    def is_decided(self) -> bool:
        """Whether all logs were read, and no outcome is in doubt: then no marker knows more than this coordinator."""
        known = (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR)
        return not self._decisions.doubts and all(shard.refusal in known for shard in self.runtime.shards())

    def look_for_markers(self) -> None:
        """Decide open transactions whose outcome was in doubt after a load, as far as logs can be read now."""
        self._decisions.doubts.look()

    def unloading(self, shard: TxnShard, code: ErrorCode) -> None:
        """Write no more markers for a shard's ids. Requests that wait for them are decided again, and get `code`."""
        self._completion.stop(shard)
        self._decisions.forget(shard)

    def id_of(self, timer: str) -> str:
        """Timers are keyed by transactional id."""
        return timer

    def _timer_interval_s(self) -> float:
        return min(self.config.timeout_check_interval_ms, MAX_CHECK_INTERVAL_MS) / 1000

    # Verbs of clients

    async def init_producer_id(
        self,
        transactional_id: str | None,
        timeout_ms: int,
        producer_id: int = -1,
        producer_epoch: int = -1,
        *,
        enable_2pc: bool = False,
        keep_prepared: bool = False,
        caller: Caller | None = None,
    ) -> Answer:
        """InitProducerId (rows P1, T2): the identity that may write from now on; all others of the id are fenced.

        An open transaction is aborted, with its markers, before the answer; with `keep_prepared` it is handed over
        instead (row T23). With `enable_2pc` the id's transactions have no timeout; `timeout_ms` is ignored (T22).
        """
        if (producer_id == -1) != (producer_epoch == -1) or transactional_id == "":
            return Answer(ErrorCode.INVALID_REQUEST)
        if transactional_id is None:
            if not self._bounds.may_take_producer_id(caller):
                return Answer(ErrorCode.POLICY_VIOLATION)
            return Answer(ErrorCode.NONE, await self._producer_ids.next_producer_id(), 0)
        if enable_2pc and not self.config.transaction_two_phase_commit_enable:
            return Answer(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not enable_2pc and not 0 < timeout_ms <= self.config.transaction_max_timeout_ms:
            return Answer(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        if not self._bounds.may_hold(transactional_id, caller):
            return Answer(ErrorCode.POLICY_VIOLATION)
        expected = None if producer_id == -1 else (producer_id, producer_epoch)
        granted_ms = expiry.NO_TIMEOUT_MS if enable_2pc else timeout_ms
        command = commands.InitProducerId(granted_ms, expected, keep_prepared=keep_prepared)
        return await resolve(self.submit(transactional_id, command, caller))

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        client_version: int = 0,
        verify_only: bool = False,
        caller: Caller | None = None,
    ) -> dict[TopicPartition, ErrorCode]:
        """AddPartitionsToTxn (rows T3, T15): all partitions join, or none does; returns the error of each."""
        wanted = frozenset(partitions)
        if refused := self.refused(wanted):
            return refused
        soon = self.joining(transactional_id, producer_id, producer_epoch, wanted, client_version, verify_only, caller)
        return wire_codes.by_partition(wanted, await resolve(soon))

    def joining(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: frozenset[TopicPartition],
        client_version: int,
        verify_only: bool,
        caller: Caller | None,
    ) -> Answer | Waiting:
        """As `add_partitions`, for partitions that exist."""
        if not verify_only:
            return self.adding(transactional_id, producer_id, producer_epoch, partitions, client_version, caller)
        command = commands.VerifyPartitions(producer_id, producer_epoch, partitions)
        return self.submit(transactional_id, command, caller)

    def refused(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """The error of each partition if the cluster lacks any: then none may join (row T3). Empty if all exist."""
        exists = self._topics.exists
        if all(map(exists, partitions)):
            return {}
        missing, others = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
        return {partition: others if exists(partition) else missing for partition in partitions}

    async def add_offsets(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        group_id: str,
        *,
        caller: Caller | None = None,
    ) -> ErrorCode:
        """AddOffsetsToTxn (row T4): the group's partition of `__consumer_offsets` joins the transaction."""
        partition = partition_for(group_id, self.config.offsets_topic_num_partitions)
        wanted = frozenset({TopicPartition(GROUP_TOPIC, partition)})
        return (await resolve(self.adding(transactional_id, producer_id, producer_epoch, wanted, 0, caller))).error

    def adding(
        self,
        transactional_id: str | None,
        producer_id: int,
        producer_epoch: int,
        partitions: frozenset[TopicPartition],
        client_version: int,
        caller: Caller | None,
    ) -> Answer | Waiting:
        """Add existing partitions to the transaction, all of them or none (rows T3, T4, T16)."""
        if transactional_id and not self._bounds.may_join(transactional_id, partitions, caller):
            return Answer(ErrorCode.POLICY_VIOLATION)
        command = commands.AddPartitions(producer_id, producer_epoch, partitions, client_version)
        return self.submit(transactional_id, command, caller)

    # Verbs of the broker

    async def ensure_partitions(
        self,
        transactional_id: str | None,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        add: bool,
        *,
        knows_abortable: bool | None = None,
        caller: Caller | None = None,
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether a transactional write may go to `partitions`; with `add` (TV2) they join the transaction first.

        The codes are those of Produce and TxnOffsetCommit. `knows_abortable`: whether the request's version knows
        TRANSACTION_ABORTABLE (Produce v11 and later); by default the value of `add`.

        If the answer is NONE, no other task has run between the check and the return. If the caller appends before the
        next checkpoint, no EndTxn can come between: the purpose of Kafka's VerificationGuard (row T16). If the id is
        `remote`, only the partition's guard knows whether the transaction has ended meanwhile.
        """
        wanted = frozenset(partitions)
        if not add and not self.config.transaction_partition_verification_enable:
            return dict.fromkeys(wanted, ErrorCode.NONE)
        if transactional_id and self._others is not None and self.is_remote(transactional_id):
            codes = await self._others.ensure(transactional_id, producer_id, producer_epoch, wanted, add)
        else:
            answer = await self._ensure(transactional_id, producer_id, producer_epoch, wanted, add, caller)
            codes = wire_codes.by_partition(wanted, answer)
        if not any(codes.values()):
            return codes
        knows = add if knows_abortable is None else knows_abortable
        return {
            partition: wire_codes.visible_to_producer(error, adds=add, knows_abortable=knows)
            for partition, error in codes.items()
        }

    async def _ensure(
        self,
        transactional_id: str | None,
        producer_id: int,
        producer_epoch: int,
        partitions: frozenset[TopicPartition],
        add: bool,
        caller: Caller | None,
    ) -> Answer:
        """Add or verify until it holds now: another task may end the transaction while the log becomes durable."""
        for _ in range(MAX_ENSURE_ROUNDS):
            if transactional_id and self.is_ongoing_with(transactional_id, producer_id, producer_epoch, partitions):
                return Answer()
            if add:
                soon = self.adding(transactional_id, producer_id, producer_epoch, partitions, 2, caller)
            else:
                command = commands.VerifyPartitions(producer_id, producer_epoch, partitions)
                soon = self.submit(transactional_id, command, caller)
            answer = await resolve(soon)
            if answer.error or answer.missing:
                return answer
        return Answer(ErrorCode.CONCURRENT_TRANSACTIONS)

    def is_remote(self, transactional_id: str) -> bool:
        """Whether another broker coordinates this id."""
        return self._others is not None and self._others.coordinates(transactional_id)

    # Verbs of tools

    async def list_transactions(self, filters: listing.Filters) -> listing.Listing:
        """ListTransactions (row T18): the durable transactions that pass all filters."""
        if self._completion.nursery is None:
            return listing.Listing(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        whole = listing.select((), filters, 0)
        found: list[listing.Listed] = []
        for shard in self.runtime.shards() if whole.error is ErrorCode.NONE else ():
            lines = listing.select(shard.state.items(), filters, self._clock.now_ms()).transactions
            found += () if await shard.settled(shard.log.newest) else lines
            await trio.lowlevel.checkpoint()
        return whole._replace(transactions=tuple(sorted(found, key=lambda line: line.transactional_id)))

    async def describe(self, transactional_id: str) -> listing.Description:
        """DescribeTransactions for one id (row T19)."""
        if not transactional_id:
            return listing.Description(transactional_id, ErrorCode.INVALID_REQUEST)
        if self._completion.nursery is None:
            return listing.Description(transactional_id, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        shard = self.runtime.find(transactional_id)
        if shard is not None and shard.refusal:
            return listing.Description(transactional_id, shard.refusal)
        state = self.ids.state_of(transactional_id)
        described = listing.describe(transactional_id, state, self._completion.pending(transactional_id))
        if described.error is not ErrorCode.NONE or shard is None:
            return described
        refused = await shard.settled(shard.log.newest)
        return listing.Description(transactional_id, refused) if refused else described

    # Timers

    async def expire(self, timer: str) -> None:
        """Abort one transaction that exceeded its timeout (row T10). If its log refuses, the timer starts again."""
        state = self.ids.state_of(timer)
        if not isinstance(state, Ongoing):
            return
        if timer in self._decisions.doubts:
            self.runtime.set_timer(timer, self.config.timeout_check_interval_ms)
            return
        try:
            aborted = await self._decisions.time_out(timer, expiry.time_out(state, None))
        except LogWriteFailed as error:
            logger.warning("transactional id %r: abort by timeout failed, it is retried: %s", timer, error)
            self.runtime.set_timer(timer, self.config.timeout_check_interval_ms)
            return
        if aborted:
            logger.warning("transactional id %r: aborted after its timeout of %d ms", timer, state.timeout_ms)
