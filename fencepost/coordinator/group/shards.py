"""The partitions of `__consumer_offsets` and their states: lookup, removal and counts."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from fencepost.coordinator.group import retention
from fencepost.coordinator.group.consumer.group import ConsumerGroup
from fencepost.coordinator.group.consumer.offsets import expired
from fencepost.coordinator.group.records import GroupRecord
from fencepost.coordinator.group.shard_state import GroupShardState
from fencepost.coordinator.group.share.group import ShareGroup
from fencepost.coordinator.group.share.records import SharePartitionsRecord
from fencepost.coordinator.group.state import Dead, Group
from fencepost.coordinator.group.timers import TimerKey
from fencepost.coordinator.ports import Clock, LogWriteFailed, TopicView, coordinator_error
from fencepost.coordinator.runtime.runtime import CoordinatorRuntime
from fencepost.coordinator.runtime.shard import Shard
from fencepost.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

GroupShard: TypeAlias = Shard[GroupShardState, GroupRecord]
GroupRuntime: TypeAlias = CoordinatorRuntime[GroupShardState, GroupRecord, TimerKey]

RECORDS_MAX = 1_000
"""The most records of one batch of tombstones."""


class GroupOffset(NamedTuple):
    """One committed offset, for the metrics."""

    group_id: str
    topic: str
    partition: int
    offset: int


class GroupShards:
    """The groups of all shards: lookup and removal."""

    def __init__(self, runtime: GroupRuntime, topics: TopicView, clock: Clock) -> None:
        self.runtime = runtime
        self.of: Callable[[str], GroupShard] = runtime.shard_of
        """The shard of a group that is about to be written to."""
        self.find: Callable[[str], GroupShard | None] = runtime.find
        """The shard of a group; None if its partition has no shard yet."""
        self._topics = topics
        self._clock = clock

    def group(self, group_id: str) -> Group:
        shard = self.find(group_id)
        return Dead() if shard is None else shard.state.group(group_id)

    def all_groups(self) -> Iterator[tuple[str, Group]]:
        """Every group of the classic protocol, simple ones included. Groups may change while this is read."""
        for shard in list(self.runtime.shards()):
            yield from list(shard.state.groups.items())

    def consumer_group(self, group_id: str) -> ConsumerGroup | None:
        shard = self.find(group_id)
        return None if shard is None else shard.state.consumers.get(group_id)

    def all_consumer_groups(self) -> Iterator[tuple[str, ConsumerGroup]]:
        """Every group of the consumer protocol. Groups may change while this is read."""
        for shard in list(self.runtime.shards()):
            yield from list(shard.state.consumers.items())

    def all_share_groups(self) -> Iterator[tuple[str, ShareGroup]]:
        """Every share group. Groups may change while this is read."""
        for shard in list(self.runtime.shards()):
            yield from list(shard.state.shares.items())

    async def durable(self, group_ids: Iterable[str]) -> dict[str, ErrorCode]:
        """Wait until the present state of these groups is durable; return an error for those where it never will be."""
        by_shard: dict[GroupShard, list[str]] = {}
        for group_id in group_ids:
            if (shard := self.find(group_id)) is not None:
                by_shard.setdefault(shard, []).append(group_id)
        waits = [(shard, shard.log.newest, names) for shard, names in by_shard.items()]
        refused: dict[str, ErrorCode] = {}
        for shard, ticket, names in waits:
            if error := await shard.settled(ticket):
                refused |= dict.fromkeys(names, coordinator_error(error))
        return refused

    def write_all(self, shard: GroupShard, records: Sequence[GroupRecord]) -> ErrorCode:
        """Append many records, in their order, in batches of at most RECORDS_MAX."""
        try:
            for at in range(0, len(records), RECORDS_MAX):
                shard.write(records[at : at + RECORDS_MAX])
        except LogWriteFailed as failed:
            logger.warning("%s-%d: tombstones not written, will retry: %s", self.runtime.topic, shard.partition, failed)
            return coordinator_error(failed.code)
        return ErrorCode.NONE

    def forget_topics(self, topics: Collection[str]) -> None:
        for shard in self.runtime.shards():
            self.write_all(shard, shard.state.offsets.removals_of_topics(topics))
            self.forget_share_partitions(shard)

    def forget_deleted_topics(self) -> None:
        """Remove every committed offset of topics that were deleted, or deleted and created again."""
        for shard in self.runtime.shards():
            self.forget_deleted_topics_in(shard)

    def forget_deleted_topics_in(self, shard: GroupShard) -> None:
        self.write_all(shard, shard.state.offsets.removals_of_deleted_topics(self._topics.topic_id))
        self.forget_share_partitions(shard)

    def forget_share_partitions(self, shard: GroupShard) -> None:
        """Remove deleted topics from the partitions that share groups have begun (Kafka's maybeCleanupShareGroupState).

        The share coordinator deletes their states itself.
        """
        known = self._topics.image.topics_by_id
        records: list[GroupRecord] = []
        for group_id, group in shard.state.shares.items():
            gone = {topic_id for topic_id in group.partitions.topic_ids if topic_id not in known}
            if gone:
                records.append(SharePartitionsRecord(group_id, group.partitions.without(gone)))
        self.write_all(shard, records)

    def forget_expired(self, retention_ms: int) -> Iterator[int]:
        """Remove expired offsets and groups (row G7), one partition per step; yields the number of removed offsets."""
        for shard in self.runtime.shards():
            count = shard.state.offsets.count
            with self.runtime.expiring(shard):
                self._forget_expired(shard, retention_ms)
            yield count - shard.state.offsets.count

    def _forget_expired(self, shard: GroupShard, retention_ms: int) -> None:
        now_ms = self._clock.now_ms()
        records: list[GroupRecord] = []
        for group_id, group in shard.state.groups.items():
            records += retention.expired(group_id, group, shard.state.offsets, retention_ms, now_ms)
        for consumers in shard.state.consumers.values():
            records += expired(consumers, shard.state.offsets, retention_ms, now_ms)
        self.write_all(shard, records)

    @property
    def offset_count(self) -> int:
        return sum(shard.state.offsets.count for shard in self.runtime.shards())

    def committed_offsets(self) -> Iterator[GroupOffset]:
        """Every committed offset. Offsets may change while this is read."""
        for shard in list(self.runtime.shards()):
            for group_id in list(shard.state.offsets.groups()):
                for partition, value in list(shard.state.offsets.committed(group_id)):
                    yield GroupOffset(group_id, partition.topic, partition.partition, value.offset)
