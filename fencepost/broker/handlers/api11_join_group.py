"""JoinGroup (11): become a member of a group and take part in its next generation.

v0-9 are served. v0 has no rebalance timeout (the session timeout replaces it). v4 returns MEMBER_ID_REQUIRED to a new
member first (KIP-394), v5 brings static members (KIP-345), v7 the protocol type and a nullable protocol name, v8 a
reason for the log (KIP-800), v9 lets a returning leader skip the assignment (KIP-814). The response waits for the other
members. Responses to the followers of one generation differ only in the member id: the rest is encoded once.
"""

import struct
from functools import lru_cache, partial
from sys import intern

from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.reply import Encoded, Ready, Reply, encoded_prefix, reply_with
from fencepost.broker.ports import Broker
from fencepost.coordinator.group.commands import Join, JoinReply
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api11_join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from fencepost.protocol.varints import put_varint

REBALANCE_TIMEOUT_SINCE = 1
MEMBER_ID_REQUIRED_SINCE = 4
NULLABLE_PROTOCOL_SINCE = 7
SKIP_ASSIGNMENT_SINCE = 9

FRONTS_KEPT = 16
"""Size of the cache. The members of one group receive their responses one after another, so a few are enough."""
_END, _FLEXIBLE_END = b"\0\0\0\0", b"\1\0"
"""The bytes after the member id: no members, and no tagged fields."""
LONGEST_STRING = 2**15 - 1
"""In bytes, before v6."""
_put_length = struct.Struct(">h").pack


def handle(node: Broker, request: JoinGroupRequest, context: RequestContext) -> Reply:
    version = context.api_version
    timed = version >= REBALANCE_TIMEOUT_SINCE
    command = Join(
        intern(request.group_id),
        intern(request.member_id),
        request.group_instance_id,
        context.client_id or "",
        f"/{context.client_host}",
        request.session_timeout_ms,
        request.rebalance_timeout_ms if timed else request.session_timeout_ms,
        request.protocol_type,
        tuple([(intern(protocol.name), protocol.metadata) for protocol in request.protocols]),
        version >= MEMBER_ID_REQUIRED_SINCE,
        version >= SKIP_ASSIGNMENT_SINCE,
        request.reason,
    )
    return reply_with(partial(response, version), node.groups.classic.ask_join(command))


def response(version: int, reply: JoinReply) -> Ready:
    """The response; a follower's is encoded here, because it differs from other followers' only in the member id."""
    if reply.error or reply.members or reply.skip_assignment:
        return _full_response(version, reply)
    front = _front(version, reply.generation, reply.protocol_type, reply.protocol, reply.leader)
    member_id = reply.member_id.encode()
    if JoinGroupResponse.is_flexible(version):
        return Encoded([front + put_varint(len(member_id) + 1) + member_id + _FLEXIBLE_END])
    if len(member_id) > LONGEST_STRING:
        return _full_response(version, reply)  # the encoder raises the error that explains it
    return Encoded([front + _put_length(len(member_id)) + member_id + _END])


@lru_cache(maxsize=FRONTS_KEPT)
def _front(version: int, generation: int, protocol_type: str | None, protocol: str | None, leader: str) -> bytes:
    """The bytes before the member id in a follower's response."""
    template = JoinReply("", ErrorCode.NONE, generation, protocol_type, protocol, leader)
    rest = b"\1" + _FLEXIBLE_END if JoinGroupResponse.is_flexible(version) else b"\0\0" + _END
    return encoded_prefix(JoinGroupResponse, version, _full_response(version, template), rest)


def _full_response(version: int, reply: JoinReply) -> JoinGroupResponse:
    no_protocol = None if version >= NULLABLE_PROTOCOL_SINCE else ""
    return JoinGroupResponse(
        error_code=reply.error,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol if reply.protocol is not None else no_protocol,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.group_instance_id, metadata=member.metadata
            )
            for member in reply.members
        ],
    )
