"""Asks all coordinators of a cluster which transactions they will end: what none of them knows, hangs.

With Kafka's own requests (ListTransactions, DescribeTransactions), as an operator would with `kafka-transactions.sh`.
"""

from collections.abc import Collection, Mapping
from itertools import count

from fencepost.broker.peers.peer import PeerUnavailable
from fencepost.broker.place import LeaderAndEpoch, Place
from fencepost.coordinator.partitioning import partition_for
from fencepost.coordinator.ports import TopicView
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from fencepost.protocol.messages.api66_list_transactions import ListTransactionsRequest, ListTransactionsResponse
from fencepost.protocol.topics import TRANSACTION_TOPIC, TopicPartition

VERSION = 0
LIVING = ("Ongoing", "PrepareCommit", "PrepareAbort")
"""The states of transactions that their coordinator will end."""
Held = set[tuple[int, TopicPartition]]
"""(producer id, partition) of transactions that a coordinator will end."""


class NoAnswer(Exception):
    """Not all coordinators could be asked; the text says why."""


class OtherCoordinators:
    """The coordinators of the other brokers."""

    def __init__(self, place: Place, topics: TopicView, partitions: int) -> None:
        self._place = place
        self._topics = topics
        self._probes = _probes(partitions)

    async def owners(self) -> dict[int, LeaderAndEpoch]:
        """The leader of each partition of `__transaction_state`, as it is now.

        If it is the same before and after the coordinators were asked, none of them has moved meanwhile: a new leader
        has a higher epoch. Raises NoAnswer.
        """
        try:
            leader = await self._place.newest_leaders()
        except PeerUnavailable as error:
            raise NoAnswer(str(error)) from error
        topic_id = self._topics.topic_id(TRANSACTION_TOPIC)
        assert topic_id is not None, "the first controller has made the internal topics"
        return {number: leader(topic_id, number) for number in range(len(self._probes))}

    async def held(self, owners: Mapping[int, LeaderAndEpoch]) -> Held:
        """What these owners will end, but this broker. Raises NoAnswer, also if one has not loaded what it owns."""
        partitions: dict[int, list[int]] = {}
        for number, (leader, _) in owners.items():
            if leader is None:
                raise NoAnswer(f"{TRANSACTION_TOPIC}-{number} has no leader now")
            if leader != self._place.node_id:
                partitions.setdefault(leader, []).append(number)
        found: Held = set()
        for broker, numbers in sorted(partitions.items()):
            found |= await self._held_by(broker, numbers)
        return found

    async def _held_by(self, broker: int, partitions: Collection[int]) -> Held:
        probes = [self._probes[number] for number in partitions]
        for state in await self._describe(broker, probes):
            if state.error_code not in (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.NONE):
                raise NoAnswer(f"broker {broker} has not loaded its coordinators: {ErrorCode(state.error_code).name}")
        request = ListTransactionsRequest(state_filters=list(LIVING), producer_id_filters=[])
        listed = await self._ask(broker, request)
        assert isinstance(listed, ListTransactionsResponse)
        if listed.error_code:
            raise NoAnswer(f"broker {broker} lists no transactions: {ErrorCode(listed.error_code).name}")
        found: Held = set()
        for state in await self._describe(broker, [one.transactional_id for one in listed.transaction_states]):
            if state.error_code not in (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
                raise NoAnswer(f"broker {broker} does not describe {state.transactional_id!r}: {state.error_code}")
            found.update(
                (state.producer_id, TopicPartition(topic.topic, number))
                for topic in state.topics
                for number in topic.partitions
            )
        return found

    async def _describe(self, broker: int, names: list[str]) -> list[TransactionState]:
        if not names:
            return []
        answer = await self._ask(broker, DescribeTransactionsRequest(transactional_ids=names))
        assert isinstance(answer, DescribeTransactionsResponse)
        return answer.transaction_states

    async def _ask(self, broker: int, request: object) -> object:
        try:
            answer: object = await self._place.links.ask(broker, request, VERSION)
        except PeerUnavailable as error:
            raise NoAnswer(str(error)) from error
        return answer


def _probes(partitions: int) -> list[str]:
    """A transactional id for each partition of `__transaction_state`, to ask who coordinates it."""
    found: dict[int, str] = {}
    for number in count():
        name = f"fencepost-probe-{number}"
        found.setdefault(partition_for(name, partitions), name)
        if len(found) == partitions:
            break
    return [found[number] for number in range(partitions)]
