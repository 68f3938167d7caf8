"""The partitions of `__consumer_offsets` with what they fold to: loading, finding, forgetting, counting."""

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from fencepost.coordinator.group import retention
from fencepost.coordinator.group.codec import CorruptRecord, encode
from fencepost.coordinator.group.consumer.group import ConsumerGroup
from fencepost.coordinator.group.consumer.offsets import expired
from fencepost.coordinator.group.ledger import Ledger, apply, replay
from fencepost.coordinator.group.records import GroupRecord
from fencepost.coordinator.group.state import Dead, Group
from fencepost.coordinator.partitioning import partition_for
from fencepost.coordinator.ports import Clock, CoordinatorLogs, LogUnreadable, LogWriteFailed, TopicView
from fencepost.coordinator.runtime import LostLog, Shard
from fencepost.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

GroupShard: TypeAlias = Shard[Ledger, GroupRecord]

GROUPS_KNOWN = 10_000
RECORDS_MAX = 1_000
"""How many records one batch of tombstones holds at most."""


class GroupOffset(NamedTuple):
    """One committed position, for the metrics."""

    group_id: str
    topic: str
    partition: int
    offset: int


class GroupShards:
    """One shard per partition, made when a group in it is first written to."""

    def __init__(self, logs: CoordinatorLogs, topics: TopicView, clock: Clock) -> None:
        self._logs = logs
        self._topics = topics
        self._clock = clock
        self._count = logs.count
        self._shards: dict[int, GroupShard] = {}
        self._of_group: dict[str, GroupShard] = {}
        """Of groups that were asked for, some thousands at most."""

    def load(self) -> Iterator[None]:
        """Fold every log there is, one at each step. One that can not be read is told of, and lost until it can."""
        for partition in sorted(self._logs.existing()):
            try:
                shard = self._shard(partition)
                unknown = replay(shard.state, shard.log.replay())
            except (CorruptRecord, LogUnreadable) as error:
                self._lose(partition, error)
                unknown = 0
            if unknown:
                logger.warning("__consumer_offsets-%d: %d records of unknown kinds passed over", partition, unknown)
            yield

    def _lose(self, partition: int, error: Exception) -> None:
        logger.error(
            "__consumer_offsets-%d can not be replayed, its groups hear COORDINATOR_NOT_AVAILABLE until it is repaired,"
            " all others work: %s; see `fencepost verify`, restore the file from a backup and start again",
            partition,
            error,
        )
        self._of_group.clear()
        self._shards[partition] = Shard(LostLog(str(error)), self._clock, Ledger(), apply, encode)

    def is_lost(self, group_id: str) -> bool:
        """Whether the log that holds the group could not be replayed: nothing may be said of the group."""
        shard = self.find(group_id)
        return shard is not None and shard.is_lost

    def partition(self, group_id: str) -> int:
        """The partition that holds the group."""
        return partition_for(group_id, self._count)

    def _shard(self, partition: int) -> GroupShard:
        shard = self._shards.get(partition)
        if shard is None:
            shard = Shard(self._logs.log(partition), self._clock, Ledger(), apply, encode)
            self._shards[partition] = shard
        return shard

    def of(self, group_id: str) -> GroupShard:
        """The shard of a group that is about to be written to."""
        return self.find(group_id) or self._shard(self.partition(group_id))

    def find(self, group_id: str) -> GroupShard | None:
        """The shard of a group, if anything was ever written there."""
        shard = self._of_group.get(group_id)
        if shard is None and (shard := self._shards.get(self.partition(group_id))) is not None:
            if len(self._of_group) >= GROUPS_KNOWN:
                self._of_group.clear()
            self._of_group[group_id] = shard
        return shard

    def existing(self, partition: int) -> GroupShard | None:
        """The shard of a partition, if anything was ever written there."""
        return self._shards.get(partition)

    def group(self, group_id: str) -> Group:
        """The group; Dead where there is none."""
        shard = self.find(group_id)
        return Dead() if shard is None else shard.state.group(group_id)

    def all_groups(self) -> Iterator[tuple[str, Group]]:
        """Every group of the classic protocol, simple ones included."""
        for shard in self._shards.values():
            yield from shard.state.groups.items()

    def consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """The group of the consumer protocol; None where there is none."""
        shard = self.find(group_id)
        return None if shard is None else shard.state.consumers.get(group_id)

    def all_consumer_groups(self) -> Iterator[tuple[str, ConsumerGroup]]:
        """Every group of the consumer protocol."""
        for shard in self._shards.values():
            yield from shard.state.consumers.items()

    async def durable(self, group_ids: Iterable[str]) -> dict[str, ErrorCode]:
        """Return when all that is known of these groups now is durable: an error for those where it never will be."""
        by_partition: dict[int, list[str]] = {}
        for group_id in group_ids:
            by_partition.setdefault(self.partition(group_id), []).append(group_id)
        waits = [
            (shard, shard.log.end_offset, by_partition[number])
            for number, shard in self._shards.items()
            if number in by_partition
        ]
        refused: dict[str, ErrorCode] = {}
        for shard, end_offset, names in waits:
            error = await shard.settled(end_offset)
            if error:
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
        for shard in self._shards.values():
            self.write_all(shard, shard.state.offsets.removals_of_topics(topics))

    def forget_deleted_topics(self) -> None:
        """Forget every position in topics that are no more, or that are others of the same name by now."""
        for shard in self._shards.values():
            self.write_all(shard, shard.state.offsets.removals_of_the_dead(self._topics.topic_id))

    def forget_expired(self, retention_ms: int) -> Iterator[int]:
        """Forget what is past its retention (row G7), one partition at each step; how many positions went."""
        for shard in list(self._shards.values()):
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
        return sum(shard.state.offsets.count for shard in self._shards.values())

    def committed_offsets(self) -> Iterator[GroupOffset]:
        """Every committed position."""
        for shard in self._shards.values():
            for group_id in shard.state.offsets.groups():
                for partition, value in shard.state.offsets.committed(group_id):
                    yield GroupOffset(group_id, partition.topic, partition.partition, value.offset)


def coordinator_error(code: ErrorCode) -> ErrorCode:
    """A refused append as clients of a coordinator are told it (row T7's table serves groups, too)."""
    match code:
        case (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode.NOT_ENOUGH_REPLICAS
            | ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            | ErrorCode.REQUEST_TIMED_OUT
        ):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.NOT_COORDINATOR
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE | ErrorCode.INVALID_FETCH_SIZE:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        case _:
            return code
