"""FindCoordinator (10): which broker coordinates a group or a transactional id.

v1 brings transactional ids (KIP-98), v4 many keys at once (KIP-699).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Int8, Int16, Int32, RequestValue, ResponseValue, String, Value, since, until


class FindCoordinatorRequest(RequestValue["FindCoordinatorResponse"], api=ApiKey.FIND_COORDINATOR):
    key: String = until(3)
    key_type: Int8 = since(1)
    coordinator_keys: list[String] = since(4)


class Coordinator(Value):
    key: String = since(4)
    node_id: Int32 = since(4)
    host: String = since(4)
    port: Int32 = since(4)
    error_code: Int16 = since(4)
    error_message: String | None = since(4, default="")


class FindCoordinatorResponse(ResponseValue, api=ApiKey.FIND_COORDINATOR):
    throttle_time_ms: Int32 = since(1)
    error_code: Int16 = until(3)
    error_message: String | None = since(1, until=3, default="")
    node_id: Int32 = until(3)
    host: String = until(3)
    port: Int32 = until(3)
    coordinators: list[Coordinator] = since(4)
