"""Looking into transactions: who has one open, since when, on what, and which readers wait for it (rows T18, T19)."""

from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Any

from fencepost.client.admin.requests import AdminRequests, ToBroker, ToCoordinator
from fencepost.client.admin.types import (
    HistoryEvent,
    ProducerState,
    TransactionHistory,
    TransactionListing,
    TransactionSummary,
)
from fencepost.client.errors import KafkaError, code_of
from fencepost.client.network.cluster import TRANSACTION
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.messages.api22_init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.api27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from fencepost.protocol.messages.api61_describe_producers import DescribeProducersRequest, TopicRequest
from fencepost.protocol.messages.api65_describe_transactions import DescribeTransactionsRequest
from fencepost.protocol.messages.api66_list_transactions import ListTransactionsRequest
from fencepost.protocol.topics import IsolationLevel, TopicPartition

LATEST = -1
FENCE_TIMEOUT_MS = 1
"""The timeout that a fence leaves on the id, as in Kafka's Admin: whoever uses the id next brings its own."""


class TransactionAdmin:
    """The part of the admin client that asks about transactions and producers, and that ends them by force."""

    def __init__(self, rpc: AdminRequests) -> None:
        self._rpc = rpc

    async def list_transactions(
        self,
        *,
        state: str | Iterable[str] = (),
        producer_ids: Collection[int] = (),
        running_longer_than_ms: int = -1,
        pattern: str | None = None,
    ) -> list[TransactionSummary]:
        """The transactional ids of all brokers, sorted: one request to each.

        Raises KafkaError for a state that the broker does not know, a pattern that is none (INVALID_REGULAR_EXPRESSION)
        and a filter that the broker is too old for (UNSUPPORTED_VERSION): KIP-994 and KIP-1152.
        """
        request = ListTransactionsRequest(
            state_filters=[state] if isinstance(state, str) else list(state),
            producer_id_filters=list(producer_ids),
            duration_filter=running_longer_than_ms,
            transactional_id_pattern=pattern,
        )
        least = 2 if pattern else 1 if running_longer_than_ms >= 0 else 0
        await self._rpc.retry(self._rpc.cluster.refresh, "finding the brokers")
        found: set[TransactionSummary] = set()
        for broker in sorted(self._rpc.cluster.brokers):
            route = ToBroker(self._rpc.cluster, broker)
            answer = await self._rpc.answer(broker, route, request, "listing transactions", at_least=least)
            if answer.unknown_state_filters:
                raise KafkaError(f"the broker knows no transaction state {answer.unknown_state_filters[0]!r}")
            found |= {
                TransactionSummary(entry.transactional_id, entry.producer_id, entry.transaction_state)
                for entry in answer.transaction_states
            }
        return sorted(found)

    async def transactions(
        self, *, state: str | Iterable[str] = (), producer_ids: Collection[int] = ()
    ) -> list[TransactionListing]:
        """All transactional ids, of all states or only these ("Ongoing", "PrepareCommit", "Empty", ...), described.

        Raises KafkaError for a state that the broker does not know.
        """
        found = []
        for line in await self.list_transactions(state=state, producer_ids=producer_ids):
            try:
                found.append(await self.describe_transaction(line.transactional_id))
            except KafkaError as error:
                if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:  # it went away meanwhile
                    raise
        return found

    async def describe_transaction(self, transactional_id: str) -> TransactionListing:
        """One transactional id. Raises KafkaError (TRANSACTIONAL_ID_NOT_FOUND)."""
        told = await self._rpc.answer(
            transactional_id,
            ToCoordinator(self._rpc.cluster, TRANSACTION),
            DescribeTransactionsRequest(transactional_ids=[transactional_id], explain=True),
            f"transactional id {transactional_id!r}",
            lambda answer: answer.transaction_states[0],
        )
        partitions = tuple(TopicPartition(topic.topic, p) for topic in told.topics for p in topic.partitions)
        started = told.transaction_start_time_ms
        listing = TransactionListing(
            told.transactional_id,
            told.transaction_state,
            told.producer_id,
            told.producer_epoch,
            told.transaction_timeout_ms,
            datetime.fromtimestamp(started / 1000, UTC) if started >= 0 and partitions else None,
            partitions,
            history=_history(told.history),
        )
        return listing._replace(blocks=await self._blocked(listing))

    async def _blocked(self, listing: TransactionListing) -> tuple[TopicPartition, ...]:
        """The transaction's partitions whose last stable offset is exactly where it began."""
        blocked = []
        for partition in listing.partitions:
            producers = await self.describe_producers(partition)
            starts = [p.transaction_start_offset for p in producers if p.producer_id == listing.producer_id]
            if not starts or starts[0] is None:
                continue
            if await self._last_stable_offset(partition) == starts[0]:
                blocked.append(partition)
        return tuple(blocked)

    async def describe_producers(self, partition: TopicPartition) -> list[ProducerState]:
        """The producers that a partition remembers, with the start of the transaction each has open there."""
        place = TopicPartition(*partition)
        request = DescribeProducersRequest(topics=[TopicRequest(name=place.topic, partition_indexes=[place.partition])])
        told = await self._rpc.answer(
            place, self._rpc.leader, request, f"producers of {place}", lambda answer: answer.topics[0].partitions[0]
        )
        return [
            ProducerState(
                entry.producer_id,
                entry.producer_epoch,
                entry.last_sequence,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.current_txn_start_offset if entry.current_txn_start_offset >= 0 else None,
            )
            for entry in told.active_producers
        ]

    async def _last_stable_offset(self, partition: TopicPartition) -> int:
        entry = ListOffsetsPartition(partition_index=partition.partition, timestamp=LATEST)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=IsolationLevel.READ_COMMITTED,
            topics=[ListOffsetsTopic(name=partition.topic, partitions=[entry])],
            timeout_ms=self._rpc.timeout_ms,
        )
        told = await self._rpc.answer(
            partition,
            self._rpc.leader,
            request,
            f"the last stable offset of {partition}",
            lambda answer: answer.topics[0].partitions[0],
            at_least=2,
        )
        return int(told.offset)

    async def fence_producer(self, transactional_id: str) -> tuple[int, int]:
        """Shut out whoever holds the id and abort its open transaction (Kafka's Admin.fenceProducers).

        The identity that nobody holds now. A transaction that is decided already is completed, not aborted.
        """
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=FENCE_TIMEOUT_MS,
            producer_id=-1,
            producer_epoch=-1,
        )
        route = ToCoordinator(self._rpc.cluster, TRANSACTION)
        answer = await self._rpc.answer(transactional_id, route, request, f"fencing {transactional_id!r}")
        return answer.producer_id, answer.producer_epoch

    async def abort_open(
        self, partition: TopicPartition, producer: ProducerState, *, only_hanging: bool = True
    ) -> None:
        """Write an ABORT marker for what the producer has open on the partition, past its coordinator (row T20).

        A fencepost broker refuses `only_hanging` with INVALID_TXN_STATE where the coordinator still owns the
        transaction; other brokers do not look, so find out before (`hanging_transactions`). Raises KafkaError.
        """
        place = TopicPartition(*partition)
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            coordinator_epoch=max(0, producer.coordinator_epoch),
            topics=[WritableTxnMarkerTopic(name=place.topic, partition_indexes=[place.partition])],
            only_hanging=only_hanging,
        )
        await self._rpc.answer(
            place,
            self._rpc.leader,
            WriteTxnMarkersRequest(markers=[marker]),
            f"aborting on {place}",
            lambda answer: answer.markers[0].topics[0].partitions[0],
            at_least=1,
        )


def _history(told: Any) -> TransactionHistory | None:
    """What our tag of DescribeTransactions carries; None where it is not there."""
    if told is None:
        return None
    lines = tuple(
        HistoryEvent(
            line.time_ms,
            line.last_time_ms,
            line.times,
            line.reason,
            code_of(line.error_code) if line.error_code else None,
            line.client_id,
            line.client_host,
            line.text,
        )
        for line in told.lines
    )
    return TransactionHistory(told.owner_client_id, told.owner_host, told.writer_client_id, told.writer_host, lines)
