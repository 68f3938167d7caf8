"""UnregisterBroker (64): forget a broker that will not come back (KIP-866). This one is here, and there is no other."""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import HasConfig
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api64_unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


def handle(node: HasConfig, request: UnregisterBrokerRequest, _context: RequestContext) -> UnregisterBrokerResponse:
    """Say why it is not done. Kafka takes even a living broker at its word, and fences it."""
    if request.broker_id == node.config.node_id:
        return UnregisterBrokerResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=f"Broker ID {request.broker_id} is the only one of this cluster, and it is alive",
        )
    return UnregisterBrokerResponse(
        error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
        error_message=f"Broker ID {request.broker_id} is not currently registered",
    )
