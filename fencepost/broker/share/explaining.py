"""The states of single records, for DescribeShareGroupOffsets with the tag `explain` (fencepost's; Kafka has none)."""

from collections.abc import Iterable, Iterator
from itertools import islice

import trio

from fencepost.broker.ports import Broker
from fencepost.broker.share.describing import StateRange, stored_ranges
from fencepost.broker.share.sessions import TopicIdPartition
from fencepost.coordinator.share.values import UNINITIALIZED, ShareKey, StoredState
from fencepost.protocol.messages.api90_describe_share_group_offsets import RecordStates
from fencepost.protocol.messages.api90_describe_share_group_offsets import StateRange as ShownRange
from fencepost.protocol.topics import TopicPartition

RANGES_MAX = 10_000
"""How many ranges of one broker a response has at most."""

STORED_SECONDS = 3.0
"""How long one response waits for stored states: the broker that keeps them may be another one, which is down.

Less than `PATIENCE_SECONDS` of `peers/remote_ends.py`, for which the group's coordinator waits for that response.
"""


class Explanations:
    """Those of one response."""

    def __init__(self, node: Broker) -> None:
        self._node = node
        self._stored = node.place.share_persister(node)
        self._left = RANGES_MAX
        self._until = trio.current_time() + STORED_SECONDS

    async def of(self, key: ShareKey, partition: TopicPartition) -> RecordStates | None:
        """The states of a share partition: as its leader has them, or as stored while no member uses it.

        None if this broker does not lead the partition, no leader has found out yet where the group begins, or the
        stored states cannot be read.
        """
        node = self._node
        log = node.partition(partition)
        if log is None:
            return None
        led = node.shares.find(key.group_id, TopicIdPartition(key.topic_id, key.partition))
        if led is not None and led.active:
            core = led.core
            after = core.end_offset + 1 if core.in_flight else core.start_offset
            return self._states(core.start_offset, after, core.ranges(node.shares.now_ms))
        stored: StoredState | None = None
        with trio.move_on_at(self._until):
            stored = await self._stored.read(key, log.leader_epoch)
        if stored is None or stored.error or stored.start_offset == UNINITIALIZED:
            return None
        found = stored_ranges(stored, node.clock.now_ms())
        after = found[-1].last_offset + 1 if found else stored.start_offset
        return self._states(stored.start_offset, after, found)

    def _states(self, start_offset: int, next_offset: int, found: Iterable[StateRange]) -> RecordStates:
        rest: Iterator[StateRange] = iter(found)
        shown = [
            ShownRange(
                first_offset=one.first_offset,
                last_offset=one.last_offset,
                state=one.state,
                delivery_count=one.delivery_count,
                member_id=one.member_id,
                lock_ms=one.lock_ms,
                producer_id=one.producer_id,
            )
            for one in islice(rest, self._left)
        ]
        self._left -= len(shown)
        complete = next(rest, None) is None
        return RecordStates(start_offset=start_offset, next_offset=next_offset, complete=complete, ranges=shown)
