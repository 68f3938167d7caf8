"""Acquired records as they arrive: messages for the program, and an acknowledgement at once for all others."""

import logging
import time
from functools import partial
from typing import Any, NamedTuple

import anyio
import anyio.to_thread

from fencepost.client.config import QueueConfig
from fencepost.client.consumer.chunk import unpacks_apart
from fencepost.client.consumer.consumed import deserialized
from fencepost.client.consumer.read_errors import DeserializationError
from fencepost.client.core.acknowledgements import AcknowledgeType
from fencepost.client.core.acquired_records import AcquiredRange, sort_out
from fencepost.client.core.held_records import HeldRecord
from fencepost.client.core.share_session import Place
from fencepost.client.lookups import Lookups
from fencepost.client.network.cluster import Cluster
from fencepost.client.queues.hand import Hand
from fencepost.client.queues.message import DELAY_S_MAX, Message
from fencepost.protocol.batch_header import Buffer, CorruptBatch, iter_headers
from fencepost.protocol.not_before import not_before_ms
from fencepost.protocol.records import Record
from fencepost.protocol.topics import TopicPartition

_LOG = logging.getLogger(__name__)


class Arrived(NamedTuple):
    """What a ShareFetch response acquired of one partition."""

    place: Place
    ranges: list[AcquiredRange]
    held: dict[int, HeldRecord]
    """By offset."""
    records: Buffer
    keeps_times: bool
    """Whether the broker gives no record before its time."""


class Arrivals:
    """Takes in what fetches acquired."""

    def __init__(self, cluster: Cluster, config: QueueConfig, hand: Hand) -> None:
        self._cluster = cluster
        self._config = config
        self._hand = hand
        self._lookups = Lookups(config.key_deserializer, config.value_deserializer)

    def hold(self, place: Place, part: Any, lock_s: float, broker_delays: bool) -> Arrived:
        """Hold what one partition's part of a ShareFetch response acquired, as of now; then `take_in`."""
        ranges = [AcquiredRange(one.first_offset, one.last_offset, one.delivery_count) for one in part.acquired_records]
        held = self._hand.held.acquired(place, ranges, anyio.current_time(), lock_s, broker_delays)
        return Arrived(place, ranges, held, part.records or b"", part.keeps_times)

    async def take_in(self, arrived: Arrived) -> int:
        """Give what can be read to the program, and acknowledge the rest; return how many records could be read."""
        hand, config = self._hand, self._config
        place, ranges, held, batches, keeps_times = arrived
        partition = TopicPartition(self._cluster.names.get(place[0], "?"), place[1])
        sort = partial(sort_out, batches, ranges, config.check_crcs, config.max_decompressed_bytes)
        found = await anyio.to_thread.run_sync(sort) if _are_large(batches) else sort()
        for wrong in found.errors:
            _LOG.warning("queue of %s: %s cannot be read: %s", config.group_id, partition, wrong)
        for offset in found.gaps:
            hand.decide(held[offset], AcknowledgeType.GAP)
        for offset in found.damaged:
            hand.decide(held[offset], AcknowledgeType.REJECT)
        for offset in found.unread:
            record = held[offset]
            hand.decide(record, AcknowledgeType.RELEASE, hand.retry_delay_s(record.delivery_count))
        if self._lookups and not await self._look_up(partition, found.records):
            for one, _ in found.records:
                record = held[one.offset]
                hand.decide(record, AcknowledgeType.RELEASE, hand.retry_delay_s(record.delivery_count))
            return len(found.records)
        now_s = time.time()
        for one, _ in found.records:
            early_s = 0.0 if keeps_times else (not_before_ms(one.headers) or 0) / 1000 - now_s
            if hand.is_stopping or early_s > 0:
                hand.decide(held[one.offset], AcknowledgeType.RELEASE, min(max(early_s, 0), DELAY_S_MAX))
            else:
                self._deliver(partition, one, held[one.offset])
        return len(found.records)

    async def _look_up(self, partition: TopicPartition, records: list[tuple[Record, int]]) -> bool:
        """Wait for the schemas of the deserializers; False, and a failure for the program, if they cannot be had."""
        try:
            await self._lookups.look_up((partition.topic, one.headers, one.key, one.value) for one, _ in records)
        except Exception as error:  # noqa: BLE001 - the program's next call raises it
            self._hand.fail(error)
            return False
        return True

    def _deliver(self, partition: TopicPartition, record: Record, held: HeldRecord) -> None:
        try:
            consumed = deserialized(partition, record, self._config)
        except DeserializationError as wrong:
            _LOG.warning("queue of %s: rejected a record: %s", self._config.group_id, wrong)
            self._hand.decide(held, AcknowledgeType.REJECT)
            return
        self._hand.buffer.append(Message(self._hand, held, consumed))


def _are_large(batches: Buffer) -> bool:
    """Whether unpacking them would hold up the event loop."""
    try:
        return any(unpacks_apart(header) for _, header in iter_headers(batches))
    except CorruptBatch:
        return False  # `sort_out` finds it again
