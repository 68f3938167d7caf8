"""Groups: list, describe and delete them, their committed offsets and their members."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from fencepost.client.admin.requests import AdminRequests, ToBroker, ToCoordinator, failure, is_unsupported, listed
from fencepost.client.admin.types import GroupDescription, GroupListing, GroupMember, consumer_group_description
from fencepost.client.core.consumer_protocol import decode_assignment
from fencepost.client.core.group_types import CommittedOffset, GroupMetadata, offsets_to_commit
from fencepost.client.errors import KafkaError
from fencepost.client.group.requests import BY_NAME, by_topic, commit_request, fetch_committed
from fencepost.client.network.cluster import GROUP
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api13_leave_group import LeaveGroupRequest, MemberIdentity
from fencepost.protocol.messages.api15_describe_groups import DescribeGroupsRequest
from fencepost.protocol.messages.api16_list_groups import ListGroupsRequest
from fencepost.protocol.messages.api42_delete_groups import DeleteGroupsRequest
from fencepost.protocol.messages.api47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from fencepost.protocol.messages.api69_consumer_group_describe import ConsumerGroupDescribeRequest
from fencepost.protocol.topics import TopicPartition

_STATES_SINCE, _TYPES_SINCE, _SEVERAL_LEAVE_SINCE = 4, 5, 3
_NO_GROUP = ErrorCode.GROUP_ID_NOT_FOUND


class GroupAdmin:
    """The part of the admin client for groups and their committed offsets."""

    def __init__(self, rpc: AdminRequests) -> None:
        self._rpc = rpc

    async def list_groups(
        self,
        *,
        states: str | Iterable[str] = (),
        types: str | Iterable[str] = (),
        protocol_types: str | Iterable[str] = (),
    ) -> list[GroupListing]:
        """The groups of all brokers, sorted by id; `states`, `types` and `protocol_types` select some of them.

        States are "Stable", "Empty", "Dead", "PreparingRebalance", "Assigning", ... (Kafka 2.6). Types are "classic",
        "consumer", "share" and "streams" (Kafka 3.8). Protocol types are "consumer", "connect", ... (the client selects
        them itself). Raises KafkaError (UNSUPPORTED_VERSION if a broker does not support a filter).
        """
        states, types, protocol_types = listed(states, str), listed(types, str), listed(protocol_types, str)
        least = _TYPES_SINCE if types else _STATES_SINCE if states else 0
        request = ListGroupsRequest(states_filter=states, types_filter=types)
        found: dict[str, GroupListing] = {}
        await self._rpc.retry(self._rpc.cluster.refresh, "finding the brokers")
        for broker in sorted(self._rpc.cluster.brokers):
            route = ToBroker(self._rpc.cluster, broker)
            response = await self._rpc.response(
                broker, route, request, f"listing groups of broker {broker}", at_least=least
            )
            for group in response.groups:
                if not protocol_types or group.protocol_type in protocol_types:
                    found[group.group_id] = GroupListing(
                        group.group_id, group.protocol_type, group.group_state, group.group_type
                    )
        return [found[name] for name in sorted(found)]

    async def describe_groups(self, group_ids: str | Iterable[str]) -> dict[str, GroupDescription]:
        """State and members of groups, classic or consumer, by id. A group that does not exist has the state "Dead".

        Raises ItemsFailedError by group (GROUP_AUTHORIZATION_FAILED, ...).
        """

        async def classic(node: int | None, some: list[str]) -> dict[str, GroupDescription | KafkaError]:
            response = await self._rpc.ask(node, DescribeGroupsRequest(groups=some))
            return {
                one.group_id: (
                    None
                    if one.error_code == _NO_GROUP
                    else failure(one, f"describing group {one.group_id!r}", ApiKey.DESCRIBE_GROUPS, node)
                )
                or _classic_group(one)
                for one in response.groups
            }

        async def consumer(node: int | None, some: list[str]) -> dict[str, GroupDescription | KafkaError | None]:
            request = ConsumerGroupDescribeRequest(group_ids=some)
            try:
                response = await self._rpc.ask(node, request)
            except KafkaError as error:
                if not is_unsupported(error):
                    raise
                return dict.fromkeys(some)
            return {one.group_id: _consumer_group(one, node) for one in response.groups}

        what = "describing groups"
        found = await self._rpc.each(listed(group_ids, str), ToCoordinator(self._rpc.cluster, GROUP), classic, what)
        dead = [group_id for group_id, group in found.items() if group.state == "Dead"]
        others = await self._rpc.each(dead, ToCoordinator(self._rpc.cluster, GROUP), consumer, what)
        return found | {group_id: group for group_id, group in others.items() if group is not None}

    async def delete_groups(self, group_ids: str | Iterable[str]) -> None:
        """Delete empty groups and their offsets. Raises ItemsFailedError by group (NON_EMPTY_GROUP, ...)."""

        async def ask(node: int | None, some: list[str]) -> dict[str, KafkaError | None]:
            response = await self._rpc.ask(node, DeleteGroupsRequest(groups_names=some))
            return {
                one.group_id: failure(one, f"deleting group {one.group_id!r}", ApiKey.DELETE_GROUPS, node)
                for one in response.results
            }

        route = ToCoordinator(self._rpc.cluster, GROUP)
        await self._rpc.each(listed(group_ids, str), route, ask, "deleting groups")

    async def remove_members(
        self,
        group_id: str,
        *,
        instance_ids: str | Iterable[str] = (),
        member_ids: str | Iterable[str] = (),
        reason: str | None = None,
    ) -> None:
        """Remove members from a group (Kafka 2.4): static members by instance id, other members by member id.

        The group rebalances at once. A removed program that still runs joins again. The broker logs `reason` (Kafka
        3.2). Raises ItemsFailedError by id (UNKNOWN_MEMBER_ID, ...).
        """
        asked = [(True, one) for one in listed(instance_ids, str)]
        asked += [(False, one) for one in listed(member_ids, str)]
        names = {entry: entry[1] for entry in asked}

        async def ask(node: int | None, some: list[str]) -> dict[str, KafkaError | None]:
            members = [
                MemberIdentity(
                    member_id="" if static else name, group_instance_id=name if static else None, reason=reason
                )
                for static, name in names
                if name in some
            ]
            request = LeaveGroupRequest(group_id=group_id, members=members)
            what = f"removing from group {group_id!r}"
            response = await self._rpc.ask(node, request, what, at_least=_SEVERAL_LEAVE_SINCE)
            return {
                one.group_instance_id or one.member_id: failure(one, what, ApiKey.LEAVE_GROUP, node)
                for one in response.members
            }

        await self._rpc.each(
            names.values(), ToCoordinator(self._rpc.cluster, GROUP, group_id), ask, f"removing members of {group_id!r}"
        )

    # -- offsets of groups

    async def list_group_offsets(
        self, group_id: str, *, require_stable: bool = True
    ) -> dict[TopicPartition, CommittedOffset]:
        """The offsets that a group has committed, by partition, with leader epoch and metadata.

        `require_stable` waits for open transactions that may still change them. Raises KafkaError.
        """
        return await self._rpc.retry(
            lambda: fetch_committed(self._rpc.cluster, group_id, None, self._rpc.purpose, stable=require_stable),
            f"offsets of group {group_id!r}",
        )

    async def alter_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int | CommittedOffset]) -> None:
        """Set the committed offsets of an empty group. A group that does not exist is created.

        A CommittedOffset also sets leader epoch and metadata. Raises ItemsFailedError by partition: UNKNOWN_MEMBER_ID
        while the group has members, UNKNOWN_TOPIC_OR_PARTITION, ... Raises ValueError for a negative offset.
        """
        asked = offsets_to_commit(offsets)

        async def ask(node: int | None, some: list[TopicPartition]) -> dict[TopicPartition, KafkaError | None]:
            request = commit_request(GroupMetadata(group_id), {partition: asked[partition] for partition in some})
            response = await self._rpc.ask(node, request, at_least=2, at_most=BY_NAME)
            final = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            return _by_partition(response, f"offset of group {group_id!r} in", ApiKey.OFFSET_COMMIT, node, final)

        route = ToCoordinator(self._rpc.cluster, GROUP, group_id)
        await self._rpc.each(asked, route, ask, f"setting offsets of group {group_id!r}")

    async def delete_group_offsets(self, group_id: str, partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Delete a group's committed offsets of `partitions`, also while it has members (KIP-496, Kafka 2.4).

        Raises ItemsFailedError by partition: GROUP_SUBSCRIBED_TO_TOPIC if a member subscribes to the topic,
        UNSTABLE_OFFSET_COMMIT if an open transaction has a commit for it. Raises KafkaError for the group:
        GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP if the members are not consumers.
        """

        async def ask(node: int | None, some: list[TopicPartition]) -> dict[TopicPartition, KafkaError | None]:
            topics = [
                OffsetDeleteRequestTopic(
                    name=name, partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in numbers]
                )
                for name, numbers in by_topic(some).items()
            ]
            request = OffsetDeleteRequest(group_id=group_id, topics=topics)
            response = await self._rpc.ask(node, request, f"group {group_id!r}")
            final = {ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            return _by_partition(response, f"offset of group {group_id!r} in", ApiKey.OFFSET_DELETE, node, final)

        route = ToCoordinator(self._rpc.cluster, GROUP, group_id)
        what = f"deleting offsets of group {group_id!r}"
        await self._rpc.each([TopicPartition(*p) for p in listed(partitions, TopicPartition)], route, ask, what)


def _by_partition(
    response: Any, what: str, api_key: int, node: int | None, final: Collection[ErrorCode]
) -> dict[TopicPartition, KafkaError | None]:
    return {
        TopicPartition(topic.name, one.partition_index): failure(
            one, f"{what} {topic.name}-{one.partition_index}", api_key, node, final=final
        )
        for topic in response.topics
        for one in topic.partitions
    }


def _classic_group(group: Any) -> GroupDescription:
    members = tuple(
        GroupMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            tuple(decode_assignment(member.member_assignment)) if group.protocol_type == "consumer" else (),
        )
        for member in group.members
    )
    state = group.group_state or "Dead"
    return GroupDescription(group.group_id, state, group.protocol_type, group.protocol_data, members)


def _consumer_group(group: Any, node: int | None) -> GroupDescription | KafkaError | None:
    """A group of the consumer protocol (KIP-848); None where there is none."""
    if group.error_code == _NO_GROUP:
        return None
    what = f"describing group {group.group_id!r}"
    error = failure(group, what, ApiKey.CONSUMER_GROUP_DESCRIBE, node)
    return error or consumer_group_description(group)
