"""The shards of one internal topic: loading, finding, timers, unloading. What Kafka calls CoordinatorRuntime."""

import logging
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

import trio

from fencepost.coordinator.decision import Decision
from fencepost.coordinator.partitioning import partition_for
from fencepost.coordinator.ports import (
    Clock,
    CoordinatorLog,
    CoordinatorLogs,
    LogNotHere,
    LogReadFailed,
    LogSuperseded,
    LogUnreadable,
    LogWriteFailed,
    ProducerTag,
    ReplayedBatch,
)
from fencepost.coordinator.runtime.shard import EffectT, Machine, RecordT, ReplyT, Shard, StateT
from fencepost.coordinator.runtime.timers import KeyT, Timers
from fencepost.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

CACHED_IDS = 10_000
"""How many ids the runtime finds without hashing them again."""
RETRY_MS = 1000
"""After this time a timer fires again whose work failed."""
READ_AGAIN_SECONDS = 10.0
"""After this time a log is read again of which the disk failed to read something. A read that fails can take long."""
BATCHES_AT_ONCE = 1_000
"""How many batches a load folds before other tasks may run."""

ShardT = TypeVar("ShardT", contravariant=True)
TimerT = TypeVar("TimerT", contravariant=True)


class RuntimeHooks(Protocol[ShardT, TimerT]):
    """What a coordinator does besides deciding."""

    def loaded(self, shard: ShardT) -> None:
        """The shard is active: start its timers and resume its unfinished work."""

    def unloading(self, shard: ShardT, code: ErrorCode) -> None:
        """The shard is about to be closed: end its tasks, answer its waiting requests with `code`."""

    def id_of(self, timer: TimerT) -> str:
        """The id (transactional id, group id) that a timer belongs to."""

    async def expire(self, timer: TimerT) -> None:
        """A timer expired."""


