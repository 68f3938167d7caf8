"""Transactions that another broker coordinates: a partition's leader asks it before the first write; and producer ids.

Kafka's brokers do the same, with the same request (KIP-890): AddPartitionsToTxn v5, which verifies or adds. All
transactions that wait for one broker are in one request.
"""

import logging
from collections.abc import Collection
from functools import partial

from fencepost.broker.peers.asked_together import AskedTogether
from fencepost.broker.peers.peer import PeerUnavailable
from fencepost.broker.place import Place
from fencepost.coordinator.partitioning import partition_for
from fencepost.coordinator.ports import LogWriteFailed, ProducerIdSource, TopicView
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api22_init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.api24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from fencepost.protocol.topics import TRANSACTION_TOPIC, TopicPartition

ADD_VERSION = 5
INIT_PRODUCER_ID_VERSION = 4

logger = logging.getLogger(__name__)


class RemoteTransactions:
    """The coordinators of the other brokers, as `RemoteCoordinators`."""

    def __init__(self, place: Place, topics: TopicView, partitions: int) -> None:
        """`partitions` is the number of partitions of `__transaction_state`."""
        self._place = place
        self._topics = topics
        self._partitions = partitions
        self._asked: dict[int, AskedTogether[AddPartitionsToTxnTransaction, dict[TopicPartition, ErrorCode]]] = {}
        """By broker."""

    def coordinates(self, transactional_id: str) -> bool:
        return not self._place.leads_partition(*self._partition(transactional_id))

    def lost_some(self, partition: int) -> bool:
        return self._place.lost_commits(TopicPartition(TRANSACTION_TOPIC, partition))

    async def ensure(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        add: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        """The coordinator's error for each partition. NETWORK_EXCEPTION if it cannot be asked."""
        broker = self._place.leader(*self._partition(transactional_id)).leader
        if broker in (None, self._place.node_id):
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
        asked = self._asked.get(broker)
        if asked is None:
            asked = self._asked[broker] = AskedTogether(partial(self._ask, broker))
        try:
            return await asked.ask(transaction)
        except PeerUnavailable as error:
            logger.warning("transactional id %r cannot be verified: %s", transactional_id, error)
            return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)

    async def _ask(
        self, broker: int, transactions: list[AddPartitionsToTxnTransaction]
    ) -> list[dict[TopicPartition, ErrorCode]]:
        """The errors of each transaction. Raises PeerUnavailable."""
        answer = await self._place.links.ask(broker, AddPartitionsToTxnRequest(transactions=transactions), ADD_VERSION)
        await self._place.note_position()
        results = answer.results_by_transaction or [AddPartitionsToTxnResult()] * len(transactions)
        code = ErrorCode(answer.error_code) or ErrorCode.UNKNOWN_SERVER_ERROR
        return [_codes(one, result, code) for one, result in zip(transactions, results, strict=True)]

    def _partition(self, transactional_id: str) -> tuple[bytes, int]:
        topic_id = self._topics.topic_id(TRANSACTION_TOPIC)
        assert topic_id is not None, "the first controller has made the internal topics"
        return topic_id, partition_for(transactional_id, self._partitions)


def _codes(
    asked: AddPartitionsToTxnTransaction, result: AddPartitionsToTxnResult, missing: ErrorCode
) -> dict[TopicPartition, ErrorCode]:
    """The error of each partition; `missing` for one that the answer does not name."""
    found = {TopicPartition(topic.name, number): missing for topic in asked.topics for number in topic.partitions}
    for topic in result.topic_results:
        for part in topic.results_by_partition:
            found[TopicPartition(topic.name, part.partition_index)] = ErrorCode(part.partition_error_code)
    return found


class RemoteProducerIds:
    """A `ProducerIdSource` that asks the controller, unless that is this broker.

    It asks as a client without a transactional id does. A new id is needed once for each producer, so that a request
    for each costs little.
    """

    def __init__(self, place: Place, own: ProducerIdSource) -> None:
        self._place = place
        self._own = own

    async def next_producer_id(self) -> int:
        """A new producer id. Raises LogWriteFailed, with NOT_CONTROLLER if no controller can be asked."""
        place = self._place
        if place.is_controller:
            return await self._own.next_producer_id()
        if place.controller_id in (None, place.node_id):
            raise LogWriteFailed(ErrorCode.NOT_CONTROLLER, "the cluster has no controller now")
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
        try:
            answer = await place.links.ask(place.controller_id, request, INIT_PRODUCER_ID_VERSION)
        except PeerUnavailable as error:
            raise LogWriteFailed(ErrorCode.NOT_CONTROLLER, f"the controller gives no producer ids: {error}") from error
        if answer.error_code:
            code = ErrorCode(answer.error_code)
            raise LogWriteFailed(ErrorCode.NOT_CONTROLLER, f"the controller gives no producer ids: {code.name}")
        producer_id: int = answer.producer_id
        return producer_id
