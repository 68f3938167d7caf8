"""The requests of operators and metrics about groups: describe, list, delete, count."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from fencepost.coordinator.group import view
from fencepost.coordinator.group.consumer.group import tombstones
from fencepost.coordinator.group.consumer.view import DescribedConsumerGroup
from fencepost.coordinator.group.consumer_service import ConsumerGroups
from fencepost.coordinator.group.records import GroupRecord, GroupRemoved
from fencepost.coordinator.group.shards import GroupOffset, GroupShards
from fencepost.coordinator.group.share.view import DescribedShareGroup
from fencepost.coordinator.group.share_service import ShareGroups
from fencepost.coordinator.group.state import state_name
from fencepost.protocol.errors import ErrorCode


class Counted(NamedTuple):
    """A type of groups, as ListGroups names it, and a state."""

    type: str
    state: str


class GroupAdmin:
    """The part of the group coordinator for operators and metrics; groups of all types."""

    def __init__(self, shards: GroupShards, consumers: ConsumerGroups, shares: ShareGroups) -> None:
        self._shards = shards
        self._consumers = consumers
        self._shares = shares

    async def describe(self, group_ids: Collection[str]) -> list[view.DescribedGroup]:
        """DescribeGroups; for this API a group of another type is unknown."""
        described = [self._describe(group_id) for group_id in group_ids]
        refused = await self._shards.durable(group_ids)
        return [replace(one, error=refused.get(one.group_id, one.error)) for one in described] if refused else described

    def _describe(self, group_id: str) -> view.DescribedGroup:
        found = view.describe(group_id, self._shards.group(group_id))
        shard = self._shards.find(group_id)
        if found.error is ErrorCode.NONE or shard is None or not shard.state.has_group(group_id):
            return found
        return replace(found, text=f"Group {group_id} is not a classic group.")

    async def describe_consumer_groups(self, group_ids: Collection[str]) -> list[DescribedConsumerGroup]:
        described = [self._consumers.describe(group_id) for group_id in group_ids]
        refused = await self._refused(group_ids)
        return [
            DescribedConsumerGroup(one.group_id, refused[one.group_id]) if one.group_id in refused else one
            for one in described
        ]

    async def describe_share_groups(self, group_ids: Collection[str]) -> list[DescribedShareGroup]:
        described = [self._shares.describe(group_id) for group_id in group_ids]
        refused = await self._refused(group_ids)
        return [
            DescribedShareGroup(one.group_id, refused[one.group_id]) if one.group_id in refused else one
            for one in described
        ]

    async def _refused(self, group_ids: Collection[str]) -> dict[str, ErrorCode]:
        """The groups whose answer cannot be sent, with the reason; waits until the others are durable."""
        refused = await self._shards.durable(group_ids)
        return refused | {one: refusal for one in group_ids if (refusal := self._shards.runtime.refusal(one))}

    async def list_groups(self, states: Collection[str], types: Collection[str]) -> list[view.ListedGroup]:
        """ListGroups; an empty filter passes all groups, case does not matter."""
        wanted_states = {state.strip().lower() for state in states}
        wanted_types = {kind.strip().lower() for kind in types}
        found = [line for line in self._listed() if view.wanted(line, wanted_states, wanted_types)]
        refused = await self._shards.durable(listed.group_id for listed in found)
        return [listed for listed in found if listed.group_id not in refused]

    def _listed(self) -> Iterator[view.ListedGroup]:
        for group_id, group in self._shards.all_groups():
            yield view.listed(group_id, group)
        for group_id, consumers in self._shards.all_consumer_groups():
            yield view.ListedGroup(group_id, view.CONSUMER, consumers.state, view.CONSUMER)
        for group_id, share in self._shards.all_share_groups():
            yield view.ListedGroup(group_id, view.SHARE, share.state, view.SHARE)

    def census(self) -> Iterator[Counted]:
        """The type and the state of each group, for the metrics. Groups may change while this is read."""
        for group_id, group in self._shards.all_groups():
            yield Counted(view.listed(group_id, group).group_type, state_name(group))
        for _, consumers in self._shards.all_consumer_groups():
            yield Counted(view.CONSUMER, consumers.state)
        for _, share in self._shards.all_share_groups():
            yield Counted(view.SHARE, share.state)

    @property
    def offset_count(self) -> int:
        return self._shards.offset_count

    def committed_offsets(self) -> Iterator[GroupOffset]:
        return self._shards.committed_offsets()

    async def delete_groups(self, group_ids: Sequence[str]) -> list[ErrorCode]:
        """DeleteGroups: delete empty groups with all their offsets; returns an error per group, in order.

        The share coordinator deletes the states of a share group first (Kafka's deleteShareGroups).
        """
        errors: list[ErrorCode] = []
        for group_id in group_ids:
            errors.append(self._shards.runtime.refusal(group_id) or await self._delete(group_id))
        refused = await self._shards.durable(group_ids)
        return [refused.get(group_id, error) for group_id, error in zip(group_ids, errors, strict=True)]

    async def _delete(self, group_id: str) -> ErrorCode:
        shard = self._shards.find(group_id)
        if shard is not None and group_id in shard.state.shares:
            return await self._shares.partitions.delete_group(group_id)
        consumers = None if shard is None else shard.state.consumers.get(group_id)
        if consumers is not None and consumers.members:
            return ErrorCode.NON_EMPTY_GROUP
        error = ErrorCode.NONE if consumers is not None else view.is_deletable(self._shards.group(group_id))
        if error or shard is None:
            return error
        gone: list[GroupRecord] = [GroupRemoved(group_id)] if consumers is None else [*tombstones(consumers)]
        return self._shards.write_all(shard, [*shard.state.offsets.removals(group_id), *gone])
