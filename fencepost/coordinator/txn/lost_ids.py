"""Takes transactional ids from their holders after the database went back in time."""

import logging

import trio

from fencepost.coordinator.txn.commands import Answer, InitProducerId
from fencepost.coordinator.txn.expiry import NO_TIMEOUT_MS
from fencepost.coordinator.txn.pipeline import RequestPipeline, resolve
from fencepost.coordinator.txn.state import Dead, Ongoing
from fencepost.coordinator.txn.store import TxnShard

logger = logging.getLogger(__name__)


def take_ids(pipeline: RequestPipeline, nursery: trio.Nursery, shard: TxnShard) -> None:
    """Fence the producers of all ids of a shard, as InitProducerId of another client does; open transactions abort.

    Records that were acknowledged may be lost, so that a commit would be torn: those of open transactions, and those of
    transactions whose beginning is lost, too, in which a producer goes on under its old epoch. A transaction of a
    two-phase commit stays, because only its user may end it.
    """
    states = list(shard.state.items())
    for name, state in states:
        if isinstance(state, Dead) or (isinstance(state, Ongoing) and state.timeout_ms == NO_TIMEOUT_MS):
            continue
        answer = pipeline.submit(name, InitProducerId(state.timeout_ms), None)
        if not isinstance(answer, Answer):
            nursery.start_soon(resolve, answer)
    if states:
        logger.warning(
            "producers of %d transactional ids are fenced, because the database has lost a part of their transactions,"
            " maybe: they have to begin anew",
            len(states),
        )
