"""DeleteTopics (20): remove topics.

v5 brings error messages, v6 deletion by topic id.
"""

from fencepost.protocol.schema import Array, Field, Int16, Int32, Request, Response, Since, String, Struct, Until, Uuid

VERSIONS = (0, 6)
FLEXIBLE = 4

DeleteTopicState = Struct(
    "DeleteTopicState",
    "name" / Since(6, String, default=None, nullable=6),
    "topic_id" / Since(6, Uuid),
)

DeleteTopicsRequest = Request(
    20,
    "DeleteTopicsRequest",
    VERSIONS,
    FLEXIBLE,
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
    20,
    "DeleteTopicsResponse",
    VERSIONS,
    FLEXIBLE,
    "throttle_time_ms" / Since(1, Int32),
    "responses" / Array(DeletableTopicResult),
)
