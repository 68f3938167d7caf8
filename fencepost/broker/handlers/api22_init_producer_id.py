"""InitProducerId (22): allocate a producer id and epoch; with a transactional id it also fences older producers.

v0-5 are served, and v6 with `unstable.api.versions.enable` (Kafka may still change it). From v3 a producer sends the
producer id and epoch that it holds (KIP-360), v4 knows PRODUCER_FENCED (KIP-588), v5 TRANSACTION_ABORTABLE, v6
two-phase commit (KIP-939).
"""

from fencepost.broker.network.context import CloseConnection, RequestContext
from fencepost.broker.ports import Broker
from fencepost.coordinator.ports import LogWriteFailed
from fencepost.coordinator.txn.wire_codes import visible
from fencepost.protocol.messages.api22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse


async def handle(node: Broker, request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """Respond once the producer id and epoch are durable and the id's earlier transaction has ended."""
    try:
        answer = await node.transactions.init_producer_id(
            request.transactional_id,
            request.transaction_timeout_ms,
            request.producer_id,
            request.producer_epoch,
            enable_2pc=request.enable2_pc,
            keep_prepared=request.keep_prepared_txn,
            caller=context,
        )
    except LogWriteFailed as error:
        # A standby. librdkafka asks the same broker again after any error code, and another one after this.
        raise CloseConnection(f"this broker gives no producer ids: {error}") from error
    if answer.error:
        return InitProducerIdResponse(
            error_code=visible(context.api_key, context.api_version, answer.error), producer_id=-1, producer_epoch=-1
        )
    return InitProducerIdResponse(
        producer_id=answer.producer_id,
        producer_epoch=answer.epoch,
        ongoing_txn_producer_id=answer.ongoing[0],
        ongoing_txn_producer_epoch=answer.ongoing[1],
    )
