"""DescribeCluster (60): the brokers and the controller. v1 endpoint types (KIP-919); v2 fenced brokers (KIP-1073)."""

from fencepost.broker.brokers import brokers, controller_id
from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import cluster_operations
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api60_describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

ENDPOINT_TYPE_SINCE = 1
BROKER_ENDPOINT = 1
_ENDPOINTS = {BROKER_ENDPOINT: "BROKER", 2: "CONTROLLER"}


def handle(node: Broker, request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    wanted = request.endpoint_type if context.api_version >= ENDPOINT_TYPE_SINCE else BROKER_ENDPOINT
    if wanted not in _ENDPOINTS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, error_message=f"Unsupported endpoint type {wanted}"
        )
    if wanted != BROKER_ENDPOINT:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message=(
                "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
            ),
        )
    return DescribeClusterResponse(
        cluster_id=node.metadata.facts.cluster_id,
        controller_id=controller_id(node),
        brokers=[
            DescribeClusterBroker(broker_id=one.node_id, host=one.host, port=one.port, rack=one.rack)
            for one in brokers(node, context)
        ],
        cluster_authorized_operations=cluster_operations(node, context, request.include_cluster_authorized_operations),
    )
