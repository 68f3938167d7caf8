"""ShareGroupDescribe (77): share groups with their epochs, members and assignments (KIP-932).

v1 is served. A group of another type is GROUP_ID_NOT_FOUND here.
"""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import NOT_ASKED, authorized_operations, denied, denied_topics
from fencepost.coordinator.group.share.view import DescribedShareGroup, DescribedShareMember
from fencepost.protocol.admin_enums import AclOperation, AclResourceType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api77_share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)

HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


async def handle(
    node: Broker, request: ShareGroupDescribeRequest, context: RequestContext
) -> ShareGroupDescribeResponse:
    if not node.share_protocol:
        error = ErrorCode.UNSUPPORTED_VERSION
        groups = [DescribedGroup(group_id=group_id, error_code=error) for group_id in request.group_ids]
        return ShareGroupDescribeResponse(groups=groups)
    refused = denied(node, context, AclOperation.DESCRIBE, AclResourceType.GROUP, request.group_ids)
    error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    groups = [DescribedGroup(group_id=name, error_code=error) for name in request.group_ids if name in refused]
    names = [name for name in request.group_ids if name not in refused]
    for group in await node.groups.admin.describe_share_groups(names):
        topics = {topic.name for member in group.members for topic in member.assigned}
        if denied_topics(node, context, AclOperation.DESCRIBE, topics):
            secret = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            groups.append(DescribedGroup(group_id=group.group_id, error_code=secret, error_message=HIDDEN_TOPICS))
            continue
        operations = NOT_ASKED
        if request.include_authorized_operations and not group.error:
            operations = authorized_operations(node, context, AclResourceType.GROUP, group.group_id)
        groups.append(_group(group, operations))
    return ShareGroupDescribeResponse(groups=groups)


def _group(group: DescribedShareGroup, operations: int) -> DescribedGroup:
    return DescribedGroup(
        error_code=group.error,
        error_message=group.text,
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[_member(member) for member in group.members],
        authorized_operations=operations,
    )


def _member(described: DescribedShareMember) -> Member:
    member = described.member
    topics = [
        TopicPartitions(topic_id=topic.topic_id, topic_name=topic.name, partitions=list(topic.partitions))
        for topic in described.assigned
    ]
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        assignment=Assignment(topic_partitions=topics),
    )
