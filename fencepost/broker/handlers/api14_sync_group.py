"""SyncGroup (14): the leader sends all assignments, each member receives its own.

v0-5 are served. v3 brings static members (KIP-345), v5 names the protocol in both directions (KIP-559). The response
to a follower waits for the leader's request. The bytes before the assignment are the same for all members of one
group: they are encoded once.
"""

import struct
from functools import lru_cache, partial
from sys import intern

from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.reply import Encoded, Ready, Reply, encoded_prefix, reply_with
from fencepost.broker.ports import Broker
from fencepost.coordinator.group.commands import Sync, SyncReply
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api14_sync_group import SyncGroupRequest, SyncGroupResponse
from fencepost.protocol.varints import put_varint

PROTOCOL_SINCE = 5

FRONTS_KEPT = 64
"""Size of the cache. Most groups share their version, protocol type and protocol with others."""
_put_length = struct.Struct(">i").pack


def handle(node: Broker, request: SyncGroupRequest, context: RequestContext) -> Reply:
    version = context.api_version
    if version >= PROTOCOL_SINCE and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    command = Sync(
        intern(request.group_id),
        intern(request.member_id),
        request.group_instance_id,
        request.generation_id,
        request.protocol_type,
        request.protocol_name,
        tuple([(assignment.member_id, assignment.assignment) for assignment in request.assignments]),
    )
    return reply_with(partial(response, version), node.groups.classic.ask_sync(command))


def response(version: int, reply: SyncReply) -> Ready:
    """The response; one without an error is encoded here."""
    if reply.error:
        return _full_response(reply)
    front, assignment = _front(version, reply.protocol_type, reply.protocol), reply.assignment
    if SyncGroupResponse.is_flexible(version):
        return Encoded([front + put_varint(len(assignment) + 1) + assignment + b"\0"])
    return Encoded([front + _put_length(len(assignment)) + assignment])


@lru_cache(maxsize=FRONTS_KEPT)
def _front(version: int, protocol_type: str | None, protocol: str | None) -> bytes:
    template = _full_response(SyncReply(ErrorCode.NONE, protocol_type, protocol))
    return encoded_prefix(
        SyncGroupResponse, version, template, b"\1\0" if SyncGroupResponse.is_flexible(version) else _put_length(0)
    )


def _full_response(reply: SyncReply) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=reply.error,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        assignment=reply.assignment,
    )
