"""Acquired records as they arrive: messages for the program, and an acknowledgement at once for all others."""

import logging
import time
from typing import Any

import anyio

from fencepost.client.config import QueueConfig
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
from fencepost.protocol.not_before import not_before_ms
from fencepost.protocol.records import Record
from fencepost.protocol.topics import TopicPartition

_LOG = logging.getLogger(__name__)


class Arrivals:
    """Takes in what fetches acquired."""

    def __init__(self, cluster: Cluster, config: QueueConfig, hand: Hand) -> None:
        self._cluster = cluster
        self._config = config
        self._hand = hand
        self._lookups = Lookups(config.key_deserializer, config.value_deserializer)

    async def take_in(self, place: Place, part: Any, lock_s: float, broker_delays: bool) -> None:
        """One partition's part of a ShareFetch response."""
        hand, config = self._hand, self._config
        ranges = [AcquiredRange(one.first_offset, one.last_offset, one.delivery_count) for one in part.acquired_records]
        held = hand.held.acquired(place, ranges, anyio.current_time(), lock_s, broker_delays)
        partition = TopicPartition(self._cluster.names.get(place[0], "?"), place[1])
        found = sort_out(part.records, ranges, config.check_crcs, config.max_decompressed_bytes)
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
            return
        now_s = time.time()
        for one, _ in found.records:
            early_s = 0.0 if part.keeps_times else (not_before_ms(one.headers) or 0) / 1000 - now_s
            if hand.is_stopping or early_s > 0:
                hand.decide(held[one.offset], AcknowledgeType.RELEASE, min(max(early_s, 0), DELAY_S_MAX))
            else:
                self._deliver(partition, one, held[one.offset])

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
