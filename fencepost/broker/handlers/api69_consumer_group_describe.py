"""ConsumerGroupDescribe (69): KIP-848 groups with their epochs, members, and current and target assignments.

v0-1 are served; v1 returns each member's protocol (KIP-1099). A classic group is GROUP_ID_NOT_FOUND here.
"""

from collections.abc import Iterable

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import NOT_ASKED, authorized_operations, denied, denied_topics
from fencepost.coordinator.group.consumer.view import DescribedConsumer, DescribedConsumerGroup, NamedTopic
from fencepost.protocol.admin_enums import AclOperation, AclResourceType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api69_consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


async def handle(
    node: Broker, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    if not node.consumer_protocol:
        error = ErrorCode.UNSUPPORTED_VERSION
        groups = [DescribedGroup(group_id=group_id, error_code=error) for group_id in request.group_ids]
        return ConsumerGroupDescribeResponse(groups=groups)
    refused = denied(node, context, AclOperation.DESCRIBE, AclResourceType.GROUP, request.group_ids)
    error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    groups = [DescribedGroup(group_id=name, error_code=error) for name in request.group_ids if name in refused]
    names = [name for name in request.group_ids if name not in refused]
    described = await node.groups.admin.describe_consumer_groups(names)
    topics = [_assigned_topics(group) for group in described]
    hidden = denied_topics(node, context, AclOperation.DESCRIBE, set[str]().union(*topics))
    for group, names_of_topics in zip(described, topics, strict=True):
        if not hidden.isdisjoint(names_of_topics):
            secret = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            groups.append(DescribedGroup(group_id=group.group_id, error_code=secret, error_message=HIDDEN_TOPICS))
            continue
        operations = NOT_ASKED
        if request.include_authorized_operations:
            operations = authorized_operations(node, context, AclResourceType.GROUP, group.group_id)
        groups.append(_group(group, operations))
    return ConsumerGroupDescribeResponse(groups=groups)


def _assigned_topics(group: DescribedConsumerGroup) -> set[str]:
    return {topic.name for member in group.members for topic in (*member.assigned, *member.target)}


def _group(group: DescribedConsumerGroup, operations: int) -> DescribedGroup:
    return DescribedGroup(
        error_code=group.error,
        error_message=group.text,
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[_member(member) for member in group.members],
        authorized_operations=NOT_ASKED if group.error else operations,
    )


def _member(described: DescribedConsumer) -> Member:
    member = described.member
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(described.assigned),
        target_assignment=_assignment(described.target),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(topics: Iterable[NamedTopic]) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic.topic_id, topic_name=topic.name, partitions=list(topic.partitions))
            for topic in topics
        ]
    )
