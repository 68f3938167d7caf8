"""DeleteShareGroupOffsets (92): delete the start offsets of topics of an empty share group (KIP-932)."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import (
    Int16,
    Int32,
    RequestValue,
    ResponseValue,
    String,
    Uuid,
    Value,
)


class DeletedTopic(Value):
    topic_name: String = ""


class DeleteShareGroupOffsetsRequest(
    RequestValue["DeleteShareGroupOffsetsResponse"], api=ApiKey.DELETE_SHARE_GROUP_OFFSETS
):
    group_id: String = ""
    topics: list[DeletedTopic] = []


class TopicResult(Value):
    topic_name: String = ""
    topic_id: Uuid = bytes(16)
    error_code: Int16 = 0
    error_message: String | None = None


class DeleteShareGroupOffsetsResponse(ResponseValue, api=ApiKey.DELETE_SHARE_GROUP_OFFSETS):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    responses: list[TopicResult] = []
