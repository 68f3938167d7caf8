"""The partitions of `__consumer_offsets` with what they fold to: loading, finding, forgetting, counting."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from fencepost.coordinator.group import retention
from fencepost.coordinator.group.consumer.group import ConsumerGroup
from fencepost.coordinator.group.consumer.offsets import expired
from fencepost.coordinator.group.records import GroupRecord
from fencepost.coordinator.group.shard_state import GroupShardState
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
"""How many records one batch of tombstones holds at most."""


class GroupOffset(NamedTuple):
    """One committed position, for the metrics."""

    group_id: str
    topic: str
    partition: int
    offset: int


class GroupShards:
    """The groups of all shards, found and forgotten."""

    def __init__(self, runtime: GroupRuntime, topics: TopicView, clock: Clock) -> None:
        self.runtime = runtime
        self.of: Callable[[str], GroupShard] = runtime.shard_of
        """The shard of a group that is about to be written to."""
        self.find: Callable[[str], GroupShard | None] = runtime.find
        """The shard of a group, if anything was ever written there."""
        self._topics = topics
        self._clock = clock

    def group(self, group_id: str) -> Group:
        """The group; Dead where there is none."""
        shard = self.find(group_id)
        return Dead() if shard is None else shard.state.group(group_id)

    def all_groups(self) -> Iterator[tuple[str, Group]]:
        """Every group of the classic protocol, simple ones included."""
        for shard in self.runtime.shards():
            yield from shard.state.groups.items()

    def consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """The group of the consumer protocol; None where there is none."""
        shard = self.find(group_id)
        return None if shard is None else shard.state.consumers.get(group_id)

    def all_consumer_groups(self) -> Iterator[tuple[str, ConsumerGroup]]:
        """Every group of the consumer protocol."""
        for shard in self.runtime.shards():
            yield from shard.state.consumers.items()

    async def durable(self, group_ids: Iterable[str]) -> dict[str, ErrorCode]:
        """Return when all that is known of these groups now is durable: an error for those where it never will be."""
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
        """Append many records in batches of a bounded size, in their order."""
        try:
            for at in range(0, len(records), RECORDS_MAX):
                shard.write(records[at : at + RECORDS_MAX])
        except LogWriteFailed as failed:
            logger.warning("could not forget groups or offsets, will be tried again: %s", failed)
            return coordinator_error(failed.code)
        return ErrorCode.NONE

    def forget_topics(self, topics: Collection[str]) -> None:
        """Forget every position in these topics."""
        for shard in self.runtime.shards():
            self.write_all(shard, shard.state.offsets.removals_of_topics(topics))

    def forget_deleted_topics(self) -> None:
        """Forget every position in topics that are no more, or that are others of the same name by now."""
        for shard in self.runtime.shards():
            self.forget_deleted_topics_in(shard)

    def forget_deleted_topics_in(self, shard: GroupShard) -> None:
        """As `forget_deleted_topics`, in one shard."""
        self.write_all(shard, shard.state.offsets.removals_of_the_dead(self._topics.topic_id))

    def forget_expired(self, retention_ms: int) -> Iterator[int]:
        """Forget what is past its retention (row G7), one partition at each step; how many positions went."""
        for shard in self.runtime.shards():
            now_ms = self._clock.now_ms()
            records: list[GroupRecord] = []
            for group_id, group in shard.state.groups.items():
                records += retention.expired(group_id, group, shard.state.offsets, retention_ms, now_ms)
            for consumers in shard.state.consumers.values():
                records += expired(consumers, shard.state.offsets, retention_ms, now_ms)
            count = shard.state.offsets.count
            self.write_all(shard, records)
            yield count - shard.state.offsets.count

    @property
    def offset_count(self) -> int:
        """How many committed positions there are."""
        return sum(shard.state.offsets.count for shard in self.runtime.shards())

    def committed_offsets(self) -> Iterator[GroupOffset]:
        """Every committed position."""
        for shard in self.runtime.shards():
            for group_id in shard.state.offsets.groups():
                for partition, value in shard.state.offsets.committed(group_id):
                    yield GroupOffset(group_id, partition.topic, partition.partition, value.offset)
