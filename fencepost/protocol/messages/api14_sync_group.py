"""SyncGroup (14): the leader sends the assignments, every member receives its own.

v3 brings static members (KIP-345), v5 protocol type and name (KIP-559).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Bytes, Int16, Int32, Request, Response, Since, String, Struct

SyncGroupRequestAssignment = Struct(
    "SyncGroupRequestAssignment",
    "member_id" / String,
    "assignment" / Bytes,
)

SyncGroupRequest = Request(
    ApiKey.SYNC_GROUP,
    "group_id" / String,
    "generation_id" / Int32,
    "member_id" / String,
    "group_instance_id" / Since(3, String, default=None, nullable=3),
    "protocol_type" / Since(5, String, default=None, nullable=5),
    "protocol_name" / Since(5, String, default=None, nullable=5),
    "assignments" / Array(SyncGroupRequestAssignment),
)

SyncGroupResponse = Response(
    ApiKey.SYNC_GROUP,
    "throttle_time_ms" / Since(1, Int32),
    "error_code" / Int16,
    "protocol_type" / Since(5, String, default=None, nullable=5),
    "protocol_name" / Since(5, String, default=None, nullable=5),
    "assignment" / Bytes,
)
