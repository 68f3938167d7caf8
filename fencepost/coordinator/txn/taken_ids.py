"""Takes transactional ids from their holders: idle ones, and all after the database went back in time."""

import logging

import trio

from fencepost.coordinator.ports import LogWriteFailed
from fencepost.coordinator.txn.commands import Answer, InitProducerId
from fencepost.coordinator.txn.expiry import NO_TIMEOUT_MS
from fencepost.coordinator.txn.fencing_history import FencingHistory
from fencepost.coordinator.txn.pipeline import RequestPipeline, resolve
from fencepost.coordinator.txn.state import Dead, Ongoing
from fencepost.coordinator.txn.store import TxnShard, TxnStore

logger = logging.getLogger(__name__)


async def expire_idle_ids(store: TxnStore, history: FencingHistory) -> None:
    """Expire idle ids (row T12) every `id_expiration_interval_ms`, until cancelled.

    The next round retries what a log refused.
    """
    while True:
        await trio.sleep(store.config.id_expiration_interval_ms / 1000)
        for shard in store.shards():
            with store.runtime.expiring(shard):
                await _expire(store, history, shard)


async def _expire(store: TxnStore, history: FencingHistory, shard: TxnShard) -> None:
    try:
        for tombstones in store.tombstones(shard):
            ticket = shard.write(tombstones)
            history.expired(tombstones)
            await ticket.durable()
            await trio.lowlevel.checkpoint()
    except LogWriteFailed as error:
        logger.warning("expired transactional ids could not be removed, the next round retries: %s", error)


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
