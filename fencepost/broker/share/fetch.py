"""A ShareFetch: acquire what is available of a session's partitions, or wait for it (Kafka's `DelayedShareFetch`).

It looks at those alone that may have something: the session knows them (`ShareSession.ready`).
"""

import math
from collections.abc import Generator, Mapping
from functools import partial

import trio

from fencepost.broker.fetch.reads import LEAST_BYTES
from fencepost.broker.log.log_store import Missing
from fencepost.broker.log.reading import readable_bytes
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.broker.network.context import LargeWork
from fencepost.broker.ports import Broker
from fencepost.broker.share.led import LedPartition
from fencepost.broker.share.partitions import SharePartitions
from fencepost.broker.share.reading import LaterRecords, SharedRead, times_in
from fencepost.broker.share.requests import STEP_PARTITIONS, in_steps
from fencepost.broker.share.sessions import MemberKey, ShareSession, TopicIdPartition
from fencepost.broker.share.values import AcquireMode, Want
from fencepost.protocol.batch_header import BatchHeader
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api78_share_fetch import AcquiredRecords, PartitionData, ShareFetchRequest
from fencepost.protocol.topics import TopicPartition

WAIT_MS_MAX = 600_000
"""The longest wait, whatever the client asks for: the default of `connections.max.idle.ms`."""


