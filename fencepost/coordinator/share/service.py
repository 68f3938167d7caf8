"""The share coordinator: the states of share partitions, in the partitions of `__share_group_state`."""

import logging
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeAlias, TypeVar

import trio

from fencepost.coordinator.decision import Decision
from fencepost.coordinator.metadata.commands import CreatedTopic, NewTopic
from fencepost.coordinator.ports import (
    Clock,
    CoordinatorLogs,
    LogWriteFailed,
    ProducerTag,
    Ticket,
    TopicView,
    coordinator_error,
)
from fencepost.coordinator.runtime.runtime import CoordinatorRuntime
from fencepost.coordinator.runtime.shard import Shard
from fencepost.coordinator.share import decisions
from fencepost.coordinator.share.config import ShareStateConfig, state_topic
from fencepost.coordinator.share.decisions import Decided
from fencepost.coordinator.share.key_text import key_text
from fencepost.coordinator.share.records import Removed, ShareRecord, Snapshot
from fencepost.coordinator.share.state import ShareRecords, ShareShardState
from fencepost.coordinator.share.tallies import Tallies
from fencepost.coordinator.share.values import (
    InitialState,
    Outcome,
    ShareKey,
    StateSummary,
    StateUpdate,
    StoredState,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import SHARE_STATE_TOPIC

logger = logging.getLogger(__name__)

KEYS_AT_ONCE = 200
"""How many share partitions are decided on before other tasks may run."""
UPDATES_SPARE = 100
"""How many updates a snapshot may be late, besides twice the usual number."""
TOMBSTONES_MAX = 1_000
"""The most tombstones of one batch."""

ReplyT = TypeVar("ReplyT")
AskedT = TypeVar("AskedT")
Decide: TypeAlias = Callable[[ShareKey, AskedT, ShareShardState, int], Decided[ReplyT]]
"""From the share partition, what is asked of it, the state and the time (ms)."""
Failed: TypeAlias = Callable[[ErrorCode, str | None], ReplyT]
ShareShard: TypeAlias = Shard[ShareShardState, ShareRecord]


class Topics(TopicView, Protocol):
    """The cluster's topics, to which the share coordinator adds its own."""

    async def create_topics(self, topics: Sequence[NewTopic]) -> list[CreatedTopic]:
        """Create topics; returns when that is durable."""


class ShareStates:
    """All partitions of `__share_group_state`: a `SharePersister`. Call `start` first, and keep `run` running.

    The topic is created at the first request, as in Kafka. Before `start` every answer is COORDINATOR_NOT_AVAILABLE.
    """

    def __init__(
        self,
        config: ShareStateConfig,
        logs: CoordinatorLogs,
        topics: Topics,
        clock: Clock,
        *,
        has_guests: bool = False,
    ) -> None:
        """`has_guests`: other brokers write markers to the logs, which may come before records that wait there."""
        self.config = config
        self._has_guests = has_guests
        self._updates = config.share_coordinator_snapshot_update_records_per_snapshot
        self.runtime: CoordinatorRuntime[ShareShardState, ShareRecord, str] = CoordinatorRuntime(
            SHARE_STATE_TOPIC, logs, clock, ShareRecords(self._updates), self
        )
        self._topics = topics
        self._clock = clock
        self.tallies = Tallies()
        self._is_started = self._forgets_deleted = False
        self._decided: dict[tuple[int, int], list[ShareKey]] = {}
        """By partition and producer id: what transactions acknowledged whose markers are not durable yet."""
        self.ended: Callable[[ShareKey, int, bool], None] = lambda key, producer_id, commit: None
        """Called for each share partition of which a transaction that ended (producer id, whether it committed)
        acknowledged records."""
        self.replaced: Callable[[ShareKey], None] = lambda key: None
        """Called when a share partition is begun anew or deleted: what its leader knows counts no more."""

    # Start and run

    async def start(self, *, forget_deleted_topics: bool) -> None:
        """Load every partition that has a log; those of an unreadable one answer COORDINATOR_NOT_AVAILABLE.

        `forget_deleted_topics`: the broker may have crashed between the deletion of a topic and `forget_topics`.
        """
        self._forgets_deleted = forget_deleted_topics
        self._is_started = True
        if SHARE_STATE_TOPIC in self._topics.image.topics_by_name and (problem := await self.problem()) is not None:
            logger.error("share groups cannot be used: %s", problem)
            return
        await self.runtime.load_all()
        logger.info("share states loaded share_partitions=%d", len(self))

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load superseded partitions again, until cancelled."""
        task_status.started()
        await self.runtime.serve()

    def loaded(self, shard: ShareShard) -> None:
        """Forget what belongs to topics that were deleted meanwhile."""
        if self._forgets_deleted:
            self._forget(shard, lambda topic_id: self._topics.topic_name(topic_id) is None)

    def unloading(self, shard: ShareShard, code: ErrorCode) -> None:
        """Nothing: no request waits here, except for tickets."""

    def id_of(self, timer: str) -> str:
        return timer

    async def expire(self, timer: str) -> None:
        """Nothing: no timer is set."""

    def __len__(self) -> int:
        return sum(len(shard.state.shares) for shard in self.runtime.shards())

    async def problem(self) -> str | None:
        """Why no request can be served now; None if all can. The topic is created if need be."""
        if not self._is_started:
            return "Share coordinator is not available."
        topics = self._topics.image.topics_by_name
        if SHARE_STATE_TOPIC not in topics:
            [created] = await self._topics.create_topics([state_topic(self.config)])
            topics = self._topics.image.topics_by_name
            if SHARE_STATE_TOPIC not in topics:
                return f"{SHARE_STATE_TOPIC} cannot be created: {created.outcome.code.name} {created.outcome.message}"
        partitions, expected = topics[SHARE_STATE_TOPIC].partitions, self.runtime.count
        if partitions == expected:
            return None
        return (
            f"{SHARE_STATE_TOPIC} has {partitions} partitions, and share.coordinator.state.topic.num.partitions is"
            f" {expected}: set it to {partitions} and start the broker again"
        )

    # The requests

    async def initialize(self, states: Mapping[ShareKey, InitialState]) -> dict[ShareKey, Outcome]:
        """Begin share partitions, or begin them again at a higher state epoch; POLICY_VIOLATION for one too many."""
        most = self.config.share_partitions_max

        def decide(key: ShareKey, wanted: InitialState, state: ShareShardState, now_ms: int) -> Decided[Outcome]:
            if key not in state.shares and len(self) >= most:
                return Decision(Outcome(ErrorCode.POLICY_VIOLATION, f"This broker keeps {most} share partitions."))
            return self._replacing(key, decisions.initialize(state, key, wanted, self._partitions(key), now_ms))

        return await self._run_all(states, decide, Outcome)

    async def read(self, key: ShareKey, leader_epoch: int) -> StoredState:
        """The state of a share partition for its leader; older leaders are fenced from then on."""
        return (await self.read_all({key: leader_epoch}))[key]

    async def read_all(self, keys: Mapping[ShareKey, int]) -> dict[ShareKey, StoredState]:
        """As `read`, for many; the values are leader epochs."""

        def decide(key: ShareKey, epoch: int, state: ShareShardState, now_ms: int) -> Decided[StoredState]:
            return decisions.read(state, key, epoch, self._partitions(key), self._limit(state, key), now_ms)

        return await self._run_all(keys, decide, StoredState)

    async def write(self, updates: Sequence[tuple[ShareKey, StateUpdate]]) -> list[Outcome]:
        """Store what changed, in this order: a share partition may be there more than once.

        Refused with FENCED_STATE_EPOCH or FENCED_LEADER_EPOCH if another leader began since.
        """

        def decide(key: ShareKey, update: StateUpdate, state: ShareShardState, now_ms: int) -> Decided[Outcome]:
            return decisions.write(state, key, update, self._partitions(key), self._limit(state, key), now_ms)

        return await self._timed(self._run(updates, decide, Outcome))

    async def write_in_transaction(
        self,
        producer: ProducerTag,
        updates: Sequence[tuple[ShareKey, StateUpdate]],
        appended: Callable[[Sequence[Outcome]], None],
    ) -> list[Outcome]:
        """Store what becomes of records if the producer's transaction commits, which has the partitions already.

        `appended` is called with what was refused before another task runs.
        """

        def decide(key: ShareKey, update: StateUpdate, state: ShareShardState, now_ms: int) -> Decided[Outcome]:
            if self._is_behind(state, key):
                return Decision(Outcome(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "A snapshot waits for transactions."))
            return decisions.write_in_transaction(state, key, update, self._partitions(key), producer.producer_id)

        return await self._timed(self._run(updates, decide, Outcome, producer, appended))

    async def _timed(self, writing: Awaitable[list[Outcome]]) -> list[Outcome]:
        began = trio.current_time()
        outcomes = await writing
        self.tallies.write_times.add(trio.current_time() - began)
        self.tallies.writes += sum(not outcome.error for outcome in outcomes)
        return outcomes

    def _limit(self, state: ShareShardState, key: ShareKey) -> float:
        """After how many updates a snapshot comes.

        None while a transaction is undecided there and others write markers: one that comes before the snapshot, which
        does not have what it decides, would be lost in a replay.
        """
        return math.inf if self._has_guests and state.pending.of(key) else self._updates

    def _is_behind(self, state: ShareShardState, key: ShareKey) -> bool:
        """Whether a snapshot is overdue because transactions come without a pause: then they have to pause."""
        share = state.shares.get(key)
        overdue = share is not None and share.updates >= 2 * self._updates + UPDATES_SPARE
        return overdue and math.isinf(self._limit(state, key))

    def marker_appended(self, partition: int, producer_id: int, commit: bool) -> None:
        """A marker was appended to this partition of `__share_group_state`: apply it, as each record at its append.

        A snapshot that comes next, before the marker is durable, has what the transaction said: it is behind the marker
        also for a replay.
        """
        shard = self.runtime.at(partition)
        if shard is not None:
            decided = self._decided.setdefault((partition, producer_id), [])
            decided += shard.state.complete(producer_id, commit)  # of a marker that was written twice: nothing

    def complete_transaction(self, partition: int, producer_id: int, commit: bool) -> None:
        """The marker is durable: the leaders may let go of what the transaction acknowledged."""
        for key in self._decided.pop((partition, producer_id), ()):
            self.ended(key, producer_id, commit)

    def partition_of(self, key: ShareKey) -> int:
        """The partition of `__share_group_state` that has the state of a share partition."""
        return self.runtime.partition_for(key_text(key))

    async def summaries(self, keys: Mapping[ShareKey, int]) -> dict[ShareKey, StateSummary]:
        """The summary of each; the values are leader epochs, and any will do."""

        def decide(key: ShareKey, epoch: int, state: ShareShardState, now_ms: int) -> Decided[StateSummary]:
            return decisions.summarize(state, key, self._partitions(key))

        return await self._run_all(keys, decide, StateSummary)

    async def delete(self, keys: Iterable[ShareKey]) -> dict[ShareKey, Outcome]:
        """Forget share partitions; one that is not there is no error."""

        def decide(key: ShareKey, nothing: None, state: ShareShardState, now_ms: int) -> Decided[Outcome]:
            return self._replacing(key, decisions.delete(state, key, self._partitions(key)))

        return await self._run_all(dict.fromkeys(keys), decide, Outcome)

    def _replacing(self, key: ShareKey, decided: Decided[Outcome]) -> Decided[Outcome]:
        if decided.log:
            self.replaced(key)
        return decided

    def _partitions(self, key: ShareKey) -> int | None:
        topic = self._topics.image.topics_by_id.get(key.topic_id)
        return None if topic is None else topic.partitions

    async def _run_all(
        self, asked: Mapping[ShareKey, AskedT], decide: Decide[AskedT, ReplyT], failed: Failed[ReplyT]
    ) -> dict[ShareKey, ReplyT]:
        return dict(zip(asked, await self._run(list(asked.items()), decide, failed), strict=True))

    async def _run(
        self,
        asked: Sequence[tuple[ShareKey, AskedT]],
        decide: Decide[AskedT, ReplyT],
        failed: Failed[ReplyT],
        producer: ProducerTag | None = None,
        appended: Callable[[Sequence[ReplyT]], None] = lambda replies: None,
    ) -> list[ReplyT]:
        """Decide on each, in this order, then wait for one flush of them all; return their replies.

        `failed` makes the reply of a share partition whose log refuses it. With a `producer` all is part of its
        transaction, and no other task runs before all is appended and `appended` was called with the replies so far.
        """
        replies: list[ReplyT] = []
        if (problem := await self.problem()) is not None:
            replies += [failed(ErrorCode.COORDINATOR_NOT_AVAILABLE, problem)] * len(asked)
            asked = ()
        waiting: list[tuple[int, ShareShard, Sequence[ShareRecord], Ticket]] = []
        for number, (key, value) in enumerate(asked):
            shard = self.runtime.shard_of(key_text(key))
            try:
                decision, ticket = shard.decide(partial(decide, key, value), producer)
            except LogWriteFailed as error:
                replies.append(failed(coordinator_error(error.code), str(error)))
                continue
            replies.append(decision.reply)
            waiting.append((number, shard, self._placed(shard, decision.log, ticket), ticket))
            if decision.log:
                ticket.request()
            if number % KEYS_AT_ONCE == KEYS_AT_ONCE - 1 and producer is None:
                await trio.lowlevel.checkpoint()
        appended(replies)
        for number, shard, unplaced, ticket in waiting:
            if code := await shard.settled(ticket):
                replies[number] = failed(coordinator_error(code), f"{SHARE_STATE_TOPIC}-{shard.partition}: {code.name}")
            else:
                place(shard, unplaced, ticket)
        return replies

    def _placed(self, shard: ShareShard, records: Sequence[ShareRecord], ticket: Ticket) -> Sequence[ShareRecord]:
        self.tallies.snapshots += sum(isinstance(record, Snapshot) for record in records)
        return place(shard, records, ticket)

    # Upkeep

    def forget_topics(self, topic_ids: Collection[bytes]) -> None:
        """Delete the state of deleted topics (ShareCoordinatorShard.maybeCleanupShareState)."""
        for shard in self.runtime.shards():
            self._forget(shard, lambda topic_id: topic_id in topic_ids)

    def _forget(self, shard: ShareShard, is_gone: Callable[[bytes], bool]) -> None:
        gone = [Removed(key) for key in shard.state.shares if is_gone(key.topic_id)]
        try:
            for at in range(0, len(gone), TOMBSTONES_MAX):
                some = gone[at : at + TOMBSTONES_MAX]
                place(shard, some, shard.write(some))
        except LogWriteFailed as error:
            logger.warning(
                "%s-%d: the state of deleted topics stays until the next start: %s",
                self.runtime.topic,
                shard.partition,
                error,
            )

    async def write_cold(self) -> None:
        """Write new snapshots of share partitions that are not written any more, and wait until they are durable."""
        interval_ms = self.config.share_coordinator_cold_partition_snapshot_interval_ms
        for shard in self.runtime.shards():
            await trio.lowlevel.checkpoint()
            if shard.refusal:
                continue
            written: list[tuple[Sequence[ShareRecord], Ticket]] = []
            try:
                cold = decisions.cold(shard.state, self._clock.now_ms(), interval_ms)
                keys = [key for key in cold if not math.isinf(self._limit(shard.state, key))]
                for number, key in enumerate(keys, 1):
                    decision, ticket = shard.decide(partial(decisions.write_again, key=key))
                    written.append((self._placed(shard, decision.log, ticket), ticket))
                    if number % KEYS_AT_ONCE == 0:
                        await trio.lowlevel.checkpoint()
                await shard.log.newest.durable()
                for records, ticket in written:
                    place(shard, records, ticket)
            except LogWriteFailed as error:
                logger.warning("%s-%d: no snapshots, tried again later: %s", self.runtime.topic, shard.partition, error)

    def redundant(self) -> Iterator[tuple[int, int]]:
        """Of each partition the offset below which no record is needed."""
        for shard in self.runtime.shards():
            if not shard.refusal:
                yield shard.partition, shard.state.redundant_to


def place(shard: ShareShard, records: Sequence[ShareRecord], ticket: Ticket) -> Sequence[ShareRecord]:
    """Note where records are; return those of a log that binds its offsets late: place them again once durable.

    Files have the offsets at once, and places are noted in the order of the log then: a marker may come next.
    """
    if records and ticket.end_offset is None:
        return records
    if records and ticket.end_offset is not None and not shard.refusal:  # it may have been loaded again meanwhile
        shard.state.place(records, ticket.end_offset - len(records))
    return ()
