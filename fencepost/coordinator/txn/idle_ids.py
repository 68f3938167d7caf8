"""Removes transactional ids that were idle for too long (row T12), in rounds."""

import logging

import trio

from fencepost.coordinator.ports import LogWriteFailed
from fencepost.coordinator.txn.fencing_history import FencingHistory
from fencepost.coordinator.txn.store import TxnShard, TxnStore

logger = logging.getLogger(__name__)


async def expire_idle_ids(store: TxnStore, history: FencingHistory) -> None:
    """Expire ids every `id_expiration_interval_ms`, until cancelled; the next round retries what a log refused."""
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
