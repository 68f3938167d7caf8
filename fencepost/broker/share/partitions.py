"""The share partitions that this broker leads: begun at the first use, stored by the share coordinator (KIP-932).

ShareFetch, ShareAcknowledge, sessions that end, locks that end
    |                                  |
SharePartition (pure) --Change--> a queue for each --SharePersister--> stored, then settled in the same order
"""

import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache

import trio

from fencepost.broker.log.log_store import Missing
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.reading import offset_for_timestamp
from fencepost.broker.log.results import Watcher
from fencepost.broker.ports import Broker
from fencepost.broker.share.change import Change
from fencepost.broker.share.partition import SharePartition
from fencepost.broker.share.sessions import MemberKey, ShareSessions, TopicIdPartition
from fencepost.broker.share.values import Limits
from fencepost.coordinator.runtime.timers import Timers
from fencepost.coordinator.share.group_config import ShareGroupSettings
from fencepost.coordinator.share.values import (
    UNINITIALIZED,
    ShareKey,
    SharePersister,
    StateUpdate,
    StoredState,
)
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.protocol.reset_policy import EARLIEST, LATEST
from fencepost.protocol.topics import IsolationLevel, TopicPartition

logger = logging.getLogger(__name__)

MISSING_WAIT_MS = 30_000
"""How long a lookup by time waits for bytes that are not in this process."""

