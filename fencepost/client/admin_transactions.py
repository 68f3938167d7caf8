"""Looking into transactions: who has one open, since when, on what, and which readers wait for it (rows T18, T19)."""

from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Any

from fencepost.client.admin_requests import AdminRequests
from fencepost.client.admin_types import ProducerState, TransactionListing
from fencepost.client.cluster import TRANSACTION
from fencepost.client.errors import KafkaError, RetriableError, code_of, error_for
from fencepost.client.group_requests import LATEST, list_offsets
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api61_describe_producers import DescribeProducersRequest, TopicRequest
from fencepost.protocol.messages.api65_describe_transactions import DescribeTransactionsRequest
from fencepost.protocol.messages.api66_list_transactions import ListTransactionsRequest
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.topics import IsolationLevel, TopicPartition

DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = (API_BY_KEY[key] for key in (61, 65, 66))


class TransactionAdmin(AdminRequests):
    """The part of the admin client that asks about transactions and producers."""

    async def transactions(
        self, *, state: str | Iterable[str] = (), producer_ids: Collection[int] = ()
    ) -> list[TransactionListing]:
        """All transactional ids, of all states or only these ("Ongoing", "PrepareCommit", "Empty", ...), described.

        Raises KafkaError for a state that the broker does not know.
        """
        states = [state] if isinstance(state, str) else list(state)
        await self._cluster.policy.run(self._cluster.refresh, what="finding the brokers")
        names: set[str] = set()
        for node in sorted(self._cluster.brokers):

            async def attempt(node: int = node) -> Any:
                request = ListTransactionsRequest(state_filters=states, producer_id_filters=list(producer_ids))
                answer = await self._cluster.ask(node, LIST_TRANSACTIONS, request, purpose=self._purpose)
                code = code_of(answer.error_code)
                if code is not ErrorCode.NONE:
                    raise error_for(code, "listing transactions", api="ListTransactions", node=node)
                return answer

            answer = await self._cluster.policy.run(attempt, what="listing transactions")
            if answer.unknown_state_filters:
                raise KafkaError(f"the broker knows no transaction state {answer.unknown_state_filters[0]!r}")
            names |= {entry.transactional_id for entry in answer.transaction_states}
        found = []
        for name in sorted(names):
            try:
                found.append(await self.describe_transaction(name))
            except KafkaError as error:
                if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:  # it went away meanwhile
                    raise
        return found

    async def describe_transaction(self, transactional_id: str) -> TransactionListing:
        """One transactional id. Raises KafkaError (TRANSACTIONAL_ID_NOT_FOUND)."""

        def code_in(answer: Any) -> int:
            return int(answer.transaction_states[0].error_code)

        async def attempt() -> Any:
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
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
