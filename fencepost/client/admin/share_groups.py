"""Share groups: describe them, and read, set or delete their start offsets (KIP-932)."""

from collections.abc import Iterable, Mapping
from typing import Any

from fencepost.client.admin.requests import AdminRequests, ToCoordinator, failure, listed
from fencepost.client.admin.share_types import STATES, RecordRange, RecordStates, ShareGroupOffset
from fencepost.client.admin.topics import NO_TOPIC
from fencepost.client.admin.types import GroupDescription, share_group_description
from fencepost.client.core.numbers import whole_number
from fencepost.client.errors import KafkaError
from fencepost.client.group.requests import by_topic
from fencepost.client.network.cluster import GROUP
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages.api77_share_group_describe import ShareGroupDescribeRequest
from fencepost.protocol.messages.api90_describe_share_group_offsets import (
    AskedGroup,
    AskedTopic,
    DescribeShareGroupOffsetsRequest,
)
from fencepost.protocol.messages.api91_alter_share_group_offsets import (
    AlteredPartition,
    AlteredTopic,
    AlterShareGroupOffsetsRequest,
)
from fencepost.protocol.messages.api92_delete_share_group_offsets import DeletedTopic, DeleteShareGroupOffsetsRequest
from fencepost.protocol.topics import TopicPartition


class ShareGroupAdmin:
    """The part of the admin client for share groups. `GroupAdmin` lists and deletes them."""

    def __init__(self, rpc: AdminRequests) -> None:
        self._rpc = rpc

    async def describe_share_groups(self, group_ids: str | Iterable[str]) -> dict[str, GroupDescription]:
        """State, epochs, members and assignments of share groups, by id (Kafka 4.2).

        Raises ItemsFailedError by group: GROUP_ID_NOT_FOUND also for a group of another type, ...
        """

        async def ask(node: int | None, some: list[str]) -> dict[str, GroupDescription | KafkaError]:
            response = await self._rpc.ask(node, ShareGroupDescribeRequest(group_ids=some))
            return {
                one.group_id: failure(
                    one, f"describing share group {one.group_id!r}", ApiKey.SHARE_GROUP_DESCRIBE, node
                )
                or share_group_description(one)
                for one in response.groups
            }

        route = ToCoordinator(self._rpc.cluster, GROUP)
        return await self._rpc.each(listed(group_ids, str), route, ask, "describing share groups")

    async def list_share_group_offsets(
        self,
        group_id: str,
        partitions: TopicPartition | Iterable[TopicPartition] | None = None,
        *,
        explain: bool = False,
    ) -> dict[TopicPartition, ShareGroupOffset]:
        """Where a share group is in these partitions, or in all that it has begun (Kafka 4.2).

        `explain` asks for the states of single records, which only fencepost brokers report. Raises KafkaError for the
        group, and for the first partition that has an error.
        """
        asked = None if partitions is None else by_topic(TopicPartition(*p) for p in listed(partitions, TopicPartition))
        topics = None if asked is None else [AskedTopic(topic_name=name, partitions=n) for name, n in asked.items()]
        request = DescribeShareGroupOffsetsRequest(
            groups=[AskedGroup(group_id=group_id, topics=topics)], explain=explain
        )
        what = f"offsets of share group {group_id!r}"
        route = ToCoordinator(self._rpc.cluster, GROUP, group_id)
        group = await self._rpc.response(group_id, route, request, what, lambda response: response.groups[0])
        found = {}
        for topic in group.topics:
            for one in topic.partitions:
                name = f"{what} in {topic.topic_name}-{one.partition_index}"
                error = failure(one, name, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, final=NO_TOPIC)
                if error is not None:
                    raise error
                found[TopicPartition(topic.topic_name, one.partition_index)] = _offset(one)
        return found

    async def alter_share_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the start offsets of an empty share group: what it knew of these partitions is forgotten (Kafka 4.2).

        A group that does not exist is created. Raises ItemsFailedError by partition (UNKNOWN_TOPIC_OR_PARTITION, ...),
        KafkaError for the group (NON_EMPTY_GROUP, ...), ValueError for a negative offset.
        """
        asked = {
            (where := TopicPartition(*partition)): whole_number(f"the start offset of {where}", offset, 0)
            for partition, offset in offsets.items()
        }
        what = f"setting offsets of share group {group_id!r}"

        async def ask(node: int | None, some: list[TopicPartition]) -> dict[TopicPartition, KafkaError | None]:
            topics = by_topic(
                (p.topic, AlteredPartition(partition_index=p.partition, start_offset=asked[p])) for p in some
            )
            request = AlterShareGroupOffsetsRequest(
                group_id=group_id,
                topics=[AlteredTopic(topic_name=name, partitions=entries) for name, entries in topics.items()],
            )
            response = await self._rpc.ask(node, request, what)
            return {
                TopicPartition(topic.topic_name, one.partition_index): failure(
                    one,
                    f"{what} in {topic.topic_name}-{one.partition_index}",
                    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
                    node,
                    final=NO_TOPIC,
                )
                for topic in response.responses
                for one in topic.partitions
            }

        await self._rpc.each(asked, ToCoordinator(self._rpc.cluster, GROUP, group_id), ask, what)

    async def delete_share_group_offsets(self, group_id: str, topics: str | Iterable[str]) -> None:
        """Forget what an empty share group knows of topics: it begins them anew (Kafka 4.2).

        Raises ItemsFailedError by topic (UNKNOWN_TOPIC_OR_PARTITION if the group has nothing of it, ...), KafkaError
        for the group (NON_EMPTY_GROUP, ...).
        """
        what = f"deleting offsets of share group {group_id!r}"

        async def ask(node: int | None, some: list[str]) -> dict[str, KafkaError | None]:
            request = DeleteShareGroupOffsetsRequest(
                group_id=group_id, topics=[DeletedTopic(topic_name=name) for name in some]
            )
            response = await self._rpc.ask(node, request, what)
            return {
                one.topic_name: failure(
                    one, f"{what} of {one.topic_name}", ApiKey.DELETE_SHARE_GROUP_OFFSETS, node, final=NO_TOPIC
                )
                for one in response.responses
            }

        await self._rpc.each(listed(topics, str), ToCoordinator(self._rpc.cluster, GROUP, group_id), ask, what)


def _offset(part: Any) -> ShareGroupOffset:
    return ShareGroupOffset(
        part.start_offset if part.start_offset >= 0 else None,
        part.leader_epoch,
        part.lag if part.lag >= 0 else None,
        None if part.states is None else _states(part.states),
    )


def _states(states: Any) -> RecordStates:
    ranges = tuple(
        RecordRange(
            one.first_offset,
            one.last_offset,
            STATES[one.state] if 0 <= one.state < len(STATES) else f"state {one.state}",
            one.delivery_count,
            one.member_id or None,
            one.lock_ms if one.lock_ms >= 0 else None,
            one.producer_id if one.producer_id >= 0 else None,
        )
        for one in states.ranges
    )
    return RecordStates(states.start_offset, states.next_offset, ranges, states.complete)
