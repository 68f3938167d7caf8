"""EndTxn (26): commit or abort a transaction; the decision is durable and visible before the response.

v0-5 are served. v2 knows PRODUCER_FENCED (KIP-588), v4 TRANSACTION_ABORTABLE. v5 is TV2: it bumps the epoch, and its
response holds the producer id and epoch of the next transaction (KIP-890 part 2).
"""

from functools import partial

from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.reply import Reply, reply_with
from fencepost.broker.ports import Broker
from fencepost.coordinator.txn.commands import Answer, EndTxn
from fencepost.coordinator.txn.wire_codes import visible
from fencepost.protocol.messages.api26_end_txn import EndTxnRequest, EndTxnResponse

EPOCH_BUMP_SINCE = 5


def handle(node: Broker, request: EndTxnRequest, context: RequestContext) -> Reply:
    """End the transaction by the rules of the request's version."""
    version = 2 if context.api_version >= EPOCH_BUMP_SINCE else 0
    command = EndTxn(request.producer_id, request.producer_epoch, request.committed, version)
    result = node.transactions.submit(request.transactional_id, command, context)
    return reply_with(partial(_response, context), result)


def _response(context: RequestContext, answer: Answer) -> EndTxnResponse:
    if answer.error:
        return EndTxnResponse(error_code=visible(context.api_key, context.api_version, answer.error))
    return EndTxnResponse(producer_id=answer.producer_id, producer_epoch=answer.epoch)
