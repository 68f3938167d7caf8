"""Transactions that another broker of the cluster coordinates: a partition's leader asks it before the first write.

Kafka's brokers do the same, with the same request (KIP-890): AddPartitionsToTxn v5, which verifies or adds.
"""

import logging
import math
from collections.abc import Collection
from typing import TYPE_CHECKING

import trio

from fencepost.broker.cluster.engine import StoreUnavailable
from fencepost.broker.cluster.history import EPOCHS_OF_LIFE
from fencepost.broker.peers.peer import PeerUnavailable
from fencepost.coordinator.partitioning import partition_for
from fencepost.coordinator.ports import TopicView
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from fencepost.protocol.topics import TRANSACTION_TOPIC, TopicPartition

if TYPE_CHECKING:
    from fencepost.broker.cluster.membership import Membership

ADD_VERSION = 5

logger = logging.getLogger(__name__)


class RemoteTransactions:
    """The coordinators of the other brokers, as `RemoteCoordinators`."""

    def __init__(self, cluster: "Membership", topics: TopicView, partitions: int) -> None:
        """`partitions` is the number of partitions of `__transaction_state`."""
        self._cluster = cluster
        self._topics = topics
        self._partitions = partitions
        self._looking = trio.Lock()
        self._looked_at = -math.inf
        """When the last look at the database's position began."""

    def coordinates(self, transactional_id: str) -> bool:
        """Whether another broker coordinates this id, or one that is not known yet."""
        return not self._cluster.ownership.leads_partition(*self._place(transactional_id))

    def lost_some(self, partition: int) -> bool:
        """Whether the database went back before this broker was the first one to lead the partition again."""
        log = self._cluster.directory.opened(TopicPartition(TRANSACTION_TOPIC, partition))
        return self._cluster.writer.history.follows_loss and log is not None and log.epochs.rise >= EPOCHS_OF_LIFE

    async def ensure(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        add: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        """The coordinator's error for each partition. NETWORK_EXCEPTION if it cannot be asked."""
        broker = self._cluster.ownership.of(*self._place(transactional_id)).broker
        if broker is None or broker == self._cluster.ownership.broker:
            return dict.fromkeys(partitions, ErrorCode.NOT_COORDINATOR)
        topics: dict[str, list[int]] = {}
        for tp in sorted(partitions):
            topics.setdefault(tp.topic, []).append(tp.partition)
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            verify_only=not add,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()],
        )
        try:
            answer = await self._cluster.links.ask(
                broker, AddPartitionsToTxnRequest(transactions=[transaction]), ADD_VERSION
            )
            await self._note_position()
        except (PeerUnavailable, StoreUnavailable) as error:
            logger.warning("transactional id %r cannot be verified: %s", transactional_id, error)
            return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
        return _codes(answer, partitions)

    async def _note_position(self) -> None:
        """The answer rests on what is durable. From now on this broker notices if the database loses that: it may lead
        no log of the transaction in which it could read it. Requests share one look. Raises StoreUnavailable.
        """
        since = trio.current_time()
        async with self._looking:
            if self._looked_at < since:
                began = trio.current_time()
                await self._cluster.in_thread(self._cluster.rounds.engine.position)
                self._looked_at = began

    def _place(self, transactional_id: str) -> tuple[bytes, int]:
        """The topic id and partition that hold the id's state."""
        topic_id = self._topics.topic_id(TRANSACTION_TOPIC)
        assert topic_id is not None, "the first controller has made the internal topics"
        return topic_id, partition_for(transactional_id, self._partitions)


def _codes(
    answer: AddPartitionsToTxnResponse, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    found = dict.fromkeys(partitions, ErrorCode(answer.error_code) or ErrorCode.UNKNOWN_SERVER_ERROR)
    for transaction in answer.results_by_transaction:
        for topic in transaction.topic_results:
            for part in topic.results_by_partition:
                found[TopicPartition(topic.name, part.partition_index)] = ErrorCode(part.partition_error_code)
    return found