_FENCED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors after which a share partition is begun anew (Kafka's `fencedSharePartitionHandler`)."""


def client_error(error: ErrorCode) -> ErrorCode:
    """What a member is answered for an error of the share coordinator (Kafka's `fetchPersisterError`)."""
    match error:
        case ErrorCode.NOT_COORDINATOR | ErrorCode.COORDINATOR_NOT_AVAILABLE | ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.FENCED_LEADER_EPOCH | ErrorCode.FENCED_STATE_EPOCH:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        case ErrorCode.NONE | ErrorCode.GROUP_ID_NOT_FOUND | ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return error
        case _:
            return ErrorCode.UNKNOWN_SERVER_ERROR


@lru_cache(maxsize=1000)
def limits_of(settings: ShareGroupSettings) -> Limits:
    """The settings of a group that its share partitions obey."""
    return Limits(
        max_in_flight=settings.partition_max_record_locks,
        delivery_count_limit=settings.delivery_count_limit,
        lock_ms=settings.record_lock_duration_ms,
        renew=settings.renew_acknowledge_enable,
    )


class Storing:
    """A change that waits to be stored and settled."""

    __slots__ = ("_done", "change", "error")

    def __init__(self, change: Change) -> None:
        self.change = change
        self.error = NO_ERROR
        self._done = trio.Event()

    def finish(self, error: ErrorCode) -> None:
        self.error = error
        self._done.set()

    async def wait(self) -> ErrorCode:
        """NONE once it is stored, else the error for the member."""
        await self._done.wait()
        return self.error


class LedPartition:
    """A share partition of this broker, with those that wait for a change of it."""

    def __init__(self, key: ShareKey, tp: TopicPartition, log: PartitionLog, limits: Callable[[], Limits]) -> None:
        self.key, self.tp, self.log = key, tp, log
        self.core = SharePartition(limits)
        self.active = False
        """Whether its state is known."""
        self.error = NO_ERROR
        """Why it is used no more."""
        self.watchers: dict[Watcher, None] = {}
        self.queue: list[Storing] = []
        """Changes that are being stored, and those that wait for it."""

    def wake(self) -> None:
        """Have fetches that wait look again."""
        for watcher in tuple(self.watchers):
            watcher.wake()


class SharePartitions:
    """All share partitions that this broker leads, and the sessions of their members. Keep `run` running."""

    def __init__(self, node: Broker, persister: SharePersister) -> None:
        self._node = node
        self._persister = persister
        self._led: dict[ShareKey, LedPartition] = {}
        self._timers: Timers[ShareKey] = Timers()
        self._earlier_timer = trio.Event()
        self._nursery: trio.Nursery | None = None
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
        led = self._led[key] = LedPartition(key, tp, log, lambda: limits_of(self._node.share_settings(group_id)))
        self._start(self._load, led)
        return led

    def _start(self, task: Callable[[LedPartition], Awaitable[None]], led: LedPartition) -> None:
        if (
            self._nursery is None
        ):  # the broker stops: connections that end release what they hold, and nothing is stored
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
        led.error = error
        if self._led.get(led.key) is led:
            del self._led[led.key]
            self._timers.stop(led.key)
        led.wake()

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
        led.core.restore(_within(led, state), first_offset)
        led.active = True
        led.wake()

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
        if not change:
            storing.finish(led.error)
            return storing
        led.queue.append(storing)
        if len(led.queue) == 1:
            self._start(self._store, led)
        return storing

    async def _store(self, led: LedPartition) -> None:
        """Store what is queued, all that came meanwhile at once, until the queue is empty."""
        while led.queue and not led.error:
            storing = led.queue[:]
            epoch = led.log.leader_epoch
            outcomes = await self._persister.write([(led.key, each.change.update(epoch)) for each in storing])
            for each, outcome in zip(storing, outcomes, strict=True):
                each.change.settle(not outcome.error)
                each.finish(client_error(outcome.error))
            del led.queue[: len(storing)]
            failed = next((outcome for outcome in outcomes if outcome.error), None)
            if failed is not None:
                logger.warning(
                    "the state of a share partition cannot be stored group=%s partition=%s cause=%s %s",
                    led.key.group_id,
                    led.tp,
                    failed.error.name,
                    failed.message or "",
                )
                if client_error(failed.error) in _FENCED:
                    self._drop(led, client_error(failed.error))
            self.changed(led)
        self._refuse(led)
        self._drop_unused(led)

    def _refuse(self, led: LedPartition) -> None:
        """Answer those that wait for a share partition that is used no more."""
        for each in led.queue:
            each.finish(led.error)
        led.queue.clear()

    def changed(self, led: LedPartition) -> None:
        """Locks began or ended, or records are available again: fetches look again, and the timer is set."""
        expiry_ms = led.core.next_expiry()
        if expiry_ms is None or led.error:
            self._timers.stop(led.key)
        elif self._timers.set(led.key, expiry_ms / 1000):
            self._earlier_timer.set()
        led.wake()

    # Ends of locks and sessions

    @property
    def now_ms(self) -> int:
        """The clock of locks: it never goes back.

        Rounded to microseconds first: 4.061 s * 1000 is 4060.99..., and a timer of 4061 ms would stay due.
        """
        return round(self._node.clock.monotonic() * 1_000_000) // 1000

    async def _watch_locks(self) -> None:
        while True:
            for key in self._timers.due(self._node.clock.monotonic()):
                if (led := self._led.get(key)) is not None:
                    self.store(led, led.core.expire(self.now_ms))
                    self.changed(led)
            self._earlier_timer = trio.Event()
            deadline = self._timers.next_deadline()
            delay_s = math.inf if deadline is None else max(deadline - self._node.clock.monotonic(), 0)
            with trio.move_on_after(delay_s):
                await self._earlier_timer.wait()

    def leave(self, member: MemberKey, parts: Iterable[TopicIdPartition]) -> None:
        """The session of a member has ended: release what it holds. Without members a share partition is not kept."""
        for part in parts:
            if (led := self.find(member.group_id, part)) is not None and led.active:
                self.store(led, led.core.release(member.member_id))
                self.changed(led)
        for led in self.led():
            self._drop_unused(led)

    def _drop_unused(self, led: LedPartition) -> None:
        """Forget a share partition whose group has no session here, once all of it is stored."""
        if not led.queue and not self.sessions.of_group[led.key.group_id]:
            self._drop(led, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _within(led: LedPartition, state: StoredState) -> StoredState:
    """The state without records that the log does not have (any more): new ones will take their offsets."""
    end_offset = led.log.log_end_offset
    if state.start_offset <= end_offset and all(batch.last_offset < end_offset for batch in state.batches):
        return state
    logger.warning(
        "a share partition was ahead of its log, which lost records: what it knew of them is dropped"
        " group=%s partition=%s log_end=%d start=%d",
        led.key.group_id,
        led.tp,
        end_offset,
        state.start_offset,
    )
    batches = tuple(
        batch._replace(last_offset=min(batch.last_offset, end_offset - 1))
        for batch in state.batches
        if batch.first_offset < end_offset
    )
    return state._replace(start_offset=min(state.start_offset, end_offset), batches=batches)
