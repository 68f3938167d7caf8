"""AddOffsetsToTxn (25): add a group's offsets partition to the transaction.

v0-4 are served; v2 knows PRODUCER_FENCED (KIP-588), v4 TRANSACTION_ABORTABLE. Clients of TV2 do not send it: their
TxnOffsetCommit adds the group's partition implicitly.
"""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.coordinator.txn.wire_codes import visible
from fencepost.protocol.messages.api25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


async def handle(node: Broker, request: AddOffsetsToTxnRequest, context: RequestContext) -> AddOffsetsToTxnResponse:
    """Add the partition of `__consumer_offsets` that stores the group's offsets."""
    error = await node.transactions.add_offsets(
        request.transactional_id, request.producer_id, request.producer_epoch, request.group_id, caller=context
    )
    return AddOffsetsToTxnResponse(error_code=visible(context.api_key, context.api_version, error))
