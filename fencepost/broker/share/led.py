"""A share partition of this broker: its decisions, what is being stored of it, and who waits for a change of it."""

import logging
from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

import trio

from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.share.change import Change
from fencepost.broker.share.partition import SharePartition
from fencepost.broker.share.reading import Times
from fencepost.broker.share.values import DELAY_MS_MAX, DeadLetters, Limits
from fencepost.coordinator.share.group_config import ShareGroupSettings
from fencepost.coordinator.share.values import NOT_HELD, ShareKey, StateBatch, StoredState
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.protocol.topics import TopicPartition

logger = logging.getLogger(__name__)

FENCED = frozenset(
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


TIMES_KEPT = 8
"""How many batches have their times kept, between the look and the next fetch."""
DEAD_LETTERS_SINCE = 2
"""The level of share.version from which on share groups write dead letters (`ShareVersion.supportsShareGroupDLQ`)."""


@lru_cache(maxsize=1000)
def limits_of(settings: ShareGroupSettings, share_version: int) -> Limits:
    """The settings of a group that its share partitions obey."""
    return Limits(
        max_in_flight=settings.partition_max_record_locks,
        delivery_count_limit=settings.delivery_count_limit,
        lock_ms=settings.record_lock_duration_ms,
        renew=settings.renew_acknowledge_enable,
        dead_letters=share_version >= DEAD_LETTERS_SINCE and settings.dead_letter_topic is not None,
    )


def by_lock_clock(batch: StateBatch, wall_ms: int, lock_ms: int) -> StateBatch:
    """A stored batch with its time by the clock of locks; without one if the time has passed.

    A wall clock that went back holds a record for the longest time at most.
    """
    left_ms = batch.held_until_ms - wall_ms
    return batch._replace(held_until_ms=lock_ms + min(left_ms, DELAY_MS_MAX) if left_ms > 0 else NOT_HELD)


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


class Waiting(Protocol):
    """What looks again at a share partition after a change (`ShareSession`)."""

    def changed(self, led: "LedPartition") -> bool:
        """Records came or are available again, or it is used no more; whether a fetch looks, and calls `wake_next`.

        Must not call back into the log.
        """


class LedPartition:
    """A share partition of this broker, with the sessions that wait for a change of it. It watches its log."""

    def __init__(self, key: ShareKey, tp: TopicPartition, log: PartitionLog, limits: Callable[[], Limits]) -> None:
        self.key, self.tp, self.log = key, tp, log
        self.core = SharePartition(limits)
        self.active = False
        """Whether its state is known."""
        self.error = NO_ERROR
        """Why it is used no more."""
        self.unstorable = False
        """Whether its state could not be stored last: then nothing is delivered, for all of it would come again."""
        self.ended: list[tuple[int, bool]] = []
        """Transactions that ended while the state was being read: producer id, and whether they committed."""
        self.watched = False
        """Whether a task looks what becomes of records on which transactions decide."""
        self.transacting = trio.Lock()
        """Held while a transaction's acknowledgement of it is being stored on another broker."""
        self.changes = 0
        """How often it has changed, or its log."""
        self.waiting: dict[Waiting, int] = {}
        """Those that found too little, the longest waiting one first, with how many changes each has seen."""
        self.queue: list[Storing] = []
        """Changes that are being stored, and those that wait for it."""
        self.times: dict[int, Times] = {}
        """The times in the headers of the batches that a thread looked at last, by their base offsets."""
        self.dead: list[DeadLetters] = []
        """Records that are being written to the dead-letter topic, and those that wait for it."""
        log.watchers[self] = None

    def note_times(self, base_offset: int, times: Times) -> None:
        """Keep what a thread found in a batch, until some others came."""
        if len(self.times) >= TIMES_KEPT:
            del self.times[next(iter(self.times))]
        self.times[base_offset] = times

    def can_deliver(self) -> bool:
        """Whether a fetch could acquire something now."""
        return self.active and not self.unstorable and self.core.can_acquire()

    def end(self, error: ErrorCode) -> None:
        """Use it no more."""
        self.error = error
        self.log.watchers.pop(self, None)
        self.wake()

    def wait(self, session: Waiting) -> None:
        """A session found too little: it looks again after a change."""
        self.waiting.pop(session, None)
        self.waiting[session] = self.changes

    def wake(self) -> None:
        """It has changed, or its log: have one of those that wait look again."""
        self.changes += 1
        self.wake_next()

    def wake_next(self) -> None:
        """Have the one that waits longest look at what is left, unless all have seen that.

        To be called by a fetch that was woken, whatever it did: nothing may lie here while another one waits for it.
        """
        while self.waiting and self._has_some():
            session, seen = next(iter(self.waiting.items()))
            if seen == self.changes:
                break
            del self.waiting[session]
            if session.changed(self):
                break

    def _has_some(self) -> bool:
        """Whether a fetch may acquire something, or has to be refused."""
        if self.error or self.log.disowned:
            return True
        return self.can_deliver() and self.core.next_fetch_offset() < self.log.high_watermark


def within_log(led: LedPartition, state: StoredState) -> StoredState:
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

    def cut(batch: StateBatch) -> StateBatch:
        return batch._replace(last_offset=min(batch.last_offset, end_offset - 1))

    return state._replace(
        start_offset=min(state.start_offset, end_offset),
        batches=tuple(cut(batch) for batch in state.batches if batch.first_offset < end_offset),
        pending=tuple(
            pending._replace(batch=cut(pending.batch))
            for pending in state.pending
            if pending.batch.first_offset < end_offset
        ),
    )
