"""States of share partitions that become part of a transaction, on the broker that keeps them."""

from collections.abc import Collection, Mapping

from fencepost.broker.ports import Broker
from fencepost.coordinator.ports import ProducerTag, coordinator_error
from fencepost.coordinator.share.values import Outcome, ShareKey, StateUpdate
from fencepost.coordinator.txn.causes import Caller
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import SHARE_STATE_TOPIC, TopicPartition

NO_SEQUENCE = 0
"""Records of coordinators have no sequence numbers."""


async def write_in_transaction(
    node: Broker, transactional_id: str, producer: ProducerTag, updates: Mapping[ShareKey, StateUpdate]
) -> dict[ShareKey, Outcome]:
    """Have the states join the producer's transaction, and store there what becomes of records if it commits."""
    problem = await node.share_states.problem()
    error = ErrorCode.COORDINATOR_NOT_AVAILABLE if problem else None
    if error is None:
        error = await join(node, transactional_id, producer, updates, None)
    if error:
        return dict.fromkeys(updates, Outcome(error, problem))
    found = await node.share_states.write_in_transaction(producer, list(updates.items()), lambda outcomes: None)
    return dict(zip(updates, found, strict=True))


async def join(
    node: Broker, transactional_id: str, producer: ProducerTag, keys: Collection[ShareKey], caller: Caller | None
) -> ErrorCode:
    """Add the partitions of `__share_group_state` to the transaction; why they could not be added.

    After NONE, no other task has run before the return (row T16). If another broker coordinates the transaction, its
    marker may have come meanwhile: then the guard is gone, and the client asks again.
    """
    states = {TopicPartition(SHARE_STATE_TOPIC, node.share_states.partition_of(key)) for key in keys}
    is_remote = node.transactions.is_remote(transactional_id)
    logs = [log for tp in sorted(states) if is_remote and (log := node.partition(tp)) is not None]
    identity = producer.producer_id, producer.producer_epoch
    guards = [log.verify(*identity, NO_SEQUENCE, 0) for log in logs]
    results = await node.transactions.ensure_partitions(transactional_id, *identity, states, add=True, caller=caller)
    error = next(filter(None, results.values()), ErrorCode.NONE)
    for log, guard in zip(logs, guards, strict=True):
        known = log.producers
        is_gone = guard is None or known.guard_of(producer.producer_id) is not guard
        if not error and is_gone and not known.has_open(*identity):
            return ErrorCode.CONCURRENT_TRANSACTIONS
    return coordinator_error(error)
