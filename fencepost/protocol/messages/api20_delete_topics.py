"""DeleteTopics (20): remove topics.

v5 brings error messages, v6 deletion by topic id.
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Field, Int16, Int32, Request, Response, Since, String, Struct, Until, Uuid

DeleteTopicState = Struct(
    "DeleteTopicState",
    "name" / Since(6, String, default=None, nullable=6),
    "topic_id" / Since(6, Uuid),
)

DeleteTopicsRequest = Request(
    ApiKey.DELETE_TOPICS,
    "topics" / Since(6, Array(DeleteTopicState)),
    "topic_names" / Until(5, Array(String)),
    "timeout_ms" / Int32,
)

DeletableTopicResult = Struct(
    "DeletableTopicResult",
    "name" / Field(String, nullable=6),
    "topic_id" / Since(6, Uuid),
    "error_code" / Int16,
    "error_message" / Since(5, String, default=None, nullable=5),
)

DeleteTopicsResponse = Response(
    ApiKey.DELETE_TOPICS,
    "throttle_time_ms" / Since(1, Int32),
    "responses" / Array(DeletableTopicResult),
)
