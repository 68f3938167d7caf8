"""DescribeCluster (60): cluster id, controller and brokers (KIP-700).

v1 brings the endpoint type, v2 fenced brokers.
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Bool, Int8, Int16, Int32, RequestValue, ResponseValue, String, Value, since


class DescribeClusterRequest(RequestValue["DescribeClusterResponse"], api=ApiKey.DESCRIBE_CLUSTER):
    include_cluster_authorized_operations: Bool = False
    endpoint_type: Int8 = since(1, default=1)
    include_fenced_brokers: Bool = since(2)


class DescribeClusterBroker(Value):
    broker_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None
    is_fenced: Bool = since(2)


class DescribeClusterResponse(ResponseValue, api=ApiKey.DESCRIBE_CLUSTER):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    endpoint_type: Int8 = since(1, default=1)
    cluster_id: String = ""
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker] = []
    cluster_authorized_operations: Int32 = -2147483648
