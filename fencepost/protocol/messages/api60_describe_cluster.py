"""DescribeCluster (60): cluster id, controller and brokers (KIP-700).

v1 brings the endpoint type, v2 fenced brokers.
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Bool, Field, Int8, Int16, Int32, Request, Response, Since, String, Struct

DescribeClusterRequest = Request(
    ApiKey.DESCRIBE_CLUSTER,
    "include_cluster_authorized_operations" / Bool,
    "endpoint_type" / Since(1, Int8, default=1),
    "include_fenced_brokers" / Since(2, Bool),
)

DescribeClusterBroker = Struct(
    "DescribeClusterBroker",
    "broker_id" / Int32,
    "host" / String,
    "port" / Int32,
    "rack" / Field(String, default=None, nullable=0),
    "is_fenced" / Since(2, Bool),
)

DescribeClusterResponse = Response(
    ApiKey.DESCRIBE_CLUSTER,
    "throttle_time_ms" / Int32,
    "error_code" / Int16,
    "error_message" / Field(String, default=None, nullable=0),
    "endpoint_type" / Since(1, Int8, default=1),
    "cluster_id" / String,
    "controller_id" / Field(Int32, default=-1),
    "brokers" / Array(DescribeClusterBroker),
    "cluster_authorized_operations" / Field(Int32, default=-2147483648),
)
