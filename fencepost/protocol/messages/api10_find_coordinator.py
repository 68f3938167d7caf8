"""FindCoordinator (10): which broker coordinates a group or a transactional id.

v1 brings transactional ids (KIP-98), v4 many keys at once (KIP-699).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Field, Int8, Int16, Int32, Request, Response, Since, String, Struct, Until

FindCoordinatorRequest = Request(
    ApiKey.FIND_COORDINATOR,
    "key" / Until(3, String),
    "key_type" / Since(1, Int8),
    "coordinator_keys" / Since(4, Array(String)),
)

Coordinator = Struct(
    "Coordinator",
    "key" / Since(4, String),
    "node_id" / Since(4, Int32),
    "host" / Since(4, String),
    "port" / Since(4, Int32),
    "error_code" / Since(4, Int16),
    "error_message" / Since(4, String, nullable=4),
)

FindCoordinatorResponse = Response(
    ApiKey.FIND_COORDINATOR,
    "throttle_time_ms" / Since(1, Int32),
    "error_code" / Until(3, Int16),
    "error_message" / Field(String, 1, 3, nullable=1),
    "node_id" / Until(3, Int32),
    "host" / Until(3, String),
    "port" / Until(3, Int32),
    "coordinators" / Since(4, Array(Coordinator)),
)
