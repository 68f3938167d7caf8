"""Looking into transactions: who has one open, since when, on what, and which readers wait for it (rows T18, T19)."""

from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Any

from fencepost.client.admin.requests import AdminRequests
from fencepost.client.admin.types import (
    ProducerState,
    StoryLine,
    TransactionListing,
    TransactionStory,
    TransactionSummary,
)
from fencepost.client.cluster import TRANSACTION
from fencepost.client.errors import KafkaError, RetriableError, code_of, error_for
from fencepost.client.group_requests import LATEST, list_offsets
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api22_init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.api27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from fencepost.protocol.messages.api61_describe_producers import DescribeProducersRequest, TopicRequest
from fencepost.protocol.messages.api65_describe_transactions import DescribeTransactionsRequest
from fencepost.protocol.messages.api66_list_transactions import ListTransactionsRequest
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.topics import IsolationLevel, TopicPartition

DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = (API_BY_KEY[key] for key in (61, 65, 66))
INIT_PRODUCER_ID, WRITE_TXN_MARKERS = API_BY_KEY[22], API_BY_KEY[27]
FENCE_TIMEOUT_MS = 1
"""The timeout that a fence leaves on the id, as in Kafka's Admin: whoever uses the id next brings its own."""


class TransactionAdmin(AdminRequests):
    """The part of the admin client that asks about transactions and producers, and that ends them by force."""

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
        await self._cluster.policy.run(self._cluster.refresh, what="finding the brokers")
        found: set[TransactionSummary] = set()
        for node in sorted(self._cluster.brokers):

            async def attempt(node: int = node) -> Any:
                ask = self._cluster.ask
                answer = await ask(node, LIST_TRANSACTIONS, request, purpose=self._purpose, at_least=least)
                code = code_of(answer.error_code)
                if code is not ErrorCode.NONE:
                    raise error_for(code, "listing transactions", api="ListTransactions", node=node)
                return answer

            answer = await self._cluster.policy.run(attempt, what="listing transactions")
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

        def code_in(answer: Any) -> int:
            return int(answer.transaction_states[0].error_code)

        async def attempt() -> Any:
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id], explain=True)
            answer = await self._cluster.ask_coordinator(
                TRANSACTION, transactional_id, DESCRIBE_TRANSACTIONS, request, code_in, purpose=self._purpose
            )
            code = code_of(code_in(answer))
            if code is not ErrorCode.NONE:
                raise error_for(code, f"transactional id {transactional_id!r}", api="DescribeTransactions")
            return answer.transaction_states[0]

        told = await self._cluster.policy.run(attempt, what=f"transactional id {transactional_id!r}")
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
            story=_story(told.story),
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

            async def attempt(partition: TopicPartition = partition) -> int:
                wanted = {partition: LATEST}
                found = await list_offsets(self._cluster, wanted, IsolationLevel.READ_COMMITTED, self._purpose)
                return found[partition][0]

            if await self._cluster.policy.run(attempt, what=f"the last stable offset of {partition}") == starts[0]:
                blocked.append(partition)
        return tuple(blocked)

    async def describe_producers(self, partition: TopicPartition) -> list[ProducerState]:
        """The producers that a partition remembers, with the start of the transaction each has open there."""
        place = TopicPartition(*partition)

        async def attempt() -> list[Any]:
            node = await self._cluster.leader_of(place)
            request = DescribeProducersRequest(
                topics=[TopicRequest(name=place.topic, partition_indexes=[place.partition])]
            )
            answer = await self._cluster.ask(node, DESCRIBE_PRODUCERS, request, purpose=self._purpose)
            told = answer.topics[0].partitions[0]
            code = code_of(told.error_code)
            if code.retriable:
                await self._cluster.refresh([place.topic])
                raise RetriableError(f"producers of {place}", code=code, api="DescribeProducers", node=node)
            if code is not ErrorCode.NONE:
                what = told.error_message or f"producers of {place}"
                raise error_for(code, what, api="DescribeProducers", node=node)
            return list(told.active_producers)

        return [
            ProducerState(
                entry.producer_id,
                entry.producer_epoch,
                entry.last_sequence,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.current_txn_start_offset if entry.current_txn_start_offset >= 0 else None,
            )
            for entry in await self._cluster.policy.run(attempt, what=f"producers of {place}")
        ]

    async def fence_producer(self, transactional_id: str) -> tuple[int, int]:
        """Shut out whoever holds the id and abort its open transaction (Kafka's Admin.fenceProducers).

        The identity that nobody holds now. A transaction that is decided already is completed, not aborted.
        """

        async def attempt() -> Any:
            request = InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=FENCE_TIMEOUT_MS,
                producer_id=-1,
                producer_epoch=-1,
            )
            answer = await self._cluster.ask_coordinator(
                TRANSACTION,
                transactional_id,
                INIT_PRODUCER_ID,
                request,
                lambda answer: int(answer.error_code),
                purpose=self._purpose,
            )
            code = code_of(answer.error_code)
            if code is ErrorCode.CONCURRENT_TRANSACTIONS:
                raise RetriableError("its transaction is being ended", code=code, api="InitProducerId")
            if code is not ErrorCode.NONE:
                raise error_for(code, f"fencing {transactional_id!r}", api="InitProducerId")
            return answer

        answer = await self._cluster.policy.run(attempt, what=f"fencing {transactional_id!r}")
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

        async def attempt() -> None:
            node = await self._cluster.leader_of(place)
            request = WriteTxnMarkersRequest(markers=[marker])
            answer = await self._cluster.ask(node, WRITE_TXN_MARKERS, request, purpose=self._purpose, at_least=1)
            code = code_of(answer.markers[0].topics[0].partitions[0].error_code)
            if code is not ErrorCode.NONE:
                raise error_for(code, f"aborting on {place}", api="WriteTxnMarkers", node=node)

        await self._cluster.policy.run(attempt, what=f"aborting on {place}")


def _story(told: Any) -> TransactionStory | None:
    """What our tag of DescribeTransactions carries; None where it is not there."""
    if told is None:
        return None
    lines = tuple(
        StoryLine(
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
    return TransactionStory(told.owner_client_id, told.owner_host, told.writer_client_id, told.writer_host, lines)
