"""Takes transactional ids from their holders: idle ones, and all after the database went back in time."""

import logging
from collections.abc import Callable, Iterator

import trio

from fencepost.coordinator.ports import Clock, LogWriteFailed
from fencepost.coordinator.txn import machine
from fencepost.coordinator.txn.causes import Caller
from fencepost.coordinator.txn.commands import Answer, Command, InitProducerId, Waiting, resolve
from fencepost.coordinator.txn.config import TxnConfig
from fencepost.coordinator.txn.expiry import NO_TIMEOUT_MS, unused_ids
from fencepost.coordinator.txn.fencing_history import FencingHistory
from fencepost.coordinator.txn.ids import TxnRuntime, TxnShard
from fencepost.coordinator.txn.state import Dead, Ongoing, TxnRecord

logger = logging.getLogger(__name__)

EXPIRY_BATCH = 500

Submit = Callable[[str, Command, Caller | None], Answer | Waiting]


async def expire_idle_ids(runtime: TxnRuntime, clock: Clock, config: TxnConfig, history: FencingHistory) -> None:
    """Expire idle ids (row T12) every `id_expiration_interval_ms`, until cancelled.

    The next round retries what a log refused.
    """
    while True:
        await trio.sleep(config.id_expiration_interval_ms / 1000)
        for shard in runtime.shards():
            with runtime.expiring(shard):
                await _expire(shard, _tombstones(shard, clock.now_ms(), config), history)


async def _expire(shard: TxnShard, batches: Iterator[list[TxnRecord]], history: FencingHistory) -> None:
    try:
        for tombstones in batches:
            ticket = shard.write(tombstones)
            history.expired(tombstones)
            await ticket.durable()
            await trio.lowlevel.checkpoint()
    except LogWriteFailed as error:
        logger.warning("expired transactional ids could not be removed, the next round retries: %s", error)


def _tombstones(shard: TxnShard, now_ms: int, config: TxnConfig) -> Iterator[list[TxnRecord]]:
    """The tombstones of the shard's expired ids, some hundred to a batch (row T12).

    Each batch is made when the caller asks for it, so an id that was used meanwhile stays.
    """
    version = config.transaction_version
    unused = list(unused_ids(shard.state.items(), now_ms, config.transactional_id_expiration_ms))
    for start in range(0, len(unused), EXPIRY_BATCH):
        batch = unused[start : start + EXPIRY_BATCH]
        decisions = [
            machine.decide(name, shard.state.state_of(name), command, now_ms, version) for name, command in batch
        ]
        if records := [record for decision in decisions for record in decision.log]:
            yield records


def take_ids(submit: Submit, nursery: trio.Nursery, shard: TxnShard) -> None:
    """Fence the producers of all ids of a shard, as InitProducerId of another client does; open transactions abort.

    Records that were acknowledged may be lost, so that a commit would be torn: those of open transactions, and those of
    transactions whose beginning is lost, too, in which a producer goes on under its old epoch. A transaction of a
    two-phase commit stays, because only its user may end it.
    """
    states = list(shard.state.items())
    for name, state in states:
        if isinstance(state, Dead) or (isinstance(state, Ongoing) and state.timeout_ms == NO_TIMEOUT_MS):
            continue
        answer = submit(name, InitProducerId(state.timeout_ms), None)
        if not isinstance(answer, Answer):
            nursery.start_soon(resolve, answer)
    if states:
        logger.warning(
            "producers of %d transactional ids are fenced, because the database has lost a part of their transactions,"
            " maybe: they have to begin anew",
            len(states),
        )
