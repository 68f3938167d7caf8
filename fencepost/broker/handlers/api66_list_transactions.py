"""ListTransactions (66): transactional ids by state and producer (KIP-664).

v0-2 are served; v1 filters by a transaction's duration (KIP-994), v2 by a pattern of the id (KIP-1152).
"""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import denied
from fencepost.coordinator.txn.listing import Filters
from fencepost.protocol.admin_enums import AclOperation, AclResourceType
from fencepost.protocol.messages.api66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)


async def handle(node: Broker, request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
    """List the transactions that match all filters."""
    listing = await node.transactions.list_transactions(
        Filters(
            states=frozenset(request.state_filters),
            producer_ids=frozenset(request.producer_id_filters),
            running_longer_than_ms=request.duration_filter,
            pattern=request.transactional_id_pattern or "",
        )
    )
    ids = [line.transactional_id for line in listing.transactions]
    hidden = denied(node, context, AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, ids)
    return ListTransactionsResponse(
        error_code=listing.error,
        unknown_state_filters=list(listing.unknown_states),
        transaction_states=[
            TransactionState(
                transactional_id=line.transactional_id, producer_id=line.producer_id, transaction_state=line.state
            )
            for line in listing.transactions
            if line.transactional_id not in hidden
        ],
    )
