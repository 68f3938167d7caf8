"""DeleteTopics (20): remove topics.

v5 brings error messages, v6 deletion by topic id.
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import (
    Int16,
    Int32,
    RequestValue,
    ResponseValue,
    String,
    Uuid,
    Value,
    field,
    since,
    until,
)


class DeleteTopicState(Value):
    name: String | None = since(6, default=None)
    topic_id: Uuid = since(6)


class DeleteTopicsRequest(RequestValue["DeleteTopicsResponse"], api=ApiKey.DELETE_TOPICS):
    topics: list[DeleteTopicState] = since(6)
    topic_names: list[String] = until(5)
    timeout_ms: Int32 = 0


class DeletableTopicResult(Value):
    name: String | None = field(default="", nullable=6)
    topic_id: Uuid = since(6)
    error_code: Int16 = 0
    error_message: String | None = since(5, default=None)


class DeleteTopicsResponse(ResponseValue, api=ApiKey.DELETE_TOPICS):
    throttle_time_ms: Int32 = since(1)
    responses: list[DeletableTopicResult] = []