class CoordinatorRuntime(Generic[StateT, RecordT, KeyT]):
    """All shards of one coordinator on this broker.

    A shard is loading (COORDINATOR_LOAD_IN_PROGRESS), active, failed because its log cannot be read
    (COORDINATOR_NOT_AVAILABLE), or not owned (NOT_COORDINATOR): `Shard.refusal`. A partition without a log is active
    from its first use.
    """

    def __init__(
        self,
        topic: str,
        logs: CoordinatorLogs,
        clock: Clock,
        machine: Machine[StateT, RecordT],
        hooks: RuntimeHooks[Shard[StateT, RecordT], KeyT],
        timer_interval_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`timer_interval_s`: the shortest sleep of the task that watches the timers, in seconds."""
        self.topic = topic
        self.timers: Timers[KeyT] = Timers()
        self.failed_expiries = 0
        """Timers and rounds of expiry that failed with an unexpected error."""
        self._logs = logs
        self._count = logs.count
        self._clock = clock
        self._machine = machine
        self._hooks = hooks
        self._timer_interval_s = timer_interval_s
        self._shards: dict[int, Shard[StateT, RecordT]] = {}
        self._by_id: dict[str, Shard[StateT, RecordT]] = {}
        self._loading: dict[int, trio.Event] = {}
        self._to_load: set[int] = set()
        self._unread: set[int] = set()
        """Partitions to load again after READ_AGAIN_SECONDS."""
        self._reload_wanted = trio.Event()
        self._earlier_timer = trio.Event()

    @property
    def count(self) -> int:
        """The number of partitions of the topic."""
        return self._count

    # Finding

    def partition_for(self, name: str) -> int:
        """The partition that holds an id."""
        return partition_for(name, self._count)

    def find(self, name: str) -> Shard[StateT, RecordT] | None:
        """The shard of an id; None if its partition has no shard yet."""
        shard = self._by_id.get(name)
        if shard is None and (shard := self._shards.get(self.partition_for(name))) is not None:
            if len(self._by_id) >= CACHED_IDS:
                self._by_id.clear()
            self._by_id[name] = shard
        return shard

    def shard_of(self, name: str) -> Shard[StateT, RecordT]:
        """The shard of an id, made on first use."""
        return self._by_id.get(name) or self.find(name) or self._first_use(self.partition_for(name))

    def at(self, partition: int) -> Shard[StateT, RecordT] | None:
        """The shard of a partition; None if it has no shard yet."""
        return self._shards.get(partition)

    def shards(self) -> list[Shard[StateT, RecordT]]:
        """Every shard, active or not."""
        return list(self._shards.values())

    def refusal(self, name: str) -> ErrorCode:
        """The error of every request for this id now; NONE if its shard is active or was never used."""
        shard = self.find(name)
        return ErrorCode.NONE if shard is None else shard.refusal

    def takes_markers(self, partition: int) -> bool:
        """Whether a transaction's marker may be written there: not while the log cannot be read (T8)."""
        shard = self.at(partition)
        return shard is None or shard.refusal in (ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def _first_use(self, partition: int) -> Shard[StateT, RecordT]:
        try:
            log = self._logs.log(partition)
        except LogUnreadable as error:
            # Nothing was ever written there, so nothing can be lost. The next request tries again.
            logger.error("%s-%d cannot be opened: %s; its requests fail until it can", self.topic, partition, error)
            refusing = Shard(partition, self._clock, self._machine)
            refusing.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
            return refusing
        shard = self._shard(partition)
        self._open(shard, log, self._machine.empty())
        return shard

    def _shard(self, partition: int) -> Shard[StateT, RecordT]:
        shard = self._shards.get(partition)
        if shard is None:
            shard = self._shards[partition] = Shard(partition, self._clock, self._machine)
        return shard

    # Loading and unloading

    async def load_all(self) -> None:
        """Load every partition that has a log."""
        for partition in sorted(self._logs.existing()):
            await self.load(partition)
            await trio.lowlevel.checkpoint()

    async def load(self, partition: int) -> None:
        """Replay the log of a partition and serve it. An unreadable log is reported and stays unavailable.

        If only a read failed, `serve` tries again. (Kafka: the log directory goes offline, and the next leader loads.)
        Nothing happens if the shard is active already, or if `unload` is called before the end.
        """
        shard = self._shard(partition)
        if not shard.refusal:
            return
        self._unread.discard(partition)
        shard.close(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the shard is loading")
        self._end_loading(partition)
        attempt = self._loading[partition] = trio.Event()
        try:
            found = await self._replay(shard, attempt)
        except LogUnreadable as error:
            self._fail(shard, error)
        else:
            if found is not None:
                self._open(shard, *found)
                self._hooks.loaded(shard)
        finally:
            if self._loading.get(partition) is attempt:
                self._end_loading(partition)

    async def _replay(self, shard: Shard[StateT, RecordT], attempt: trio.Event) -> tuple[CoordinatorLog, StateT] | None:
        """The log of a shard and the state it folds to; None if the attempt was ended. Raises LogUnreadable."""
        partition = shard.partition
        while self._loading.get(partition) is attempt:
            state, unknown = self._machine.empty(), 0
            try:
                log = self._logs.log(partition)
                log.listener = _Listener(self, shard)
                for number, batch in enumerate(log.replay(), 1):
                    unknown += self._machine.replay(state, batch)
                    if number % BATCHES_AT_ONCE == 0:
                        await trio.lowlevel.checkpoint()
                        if self._loading.get(partition) is not attempt:
                            return None
            except LogNotHere as error:
                await error.arrived()
            else:
                if unknown:
                    logger.warning("%s-%d: skipped %d records of unknown kinds", self.topic, partition, unknown)
                return log, state
        return None

    def _open(self, shard: Shard[StateT, RecordT], log: CoordinatorLog, state: StateT) -> None:
        log.listener = _Listener(self, shard)
        shard.open(log, state)

    def _fail(self, shard: Shard[StateT, RecordT], error: LogUnreadable) -> None:
        remedy = "run `fencepost verify`, restore the file from a backup and restart the broker"
        if isinstance(error, LogReadFailed):
            self._unread.add(shard.partition)
            self._reload_wanted.set()
            remedy = f"the broker reads it again in {READ_AGAIN_SECONDS:.0f} s; if that fails again, check the disk"
        logger.error(
            "%s-%d cannot be replayed: until it can, requests for its ids fail with COORDINATOR_NOT_AVAILABLE and its"
            " log does not change, all other partitions work: %s; %s",
            *(self.topic, shard.partition, error, remedy),
        )
        shard.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))

    def unload(self, partition: int) -> None:
        """Give up a partition: its waiting requests fail with NOT_COORDINATOR, its timers stop, its state is freed."""
        self._close(self._shard(partition), ErrorCode.NOT_COORDINATOR, "another broker owns the shard")

    def allow(self, partition: int) -> None:
        """This broker owns the partition, which has no log yet: it is active from its first use."""
        shard = self._shards.get(partition)
        if shard is not None and shard.refusal is ErrorCode.NOT_COORDINATOR:
            del self._shards[partition]
            self._by_id.clear()

    def superseded(self, shard: Shard[StateT, RecordT]) -> None:
        """Appends of an active shard were refused: replay its log again, with what the other writer appended."""
        if shard.refusal:
            return
        self._close(shard, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "another writer's rows came first")
        self._loading[shard.partition] = trio.Event()
        self._to_load.add(shard.partition)
        self._reload_wanted.set()

    def apply_external(self, shard: Shard[StateT, RecordT], batch: ReplayedBatch) -> None:
        """Fold a batch that another writer appended into the state of an active shard."""
        if not shard.refusal:
            self._machine.replay(shard.state, batch)

    def _close(self, shard: Shard[StateT, RecordT], code: ErrorCode, why: str) -> None:
        if not shard.refusal:
            self._hooks.unloading(shard, code)
            if code is ErrorCode.NOT_COORDINATOR:
                self._catch_up(shard)
        self._to_load.discard(shard.partition)
        self._unread.discard(shard.partition)
        shard.close(code, why)
        self.timers.stop_all(lambda timer: self.partition_for(self._hooks.id_of(timer)) == shard.partition)
        self._end_loading(shard.partition)

    def _end_loading(self, partition: int) -> None:
        attempt = self._loading.pop(partition, None)
        if attempt is not None:
            attempt.set()

    def _catch_up(self, shard: Shard[StateT, RecordT]) -> None:
        """Append a shard's noted records before it closes. What its log refuses follows from the rest of the log."""
        try:
            shard.catch_up()
        except LogWriteFailed as error:
            logger.warning(
                "%s-%d is unloaded without its last records, which follow from the others when it is loaded: %s",
                self.topic,
                shard.partition,
                error,
            )

    async def loaded(self, shard: Shard[StateT, RecordT]) -> None:
        """Return when the shard is loaded. Raises LogWriteFailed with the error of its requests if it is not active."""
        while (attempt := self._loading.get(shard.partition)) is not None:
            await attempt.wait()
        if shard.refusal:
            raise LogWriteFailed(shard.refusal, f"{self.topic}-{shard.partition} is not active")

    # Commands

    async def run(
        self,
        name: str,
        decide: Callable[[StateT, int], Decision[RecordT, ReplyT, EffectT]],
        producer: ProducerTag | None = None,
        decided: Callable[[Decision[RecordT, ReplyT, EffectT]], None] = lambda decision: None,
    ) -> Decision[RecordT, ReplyT, EffectT]:
        """Run a command against the shard of an id; return when its reply may be sent and its follow-ups may begin.

        `decided` is called when the decision is in the log, before it is durable. If another writer's rows came first,
        the command is decided again on the new state. Not so a write of a transaction (`producer`): its caller has to
        verify the transaction again, so it fails with COORDINATOR_LOAD_IN_PROGRESS. Raises LogWriteFailed.
        """
        while True:
            shard = self.shard_of(name)
            decision, ticket = shard.decide(decide, producer)
            decided(decision)
            try:
                await ticket.durable()
            except LogSuperseded as error:
                if producer is not None:
                    raise LogWriteFailed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error)) from error
                await self.loaded(shard)
            else:
                return decision

    # Timers

    def set_timer(self, key: KeyT, delay_ms: int | None) -> None:
        """Start or restart a timer; stop it if the delay is None."""
        if delay_ms is None:
            self.timers.stop(key)
        elif self.timers.set(key, self._clock.monotonic() + delay_ms / 1000):
            self._earlier_timer.set()

    def set_timers(self, delays: Iterable[tuple[KeyT, int | None]]) -> None:
        """As `set_timer`, for many."""
        if self.timers.set_many(delays, self._clock.monotonic()):
            self._earlier_timer.set()

    async def serve(self) -> None:
        """Fire timers, and load shards again that were superseded or could not be read, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_timers)
            nursery.start_soon(self._reload)

    async def _watch_timers(self) -> None:
        while True:
            for key in self.timers.due(self._clock.monotonic()):
                await self._expire(key)
            self._earlier_timer = trio.Event()
            deadline = self.timers.next_deadline()
            delay_s = math.inf
            if deadline is not None:
                delay_s = max(deadline - self._clock.monotonic(), self._timer_interval_s(), 0)
            with trio.move_on_after(delay_s):
                await self._earlier_timer.wait()

    async def _expire(self, key: KeyT) -> None:
        """An error of one timer ends no other: it is counted, and the timer fires again after RETRY_MS."""
        try:
            await self._hooks.expire(key)
        except Exception:
            self.failed_expiries += 1
            logger.exception("%s: the timer of %s failed, the broker tries again", self.topic, key)
            self.set_timer(key, RETRY_MS)

    @contextmanager
    def expiring(self, shard: Shard[StateT, RecordT]) -> Iterator[None]:
        """An error of one shard's expiry ends that of no other: it is counted, and the next round tries again."""
        try:
            yield
        except Exception:
            self.failed_expiries += 1
            logger.exception("%s-%d: expiry failed, the broker tries again", self.topic, shard.partition)

    async def _reload(self) -> None:
        while True:
            with trio.move_on_after(READ_AGAIN_SECONDS if self._unread else math.inf) as pause:
                await self._reload_wanted.wait()
            self._reload_wanted = trio.Event()
            if pause.cancelled_caught:
                self._to_load |= self._unread
            while self._to_load:
                await self.load(self._to_load.pop())


class _Listener(Generic[StateT, RecordT, KeyT]):
    """Passes a log's reports about other writers to the runtime."""

    def __init__(self, runtime: CoordinatorRuntime[StateT, RecordT, KeyT], shard: Shard[StateT, RecordT]) -> None:
        self._runtime = runtime
        self._shard = shard

    def apply_external(self, batch: ReplayedBatch) -> None:
        """Fold a batch of another writer into the state."""
        self._runtime.apply_external(self._shard, batch)

    def superseded(self) -> None:
        """Load the shard again."""
        self._runtime.superseded(self._shard)

    def fenced(self) -> None:
        """Unload the shard."""
        self._runtime.unload(self._shard.partition)
