"""The share partitions that this broker leads: begun at the first use, stored by the share coordinator (KIP-932).

ShareFetch, ShareAcknowledge, sessions that end, locks that end
    |                                  |
SharePartition (pure) --Change--> a queue for each --SharePersister--> stored, then settled in the same order
    ^                                                                                  |
    +------ archived <------ DeadLetterWriter <------ records given up (KIP-1191) <----+
"""

import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import trio

from fencepost.broker.log.log_store import Missing
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.reading import offset_for_timestamp
from fencepost.broker.ports import Broker
from fencepost.broker.share.change import Change
from fencepost.broker.share.dead_letters import DeadLetterWriter
from fencepost.broker.share.kept_batches import KeptBatches
from fencepost.broker.share.led import (
    FENCED,
    LedPartition,
    Storing,
    by_lock_clock,
    client_error,
    limits_of,
    within_log,
)
from fencepost.broker.share.sessions import MemberKey, ShareSessions, TopicIdPartition
from fencepost.broker.share.undecided import UndecidedPartitions
from fencepost.broker.share.values import AckType, DeadLetters, Limits
from fencepost.coordinator.metadata.image import SHARE_VERSION
from fencepost.coordinator.ports import ProducerTag
from fencepost.coordinator.runtime.timers import Timers
from fencepost.coordinator.share.values import (
    UNINITIALIZED,
    DeliveryState,
    Outcome,
    ShareKey,
    SharePersister,
    StateUpdate,
    joined,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.reset_policy import EARLIEST, LATEST
from fencepost.protocol.topics import IsolationLevel, TopicPartition

logger = logging.getLogger(__name__)

MISSING_WAIT_MS = 30_000
"""How long a lookup by time waits for bytes that are not in this process."""

FIRST_PAUSE_S, PAUSE_S_MAX = 0.1, 5.0
"""The wait after a store that failed, which doubles with each failure after it."""


class SharePartitions:
    """All share partitions that this broker leads, and the sessions of their members. Keep `run` running."""

    def __init__(self, node: Broker, persister: SharePersister) -> None:
        self._node = node
        self._persister = persister
        self._led: dict[ShareKey, LedPartition] = {}
        self._of_group: dict[str, dict[ShareKey, LedPartition]] = {}
        self.kept = KeptBatches()
        self._timers: Timers[ShareKey] = Timers()
        self._earlier_timer = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._dead_letters = DeadLetterWriter(node)
        states = node.place.transactional_states(node)
        self.undecided = (
            None if states is None else UndecidedPartitions(states, self._start, self.store, self._drop, self.changed)
        )
        """None if this broker keeps all states and leads all partitions: then each end is known at once."""
        self.sessions = ShareSessions(lambda: node.config.group_share_max_share_sessions, self.leave)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load and store states, and end locks whose time is over, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            try:
                await self._watch_locks()
            finally:
                self._nursery = None

    # Finding

    def led(self) -> list[LedPartition]:
        return list(self._led.values())

    def find(self, group_id: str, part: TopicIdPartition) -> LedPartition | None:
        """The share partition, if it is in use here and this broker still leads its partition."""
        led = self._led.get(ShareKey(group_id, *part))
        if led is not None and (led.log.disowned or self._node.partition(led.tp) is not led.log):
            self._drop(led, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return None
        return led

    def begin(self, group_id: str, part: TopicIdPartition, tp: TopicPartition) -> LedPartition | ErrorCode:
        """The share partition, whose state is loaded at its first use; or why there is none."""
        led = self.find(group_id, part)
        if led is not None:
            return led
        log = self._node.partition(tp)
        if log is None:
            return self._node.absence(tp)
        key = ShareKey(group_id, *part)
        led = self._led[key] = LedPartition(key, tp, log, lambda: self._limits(group_id))
        self._of_group.setdefault(group_id, {})[key] = led
        self._start(self._load, led)
        return led

    def _limits(self, group_id: str) -> Limits:
        share_version = self._node.metadata.image.features.get(SHARE_VERSION, 0)
        return limits_of(self._node.share_settings(group_id), share_version)

    def _start(self, task: Callable[[LedPartition], Awaitable[None]], led: LedPartition) -> None:
        if self._nursery is None:  # the broker stops: nothing is stored any more of connections that end
            self._drop(led, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self._refuse(led)
            return
        self._nursery.start_soon(self._guarded, task, led)

    async def _guarded(self, task: Callable[[LedPartition], Awaitable[None]], led: LedPartition) -> None:
        """An error in the work on one share partition ends no other: that one is begun anew."""
        try:
            await task(led)
        except Exception:
            logger.exception(
                "share partition is begun anew after an unexpected error group=%s partition=%s",
                led.key.group_id,
                led.tp,
            )
            self._drop(led, ErrorCode.UNKNOWN_SERVER_ERROR)
            self._refuse(led)

    def forget(self, key: ShareKey) -> None:
        """The state of a share partition is replaced: the next fetch loads the new one.

        The state epoch alone does not fence here: a group that was deleted and created again has the same ones.
        """
        if (led := self._led.get(key)) is not None:
            self._drop(led, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _drop(self, led: LedPartition, error: ErrorCode) -> None:
        """Use it no more. What is being stored is settled by its task; what waits for it is refused."""
        led.end(error)
        self.kept.forget(led)
        if self._led.get(led.key) is led:
            del self._led[led.key], self._of_group[led.key.group_id][led.key]
            if not self._of_group[led.key.group_id]:
                del self._of_group[led.key.group_id]
            self._timers.stop(led.key)

    # Loading

    async def _load(self, led: LedPartition) -> None:
        state = await self._persister.read(led.key, led.log.leader_epoch)
        if state.error:
            logger.warning(
                "the state of a share partition cannot be read, members try again group=%s partition=%s cause=%s %s",
                led.key.group_id,
                led.tp,
                state.error.name,
                state.message or "",
            )
            self._drop(led, client_error(state.error))
            return
        is_new = state.start_offset == UNINITIALIZED
        first_offset = await self._first_offset(led) if is_new else state.start_offset
        first_offset = min(first_offset, led.log.log_end_offset)
        if is_new:
            # Kafka stores it with the first acknowledgement only: a crash before it then skips records (latest).
            beginning = StateUpdate(state.state_epoch, led.log.leader_epoch, first_offset, 0, ())
            [outcome] = await self._persister.write([(led.key, beginning)])
            if outcome.error:
                self._drop(led, client_error(outcome.error))
                return
        wall_ms, lock_ms = self._node.clock.now_ms(), self.now_ms
        known = state._replace(batches=tuple(by_lock_clock(batch, wall_ms, lock_ms) for batch in state.batches))
        dead = led.core.restore(within_log(led, known), first_offset)
        led.active = True
        for producer_id, commit in led.ended:
            self._take(led, led.core.resolve(producer_id, commit))
        if led.core.start_offset > first_offset:  # by a transaction's marker: the lag counts from the stored start
            self.store(led, led.core.offsets())
        if self.undecided is not None:
            self.undecided.watch(led)
        self._give_up(led, dead)
        self.changed(led)

    async def _first_offset(self, led: LedPartition) -> int:
        """Where a group begins that never read the partition (`share.auto.offset.reset`)."""
        log, node = led.log, self._node
        since_ms = node.share_settings(led.key.group_id).auto_offset_reset.timestamp(node.clock.now_ms())
        if since_ms == EARLIEST:
            return log.log_start_offset
        if since_ms is None or since_ms == LATEST:
            return log.high_watermark
        found = offset_for_timestamp(log, since_ms, IsolationLevel.READ_UNCOMMITTED)
        while isinstance(found, Missing):
            await self._arrived(log, found)
            found = offset_for_timestamp(log, since_ms, IsolationLevel.READ_UNCOMMITTED)
        return log.high_watermark if found is None else found.offset

    async def _arrived(self, log: PartitionLog, missing: Missing) -> None:
        with self._node.purgatory.park([log]) as parked:
            await parked.wait_until(lambda: missing.arrived or log.disowned, MISSING_WAIT_MS)

    # Storing

    def store(self, led: LedPartition, change: Change) -> Storing:
        """Have a change stored and settled after those before it; nothing is stored for an empty one."""
        storing = Storing(change)
        self._node.metrics.share_group(led.key.group_id).archived += change.size({DeliveryState.ARCHIVED})
        if not change:
            storing.finish(led.error)
            return storing
        led.queue.append(storing)
        if len(led.queue) == 1:
            self._start(self._store, led)
        return storing

    async def _store(self, led: LedPartition) -> None:
        """Store what is queued, all that came meanwhile as one update, until the queue is empty."""
        while led.queue and not led.error:
            storing = led.queue[:]
            updates = [each.change.update(led.log.leader_epoch, self.wall_ahead_ms) for each in storing]
            [outcome] = await self._persister.write([(led.key, joined(updates))])
            for each in storing:
                self._give_up(led, each.change.settle(not outcome.error))
                each.finish(client_error(outcome.error))
            del led.queue[: len(storing)]
            if outcome.error:
                logger.warning(
                    "the state of a share partition cannot be stored, no record is delivered until it can"
                    " group=%s partition=%s cause=%s %s",
                    led.key.group_id,
                    led.tp,
                    outcome.error.name,
                    outcome.message or "",
                )
                # INVALID_REQUEST: the state is deleted, and the group perhaps created again.
                if client_error(outcome.error) in FENCED or outcome.error is ErrorCode.INVALID_REQUEST:
                    self._drop(led, client_error(outcome.error))
                elif not led.unstorable:
                    self._start(self._store_again, led)
            led.unstorable = bool(outcome.error)
            self.changed(led)
        self._refuse(led)
        self._drop_unused(led)

    async def _store_again(self, led: LedPartition) -> None:
        """Try to store until it succeeds. Kafka delivers meanwhile, and archives what comes as often as is allowed."""
        pause_s = FIRST_PAUSE_S
        while led.unstorable and not led.error:
            await trio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)
            await self.store(led, led.core.offsets()).wait()

    def _refuse(self, led: LedPartition) -> None:
        """Answer those that wait for a share partition that is used no more."""
        for each in led.queue:
            each.finish(led.error)
        led.queue.clear()

    # Transactions

    async def store_in(self, producer: ProducerTag, changes: Sequence[tuple[LedPartition, Change]]) -> list[ErrorCode]:
        """Store what is to become of records if a transaction commits; an error for each.

        No other task runs between the call and the append. What was refused is with its member as before; a share
        partition of which it is not known whether it was stored is begun anew.
        """
        refused: list[bool] = []

        def settle(outcomes: Sequence[Outcome]) -> None:
            for (led, change), outcome in zip(changes, outcomes, strict=True):
                self._give_up(led, change.settle(not outcome.error))
                refused.append(bool(outcome.error))

        updates = [(led.key, change.update(led.log.leader_epoch)) for led, change in changes]
        outcomes = await self._node.share_states.write_in_transaction(producer, updates, settle)
        for (led, _), outcome, is_known in zip(changes, outcomes, refused, strict=True):
            self.changed(led)
            error = client_error(outcome.error)
            if error in FENCED or (error is ErrorCode.COORDINATOR_NOT_AVAILABLE and not is_known):
                self._drop(led, error)
        return [outcome.error for outcome in outcomes]

    def transaction_ended(self, key: ShareKey, producer_id: int, commit: bool) -> None:
        """A transaction that acknowledged records of a share partition ended, and its marker there is durable."""
        led = self._led.get(key)
        if led is not None and led.active:
            self._take(led, led.core.resolve(producer_id, commit))
        elif led is not None:
            led.ended.append((producer_id, commit))

    def _take(self, led: LedPartition, change: Change) -> None:
        self.store(led, change)
        self.changed(led)

    # Dead letters

    def _give_up(self, led: LedPartition, dead: Sequence[DeadLetters]) -> None:
        """Have records written to the dead-letter topic after those before them, then archived."""
        led.dead += dead
        if dead and len(led.dead) == len(dead):
            self._start(self._write_dead, led)

    async def _write_dead(self, led: LedPartition) -> None:
        """SharePartition.initiateDLQAndArchive. If the share partition ends before, its next one writes them again."""
        while led.dead and not led.error:
            dead = led.dead[:]
            await self._dead_letters.write(led.key.group_id, led.log, dead)
            if led.error:
                return
            for each in dead:
                self.store(led, led.core.archive(each))
            del led.dead[: len(dead)]

    def changed(self, led: LedPartition) -> None:
        """Locks ended, or records are available again: a fetch looks again, and the timer is set."""
        self.set_timer(led)
        led.wake()

    def set_timer(self, led: LedPartition) -> None:
        """Locks began or ended."""
        expiry_ms = led.core.next_expiry()
        if expiry_ms is None or led.error:
            self._timers.stop(led.key)
        elif self._timers.set(led.key, expiry_ms / 1000):
            self._earlier_timer.set()

    # Counting

    def count_acknowledged(self, group_id: str, types: Mapping[int, int]) -> None:
        """Count records by the type of their acknowledgement, which is stored."""
        metrics = self._node.metrics
        counters = metrics.share_group(group_id)
        counters.accepted += types.get(AckType.ACCEPT, 0)
        counters.released += types.get(AckType.RELEASE, 0)
        counters.rejected += types.get(AckType.REJECT, 0)
        metrics.acknowledged.update(types)

    def count_topics(self, acknowledged: Iterable[str], failed: Iterable[str]) -> None:
        """Count the topics of a request, as Kafka's SharePartitionManager.acknowledge, that are not deleted by now."""
        topics = self._node.metrics.topics
        for topic in topics.keys() & acknowledged:
            topics[topic].share_acknowledgements += 1
        for topic in topics.keys() & failed:
            topics[topic].failed_share_acknowledgements += 1

    # Ends of locks and sessions

    @property
    def now_ms(self) -> int:
        """The clock of locks: it never goes back.

        Rounded to microseconds first: 4.061 s * 1000 is 4060.99..., and a timer of 4061 ms would stay due.
        """
        return round(self._node.clock.monotonic() * 1_000_000) // 1000

    @property
    def wall_ahead_ms(self) -> int:
        """The wall clock, by which times are stored, less the clock of locks."""
        return self._node.clock.now_ms() - self.now_ms

    async def _watch_locks(self) -> None:
        while True:
            for key in self._timers.due(self._node.clock.monotonic()):
                if (led := self.find(key.group_id, TopicIdPartition(*key[1:]))) is not None:
                    change = led.core.expire(self.now_ms)
                    self._node.metrics.share_group(key.group_id).expired += change.size()
                    self._take(led, change)
            self._earlier_timer = trio.Event()
            deadline = self._timers.next_deadline()
            delay_s = math.inf if deadline is None else max(deadline - self._node.clock.monotonic(), 0)
            with trio.move_on_after(delay_s):
                await self._earlier_timer.wait()

    def leave(self, member: MemberKey, parts: Iterable[TopicIdPartition]) -> None:
        """The session of a member has ended: release what it holds. Without members a share partition is not kept."""
        for part in parts:
            if (led := self.find(member.group_id, part)) is not None and led.active:
                change = led.core.release(member.member_id)
                self._node.metrics.share_group(member.group_id).released += change.size()
                self._take(led, change)
        if not self.sessions.of_group[member.group_id]:
            for led in list(self._of_group.get(member.group_id, {}).values()):
                self._drop_unused(led)

    def _drop_unused(self, led: LedPartition) -> None:
        """Forget a share partition whose group has no session here, once all of it is stored."""
        if not led.queue and not led.dead and not self.sessions.of_group[led.key.group_id]:
            self._drop(led, ErrorCode.NOT_LEADER_OR_FOLLOWER)
