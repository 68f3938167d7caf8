"""UnregisterBroker (64): remove a broker from the cluster (KIP-866). The only broker cannot be removed."""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api64_unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


def handle(node: Broker, request: UnregisterBrokerRequest, _context: RequestContext) -> UnregisterBrokerResponse:
    """Reject the request. Kafka unregisters even a live broker, and fences it."""
    if request.broker_id == node.config.node_id:
        return UnregisterBrokerResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=f"Broker ID {request.broker_id} is the only one of this cluster, and it is alive",
        )
    return UnregisterBrokerResponse(
        error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
        error_message=f"Broker ID {request.broker_id} is not currently registered",
    )
