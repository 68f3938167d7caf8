"""The committed offsets of groups: commit, fetch and delete, in the group's partition of `__consumer_offsets`."""

from collections.abc import Collection, Sequence

from fencepost.coordinator.group import notes
from fencepost.coordinator.group.commit import Commit, decide_commit
from fencepost.coordinator.group.config import GroupConfig
from fencepost.coordinator.group.deletion import DeletedOffsets, decide_delete
from fencepost.coordinator.group.effects import Effects
from fencepost.coordinator.group.offsets import FetchedOffset
from fencepost.coordinator.group.shards import GroupShards
from fencepost.coordinator.ports import LogWriteFailed, TopicView, coordinator_error
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition


class GroupPositions:
    def __init__(
        self, shards: GroupShards, effects: Effects, config: GroupConfig, topics: TopicView, tallies: notes.Tallies
    ) -> None:
        self.config = config
        self._shards = shards
        self._effects = effects
        self._topics = topics
        self._tallies = tallies

    async def commit(self, command: Commit) -> list[ErrorCode]:
        """OffsetCommit, or TxnOffsetCommit if `command.producer` is set: an error per item, in order.

        The caller has verified that the group's partition is in the producer's transaction.
        """
        known = [self._topics.exists(item.partition) for item in command.items]
        if not all(known):
            return await self._commit_known(command, known)
        try:
            decision = await self._shards.runtime.run(
                command.group_id,
                lambda state, now_ms: decide_commit(state, command, self.config, now_ms, self._topics.topic_id),
                command.producer,
                # A commit restarts the session when it arrives: the flush may take longer than a session.
                lambda decision: self._effects.set_timers(command.group_id, decision.then),
            )
        except LogWriteFailed as failed:
            return [coordinator_error(failed.code)] * len(command.items)
        self._tallies.committed_offsets += len(decision.log)
        return decision.reply

    async def _commit_known(self, command: Commit, known: list[bool]) -> list[ErrorCode]:
        """Commit the items whose partitions exist; the others are UNKNOWN_TOPIC_OR_PARTITION."""
        items = tuple(item for item, exists in zip(command.items, known, strict=True) if exists)
        rest = Commit(
            command.group_id,
            items,
            command.member_id,
            command.group_instance_id,
            command.generation,
            command.retention_ms,
            command.unknown_group,
            command.producer,
        )
        errors = iter(await self.commit(rest) if items else ())
        return [next(errors) if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for exists in known]

    async def fetch(
        self, group_id: str, partitions: Collection[TopicPartition] | None, require_stable: bool
    ) -> list[FetchedOffset]:
        """OffsetFetch of one group; all its offsets if `partitions` is None."""
        shard = self._shards.find(group_id)
        if shard is None:
            return [FetchedOffset(partition) for partition in partitions or ()]
        found = shard.state.offsets.fetch(group_id, partitions, require_stable)
        if refused := await shard.settled(shard.log.newest):
            return [FetchedOffset(one.partition, error=coordinator_error(refused)) for one in found]
        return found

    async def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> DeletedOffsets:
        """OffsetDelete: one error for the whole, or one per partition in order."""
        if not group_id:
            return DeletedOffsets(ErrorCode.INVALID_GROUP_ID)
        shard = self._shards.find(group_id)
        if shard is None:
            return DeletedOffsets(ErrorCode.GROUP_ID_NOT_FOUND)
        try:
            decision = await self._shards.runtime.run(
                group_id, lambda state, _: decide_delete(state, group_id, partitions)
            )
        except LogWriteFailed as failed:
            return DeletedOffsets(coordinator_error(failed.code))
        self._tallies.deleted_offsets += len(decision.log)
        return decision.reply
