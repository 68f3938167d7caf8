"""The share partitions of share groups: begun and deleted through the share coordinator, and their offsets (KIP-932).

The group's record says what is asked for before the share coordinator is asked, and what was done afterwards. So after
a crash the next request continues.
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import trio

from fencepost.coordinator.group.consumer.refused import Refused
from fencepost.coordinator.group.shards import GroupShards
from fencepost.coordinator.group.share.group import ShareGroup, tombstones
from fencepost.coordinator.group.share.partitions import Begun, GroupPartitions, Topics, by_topic, new_state_epoch
from fencepost.coordinator.group.share.records import SharePartitionsRecord
from fencepost.coordinator.metadata.image import MetadataImage
from fencepost.coordinator.ports import Clock, LogWriteFailed, coordinator_error
from fencepost.coordinator.share.values import InitialState, Outcome, ShareKey, SharePersister, StateSummary
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

logger = logging.getLogger(__name__)

NO_TOPIC_ID = bytes(16)
UNKNOWN_LEADER_EPOCH = -1
NOT_EMPTY = "The group is not empty."
UNKNOWN_PARTITION = Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")


class TopicOffsets(NamedTuple):
    """What a group has of a topic; for an unknown one the id is zero, and there are no summaries."""

    name: str
    topic_id: bytes
    summaries: Mapping[int, StateSummary]


class Plan(NamedTuple):
    """Partitions to begin, and from where."""

    topics: Topics
    states: Mapping[ShareKey, InitialState]


class BegunPartitions:
    """Asks the share coordinator on behalf of the groups."""

    def __init__(
        self, shards: GroupShards, persister: SharePersister, image: Callable[[], MetadataImage], clock: Clock
    ) -> None:
        self._shards = shards
        self._persister = persister
        self._image = image
        self._clock = clock
        self._busy: dict[str, trio.Lock] = {}
        """One request to the share coordinator for a group at a time: a partition must not be begun and deleted at
        once. By group, while one waits."""

    @asynccontextmanager
    async def _alone(self, group_id: str) -> AsyncIterator[None]:
        lock = self._busy.setdefault(group_id, trio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():
                self._busy.pop(group_id, None)

    async def begin(
        self, group_id: str, plan: Callable[[], Plan | None], *, again: bool = False
    ) -> Mapping[ShareKey, Outcome]:
        """Begin partitions of a group, which need not exist; `plan` is made when no other request is on its way.

        With `again` they may have states, which are replaced.

        What failed is asked for again by the next heartbeat that needs it. Raises LogWriteFailed, and what `plan` does.
        """
        async with self._alone(group_id):
            planned = plan()
            if planned is None:
                return {}
            asked, states = planned
            if again:
                states = await self._above_stored(states)
            group = self._group(group_id) or ShareGroup(group_id)
            await self._write(group_id, group.partitions.asking(asked))
            outcomes = await self._persister.initialize(states)
            failed = [key for key, outcome in outcomes.items() if outcome.error]
            for key in failed:
                logger.warning(
                    "share group %s: partition %d of topic %s is not initialised, a later heartbeat tries again: %s %s",
                    group_id, key.partition, asked[key.topic_id].name, *outcomes[key],
                )  # fmt: skip
            done = by_topic(outcomes.keys() - set(failed))
            if (now := self._group(group_id)) is not None:
                await self._write(group_id, now.partitions.settled(done, by_topic(failed)))
        return outcomes

    async def _above_stored(self, states: Mapping[ShareKey, InitialState]) -> Mapping[ShareKey, InitialState]:
        """The states with epochs above those that are stored: the same epoch would be taken for a repeated request."""
        stored = await self._persister.summaries(dict.fromkeys(states, UNKNOWN_LEADER_EPOCH))
        known = max(one.state_epoch for one in stored.values())
        return {key: one._replace(state_epoch=max(one.state_epoch, known + 1)) for key, one in states.items()}

    def _group(self, group_id: str) -> ShareGroup | None:
        return self._shards.of(group_id).state.shares.get(group_id)

    async def _write(self, group_id: str, partitions: GroupPartitions) -> None:
        """Write the partitions of a group and wait until the record is durable. Raises LogWriteFailed."""
        shard = self._shards.of(group_id)
        ticket = shard.write([SharePartitionsRecord(group_id, partitions)])
        if refused := await shard.settled(ticket):
            raise LogWriteFailed(refused, "the partitions of a share group were not written")

    async def delete_group(self, group_id: str) -> ErrorCode:
        """DeleteGroups of a share group: delete the states of its partitions, then the group itself."""
        try:
            async with self._alone(group_id):
                group = self._empty_group(group_id)
                outcomes = await self._delete(group, group.partitions.topic_ids)
                refused = [outcome.error for outcome in outcomes.values() if outcome.error]
                if refused:
                    return refused[0]
                group = self._empty_group(group_id)
                return self._shards.write_all(self._shards.of(group_id), [*tombstones(group)])
        except Refused as refusal:
            return refusal.code
        except LogWriteFailed as failed:
            return coordinator_error(failed.code)

    async def _delete(self, group: ShareGroup, topic_ids: Iterable[bytes]) -> Mapping[bytes, Outcome]:
        """Delete the states of topics; an outcome for each topic. Raises LogWriteFailed."""
        group_id, image, before = group.group_id, self._image(), group.partitions
        names = {topic_id: before.name_of(topic_id) for topic_id in topic_ids}
        if not names:
            return {}
        keys = [ShareKey(group_id, one, number) for one in names for number in sorted(before.with_state(one, image))]
        await self._write(group_id, before.deleting_topics(names))
        outcomes = dict.fromkeys(names, Outcome())
        for key, outcome in (await self._persister.delete(keys)).items() if keys else ():
            if outcome.error:
                outcomes[key.topic_id] = outcome
        gone = {topic_id for topic_id, outcome in outcomes.items() if not outcome.error}
        if gone and (now := self._group(group_id)) is not None:
            await self._write(group_id, now.partitions.without(gone))
        return outcomes

    def _empty_group(self, group_id: str, *, may_be_missing: bool = False) -> ShareGroup:
        """The group, which must be empty, and be there unless it may be missing. Raises Refused."""
        if not group_id:
            raise Refused(ErrorCode.INVALID_GROUP_ID, "The group id is empty.")
        shard = self._shards.of(group_id)
        if shard.refusal:
            raise Refused(shard.refusal, "The coordinator of this group is not active here.")
        group = shard.state.shares.get(group_id)
        if group is None and shard.state.has_group(group_id):
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        if group is None and not may_be_missing:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if group is not None and group.members:
            raise Refused(ErrorCode.NON_EMPTY_GROUP, NOT_EMPTY)
        return group or ShareGroup(group_id)

    # ---- the requests of operators about offsets

    async def alter_offsets(
        self, group_id: str, starts: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, Outcome]:
        """AlterShareGroupOffsets: begin partitions of an empty group at these offsets; creates a missing group.

        Raises Refused for the whole. (Kafka's GroupMetadataManager.alterShareGroupOffsets)
        """
        keys: dict[ShareKey, TopicPartition] = {}

        def plan() -> Plan | None:
            group = self._empty_group(group_id, may_be_missing=True)
            image, now_ms = self._image(), self._clock.now_ms()
            names: dict[bytes, str] = {}
            for partition in starts:
                topic = image.topics_by_name.get(partition.topic)
                if topic is not None and 0 <= partition.partition < topic.partitions:
                    keys[ShareKey(group_id, topic.topic_id, partition.partition)] = partition
                    names[topic.topic_id] = topic.name
            if not keys:
                return None
            epoch = new_state_epoch(group.epoch, now_ms)
            asked = {key: Begun(names[key], numbers, now_ms) for key, numbers in by_topic(keys).items()}
            return Plan(asked, {key: InitialState(epoch, starts[one]) for key, one in keys.items()})

        try:
            found = await self.begin(group_id, plan, again=True)
        except LogWriteFailed as failed:
            raise Refused(coordinator_error(failed.code), str(failed)) from failed
        return dict.fromkeys(starts, UNKNOWN_PARTITION) | {keys[key]: outcome for key, outcome in found.items()}

    async def delete_offsets(self, group_id: str, names: Sequence[str]) -> Mapping[str, tuple[bytes, Outcome]]:
        """DeleteShareGroupOffsets: delete the states of topics of an empty group; the id and the outcome of each.

        Raises Refused for the whole. (Kafka's GroupMetadataManager.sharePartitionsEligibleForOffsetDeletion)
        """
        async with self._alone(group_id):
            return await self._delete_offsets(self._empty_group(group_id), names)

    async def _delete_offsets(self, group: ShareGroup, names: Sequence[str]) -> Mapping[str, tuple[bytes, Outcome]]:
        image = self._image()
        found: dict[str, tuple[bytes, Outcome]] = {}
        topics: dict[bytes, str] = {}
        for name in names:
            topic = image.topics_by_name.get(name)
            if topic is None:
                found[name] = (NO_TOPIC_ID, UNKNOWN_PARTITION)
            elif topic.topic_id in group.partitions.initialized or topic.topic_id in group.partitions.deleting:
                topics[topic.topic_id] = name
            else:
                text = "There is no offset information to delete."
                found[name] = (NO_TOPIC_ID, Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text))
        try:
            outcomes = await self._delete(group, topics)
        except LogWriteFailed as failed:
            raise Refused(coordinator_error(failed.code), str(failed)) from failed
        return found | {topics[topic_id]: (topic_id, outcome) for topic_id, outcome in outcomes.items()}

    async def offsets(self, group_id: str, asked: Mapping[str, Sequence[int]] | None) -> list[TopicOffsets]:
        """DescribeShareGroupOffsets: the states of the asked partitions, or (None) of all that the group has begun.

        Raises Refused. (Kafka's GroupCoordinatorService.describeShareGroupOffsets, describeShareGroupAllOffsets)
        """
        image, shard = self._image(), self._shards.find(group_id)
        if shard is not None and shard.refusal:
            raise Refused(shard.refusal, "The coordinator of this group is not active here.")
        if asked is None:
            group = None if shard is None else shard.state.shares.get(group_id)
            begun = {} if group is None else group.partitions.assignable
            asked = {
                image.topics_by_id[topic_id].name: sorted(partitions)
                for topic_id, partitions in begun.items()
                if topic_id in image.topics_by_id
            }
        ids = {name: image.topics_by_name[name].topic_id for name in asked if name in image.topics_by_name}
        keys = {
            ShareKey(group_id, topic_id, number): UNKNOWN_LEADER_EPOCH
            for name, topic_id in ids.items()
            for number in asked[name]
        }
        summaries = await self._persister.summaries(keys) if keys else {}
        return [
            TopicOffsets(
                name,
                ids.get(name, NO_TOPIC_ID),
                {key.partition: one for key, one in summaries.items() if key.topic_id == ids.get(name)},
            )
            for name in asked
        ]