class ShareFetch:
    """One request for records. `answers` has an entry for each partition that was read or cannot be used."""

    def __init__(
        self,
        node: Broker,
        shares: SharePartitions,
        request: ShareFetchRequest,
        member: MemberKey,
        session: ShareSession,
        names: Mapping[TopicIdPartition, TopicPartition | ErrorCode],
    ) -> None:
        """`names`: the session's partitions that are ready or to check."""
        self._node, self._shares, self._member, self._session, self._names = node, shares, member, session, names
        self._wait_ms = min(max(request.max_wait_ms, 0), WAIT_MS_MAX)
        self._bytes_max = max(0, min(request.max_bytes, node.config.fetch_max_bytes))
        self._bytes_min = min(request.min_bytes, self._bytes_max)
        self._records_max = request.max_records
        self._asks_delays = request.delays
        self._batch_size = max(1, request.batch_size)
        self._mode = AcquireMode(request.share_acquire_mode)
        self._isolation = node.share_settings(member.group_id).isolation_level
        self.answers: dict[TopicIdPartition, PartitionData] = {}
        self._failed: set[str] = set()
        """Topics with partitions that cannot be used."""
        self._missing: list[Missing] = []
        """What the last look found to be elsewhere."""
        self._unread: tuple[LedPartition, BatchHeader, memoryview] | None = None
        """A batch whose headers a thread has to read first."""
        self._has_records = False
        self._wants_some = self._records_max > 0 and self._bytes_max > 0

    async def run(self, large: LargeWork | None) -> None:
        """Acquire as soon as `min_bytes` may be read, a partition fails, or the time is over; count what failed."""
        await in_steps(large, self._begin())
        self._session.fetched()
        try:
            await self._run(large)
        finally:
            self._session.pass_on()
        for topic in self._failed:
            if (counters := self._node.metrics.topics.get(topic)) is not None:  # it may be deleted by now
                counters.failed_share_fetch_requests += 1

    def _begin(self) -> Generator[None, None, None]:
        """Begin the share partitions, unless no records are wanted (SharePartitionManager.processShareFetch)."""
        for number, (part, name) in enumerate(self._names.items(), 1):
            if isinstance(name, ErrorCode):
                self._refuse(part, name)
            elif self._wants_some:
                found = self._shares.begin(self._member.group_id, part, name)
                if isinstance(found, ErrorCode):
                    self._refuse(part, found, name.topic)
                else:
                    self._session.begun(part, found)
            if number % STEP_PARTITIONS == 0:
                yield

    async def _run(self, large: LargeWork | None) -> None:
        deadline = trio.current_time() + self._wait_ms / 1000
        acquired, session = not self._wants_some, self._session
        while len(session.partitions) > len(session.to_check) and not acquired:
            left_s = deadline - trio.current_time()
            if not self._is_ready() and left_s > 0 and not self._node.purgatory.closed:
                with self._node.purgatory.park([session]) as parked:
                    await parked.wait_until(self._is_ready, math.ceil(left_s * 1000))
            before = self._positions()
            acquired = await in_steps(large, self._acquire())
            if self._unread is not None:
                await self._read_times(*self._unread)
                continue
            stays = not acquired and not self._missing and self._positions() == before
            if acquired or left_s <= 0 or self._node.purgatory.closed or stays:
                break
            await trio.lowlevel.checkpoint()  # all that was read may be held back

    async def _read_times(self, led: LedPartition, header: BatchHeader, piece: memoryview) -> None:
        """Find out when the records of a batch may come."""
        self._unread = None
        look = partial(times_in, header, piece, led.log.config.message_max_decompressed_bytes)
        led.note_times(header.base_offset, await trio.to_thread.run_sync(look))

    def _positions(self) -> list[int]:
        return [led.core.next_fetch_offset() for led in self._session.ready.values() if led.active]

    def _is_ready(self) -> bool:
        """Whether to read now: enough bytes behind the next records to acquire, or a partition that cannot be used."""
        total, some = 0, False
        for part, led in list(self._session.ready.items()):
            if led.error or led.log.disowned:
                return True
            if not led.can_deliver():
                self._session.rest(part)
                continue
            try:
                self._follow_log_start(led)
                offset = max(led.core.next_fetch_offset(), led.log.log_start_offset)
                size = self._shares.kept.size_bytes(led, offset, self._isolation)  # of more that may be read
                if size < self._bytes_min or not size:
                    size = readable_bytes(led.log, offset, self._isolation)
            except (OSError, CorruptLogFile):
                return True  # the read raises the same error, and reports it
            total, some = total + size, some or size > 0
            if not size:
                self._session.rest(part)
        arrived = not self._missing or any(missing.arrived for missing in self._missing)
        is_ready = arrived and some and total >= self._bytes_min
        if not is_ready:
            self._session.wait()
        return is_ready

    def _follow_log_start(self, led: LedPartition) -> None:
        if led.log.log_start_offset > led.core.start_offset:
            led.core.log_start_moved(led.log.log_start_offset)

    def _acquire(self) -> Generator[None, None, bool]:
        """Acquire of every partition that is ready; whether anything was acquired or failed."""
        usable: list[tuple[TopicIdPartition, LedPartition]] = []
        self._missing.clear()
        for number, (part, led) in enumerate(list(self._session.ready.items()), 1):
            if led.error or self._shares.find(self._member.group_id, part) is not led:
                self._refuse(part, led.error or ErrorCode.NOT_LEADER_OR_FOLLOWER, led.tp.topic)
            elif led.can_deliver():
                usable.append((part, led))
            if number % STEP_PARTITIONS == 0:
                yield
        if not usable:
            return bool(self.answers)
        bytes_max = min(self._bytes_max, self._node.response_bytes.left(LEAST_BYTES))
        each, left = bytes_max // len(usable), self._records_max
        for number, (part, led) in enumerate(usable, 1):
            if left > 0 and not led.error:
                left -= self._acquire_of(part, led, each, left)
            if number % STEP_PARTITIONS == 0:
                yield
        return bool(self.answers)

    def _acquire_of(self, part: TopicIdPartition, led: LedPartition, bytes_max: int, records_max: int) -> int:
        """Read and acquire; how many records that were."""
        core, log = led.core, led.log
        self._follow_log_start(led)
        offset = core.next_fetch_offset()
        read = self._shares.kept.read(
            led,
            offset,
            max(bytes_max, 1),
            records_max + max(core.end_offset - offset, 0),  # all others up to the end may be in flight
            self._isolation,
            at_least_one=not self._has_records,  # ReplicaManager.readFromLog: one batch too long in a response
        )
        if read.error and read.error is not ErrorCode.OFFSET_OUT_OF_RANGE:
            self._refuse(part, read.error, led.tp.topic)
            return 0
        if read.missing is not None:
            self._missing.append(read.missing)
            return 0
        keeps_times = log.config.share_not_before_enable
        if keeps_times:
            later = LaterRecords(
                log.config.message_max_decompressed_bytes, self._node.clock.now_ms(), self._shares.now_ms
            )
            found = later.find(read, core.has_new, led.times, records_max)
            if not isinstance(found, SharedRead):
                self._unread = (led, *found)
                return 0
            read = found
        want = Want(records_max, self._batch_size, self._mode)
        acquired = core.acquire(self._member.member_id, read.fetched, want, self._shares.now_ms)
        self._shares.set_timer(led)
        if not acquired:
            return 0
        counters = self._node.metrics.topic(led.tp.topic)
        records = read.records(acquired)
        counters.bytes_out += sum(map(len, records))
        self._has_records = True
        self._session.served(part)
        self.answers[part] = PartitionData(
            partition_index=part.partition,
            records=records,
            acquired_records=[
                AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                for first, last, count in acquired
            ],
            keeps_times=keeps_times and self._asks_delays,
        )
        count = sum(one.last_offset - one.first_offset + 1 for one in acquired)
        self._node.metrics.share_group(self._member.group_id).acquired += count
        return count

    def _refuse(self, part: TopicIdPartition, error: ErrorCode, topic: str | None = None) -> None:
        """Answer a partition that the next fetch checks again."""
        self._session.lose(part)
        if topic is not None:
            self._failed.add(topic)
        self.answers[part] = PartitionData(partition_index=part.partition, error_code=error, records=b"")
