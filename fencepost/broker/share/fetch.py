"""A ShareFetch: acquire what is available of a session's partitions, or wait for it (Kafka's `DelayedShareFetch`)."""

import math
from collections.abc import Mapping

import trio

from fencepost.broker.fetch.reads import LEAST_BYTES
from fencepost.broker.log.log_store import Missing
from fencepost.broker.log.reading import readable_bytes
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.broker.ports import Broker
from fencepost.broker.purgatory import Watched
from fencepost.broker.share.led import LedPartition
from fencepost.broker.share.partitions import SharePartitions
from fencepost.broker.share.reading import read_for
from fencepost.broker.share.sessions import MemberKey, TopicIdPartition
from fencepost.broker.share.values import AcquireMode, Want
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
        names: Mapping[TopicIdPartition, TopicPartition | ErrorCode],
    ) -> None:
        """`names`: the session's partitions, in the order in which they are to be read."""
        self._node, self._shares, self._member = node, shares, member
        self._wait_ms = min(max(request.max_wait_ms, 0), WAIT_MS_MAX)
        self._bytes_max = max(0, min(request.max_bytes, node.config.fetch_max_bytes))
        self._bytes_min = min(request.min_bytes, self._bytes_max)
        self._records_max = request.max_records
        self._batch_size = max(1, request.batch_size)
        self._mode = AcquireMode(request.share_acquire_mode)
        self._isolation = node.share_settings(member.group_id).isolation_level
        self.answers: dict[TopicIdPartition, PartitionData] = {}
        self._topics = {part: name.topic for part, name in names.items() if isinstance(name, TopicPartition)}
        for topic in set(self._topics.values()):
            node.metrics.topic(topic).share_fetch_requests += 1
        self._wanted: dict[TopicIdPartition, LedPartition] = {}
        self._missing: list[Missing] = []
        """What the last look found to be elsewhere."""
        self._has_records = False
        wants_some = self._records_max > 0 and self._bytes_max > 0
        for part, name in names.items():
            found = name if isinstance(name, ErrorCode) else shares.begin(member.group_id, part, name)
            if isinstance(found, ErrorCode):
                self._refuse(part, found)
            elif wants_some:
                self._wanted[part] = found

    async def run(self) -> None:
        """Acquire as soon as `min_bytes` may be read, a partition fails, or the time is over; count what failed."""
        await self._run()
        failed = {part for part, answer in self.answers.items() if answer.error_code}
        for topic in {topic for part, topic in self._topics.items() if part in failed}:
            if (counters := self._node.metrics.topics.get(topic)) is not None:  # it may be deleted by now
                counters.failed_share_fetch_requests += 1

    async def _run(self) -> None:
        deadline = trio.current_time() + self._wait_ms / 1000
        acquired = False
        while self._wanted and not acquired:
            left_s = deadline - trio.current_time()
            if not self._is_ready() and left_s > 0 and not self._node.purgatory.closed:
                watched: list[Watched] = [*self._wanted.values(), *(led.log for led in self._wanted.values())]
                with self._node.purgatory.park(watched) as parked:
                    await parked.wait_until(self._is_ready, math.ceil(left_s * 1000))
            before = self._positions()
            acquired = self._acquire()
            stays = not acquired and not self._missing and self._positions() == before
            if left_s <= 0 or self._node.purgatory.closed or stays:
                break

    def _positions(self) -> list[int]:
        return [led.core.next_fetch_offset() for led in self._wanted.values() if led.active]

    def _is_ready(self) -> bool:
        """Whether to read now: enough bytes behind the next records to acquire, or a partition that cannot be used."""
        total, some = 0, False
        for led in self._wanted.values():
            if led.error or led.log.disowned:
                return True
            if not led.can_deliver():
                continue
            try:
                offset = max(led.core.next_fetch_offset(), led.log.log_start_offset)
                size = readable_bytes(led.log, offset, self._isolation)
            except (OSError, CorruptLogFile):
                return True  # the read raises the same error, and reports it
            total, some = total + size, some or size > 0
        arrived = not self._missing or any(missing.arrived for missing in self._missing)
        return arrived and some and total >= self._bytes_min

    def _acquire(self) -> bool:
        """Acquire of every partition that has something; whether anything was acquired or failed."""
        usable: list[tuple[TopicIdPartition, LedPartition]] = []
        self._missing.clear()
        for part, led in list(self._wanted.items()):
            if led.error or self._shares.find(self._member.group_id, part) is not led:
                self._refuse(part, led.error or ErrorCode.NOT_LEADER_OR_FOLLOWER)
                del self._wanted[part]
            elif led.can_deliver():
                usable.append((part, led))
        if not usable:
            return bool(self.answers)
        bytes_max = min(self._bytes_max, self._node.response_bytes.left(LEAST_BYTES))
        each, left = bytes_max // len(usable), self._records_max
        for part, led in usable:
            if left > 0:
                left -= self._acquire_of(part, led, each, left)
        return bool(self.answers)

    def _acquire_of(self, part: TopicIdPartition, led: LedPartition, bytes_max: int, records_max: int) -> int:
        """Read and acquire; how many records that were."""
        core, log = led.core, led.log
        if log.log_start_offset > core.start_offset:
            core.log_start_moved(log.log_start_offset)
        offset = core.next_fetch_offset()
        read = read_for(
            log,
            offset,
            max(bytes_max, 1),
            records_max + core.in_flight,
            self._isolation,
            at_least_one=not self._has_records,  # ReplicaManager.readFromLog: one batch too long in a response
        )
        if read.error and read.error is not ErrorCode.OFFSET_OUT_OF_RANGE:
            self._refuse(part, read.error)
            return 0
        if read.missing is not None:
            self._missing.append(read.missing)
            return 0
        want = Want(records_max, self._batch_size, self._mode)
        acquired = core.acquire(self._member.member_id, read.fetched, want, self._shares.now_ms)
        self._shares.changed(led)
        if not acquired:
            return 0
        counters = self._node.metrics.topic(led.tp.topic)
        records = read.records(acquired)
        counters.bytes_out += sum(map(len, records))
        self._has_records = True
        self.answers[part] = PartitionData(
            partition_index=part.partition,
            records=records,
            acquired_records=[
                AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                for first, last, count in acquired
            ],
        )
        count = sum(one.last_offset - one.first_offset + 1 for one in acquired)
        self._node.metrics.share_group(self._member.group_id).acquired += count
        return count

    def _refuse(self, part: TopicIdPartition, error: ErrorCode) -> None:
        self.answers[part] = PartitionData(partition_index=part.partition, error_code=error, records=b"")
