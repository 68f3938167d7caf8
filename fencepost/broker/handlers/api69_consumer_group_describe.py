"""ConsumerGroupDescribe (69): KIP-848 groups with their epochs, members, and current and target assignments.

v0-1 are served; v1 returns each member's protocol (KIP-1099). A classic group is GROUP_ID_NOT_FOUND here.
"""

from collections.abc import Iterable

from fencepost.broker.handlers.api15_describe_groups import GROUP_OPERATIONS, NOT_ASKED_FOR
from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import HasGroups
from fencepost.coordinator.group.consumer.view import DescribedConsumer, DescribedConsumerGroup, NamedTopic
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api69_consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


async def handle(
    node: HasGroups, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    """Describe each group."""
    if not node.consumer_protocol:
        error = ErrorCode.UNSUPPORTED_VERSION
        groups = [DescribedGroup(group_id=group_id, error_code=error) for group_id in request.group_ids]
        return ConsumerGroupDescribeResponse(groups=groups)
    described = await node.groups.admin.describe_consumer_groups(request.group_ids)
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED_FOR
    return ConsumerGroupDescribeResponse(groups=[_group(group, operations) for group in described])


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
        authorized_operations=NOT_ASKED_FOR if group.error else operations,
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
