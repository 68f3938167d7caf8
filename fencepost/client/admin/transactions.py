"""Transactions and producers: list and describe them, fence producers, abort transactions (rows T18, T19, T20)."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from fencepost.client.admin.item_errors import ItemsFailedError
from fencepost.client.admin.requests import AdminRequests, ToBroker, ToCoordinator, failure, listed
from fencepost.client.admin.types import (
    HistoryEvent,
    ProducerIdentity,
    ProducerState,
    TransactionDescription,
    TransactionHistory,
    TransactionListing,
)
from fencepost.client.errors import KafkaError, code_of
from fencepost.client.group.requests import by_topic
from fencepost.client.keywords import Duration
from fencepost.client.network.cluster import TRANSACTION
from fencepost.client.options import milliseconds
from fencepost.protocol.api_keys import ApiKey
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
_DESCRIBING = "describing transactions"
FENCE_TIMEOUT_MS = 1
"""The transaction timeout that fencing sets, as in Kafka's Admin; the next producer of the id sets its own."""


class TransactionAdmin:
    """The part of the admin client for transactions and producers."""

    def __init__(self, rpc: AdminRequests) -> None:
        self._rpc = rpc

    async def list_transactions(
        self,
        *,
        states: str | Iterable[str] = (),
        producer_ids: int | Iterable[int] = (),
        running_longer_than: Duration | None = None,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids of all brokers, sorted: one request to each broker. The arguments select some of them.

        States are "Ongoing", "PrepareCommit", "Empty", ...; `pattern` is a regular expression for transactional ids;
        `running_longer_than` is the least age of an open transaction, in seconds or as a timedelta.
        Raises KafkaError for an unknown state, an invalid pattern (INVALID_REGULAR_EXPRESSION) and a filter that the
        broker does not support (UNSUPPORTED_VERSION): KIP-994 and KIP-1152.
        """
        request = ListTransactionsRequest(
            state_filters=listed(states, str),
            producer_id_filters=listed(producer_ids, int),
            duration_filter=-1 if running_longer_than is None else milliseconds(running_longer_than),
            transactional_id_pattern=pattern,
        )
        least = 2 if pattern else 0 if running_longer_than is None else 1
        await self._rpc.retry(self._rpc.cluster.refresh, "finding the brokers")
        found: set[TransactionListing] = set()
        for broker in sorted(self._rpc.cluster.brokers):
            route = ToBroker(self._rpc.cluster, broker)
            response = await self._rpc.response(
                broker, route, request, f"listing transactions of broker {broker}", at_least=least
            )
            if response.unknown_state_filters:
                raise KafkaError(
                    f"the broker does not know the transaction state {response.unknown_state_filters[0]!r}"
                )
            found |= {
                TransactionListing(entry.transactional_id, entry.producer_id, entry.transaction_state)
                for entry in response.transaction_states
            }
        return sorted(found)

    async def describe_transactions(
        self,
        transactional_ids: str | Iterable[str] | None = None,
        *,
        states: str | Iterable[str] = (),
        producer_ids: int | Iterable[int] = (),
    ) -> dict[str, TransactionDescription]:
        """Transactional ids with their open transactions, by id: those that are named, or all.

        `states` and `producer_ids` select some of all, as in `list_transactions`. An id that expires meanwhile is left
        out, unless it is named. Raises ItemsFailedError by id (TRANSACTIONAL_ID_NOT_FOUND, ...).
        """
        if transactional_ids is None:
            lines = await self.list_transactions(states=states, producer_ids=producer_ids)
            wanted = [line.transactional_id for line in lines]
        else:
            wanted = listed(transactional_ids, str)
        found, failed = await self._described(wanted, also_expired=transactional_ids is not None)
        described = {name: one._replace(blocks=await self._blocked(one)) for name, one in found.items()}
        if failed:
            raise ItemsFailedError(_DESCRIBING, failed, described)
        return described

    async def describe_briefly(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """As `describe_transactions`, without ids that expired and without `blocks`, which cost several requests each.

        Raises ItemsFailedError by id.
        """
        found, failed = await self._described(listed(transactional_ids, str), also_expired=False)
        if failed:
            raise ItemsFailedError(_DESCRIBING, failed, found)
        return found

    async def _described(
        self, wanted: list[str], *, also_expired: bool
    ) -> tuple[dict[str, TransactionDescription], dict[str, KafkaError]]:
        """What is found, and the errors of the other ids; those that expired are left out unless `also_expired`."""
        route = ToCoordinator(self._rpc.cluster, TRANSACTION)
        try:
            return await self._rpc.each(wanted, route, self._describe, _DESCRIBING), {}
        except ItemsFailedError as some:
            expired = None if also_expired else ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            return dict(some.results), {name: one for name, one in some.errors.items() if one.code is not expired}

    async def _describe(
        self, node: int | None, transactional_ids: list[str]
    ) -> dict[str, TransactionDescription | KafkaError]:
        response = await self._rpc.ask(
            node, DescribeTransactionsRequest(transactional_ids=transactional_ids, explain=True)
        )
        return {
            one.transactional_id: failure(
                one, f"describing transactional id {one.transactional_id!r}", ApiKey.DESCRIBE_TRANSACTIONS, node
            )
            or _description(one)
            for one in response.transaction_states
        }

    async def _blocked(self, described: TransactionDescription) -> tuple[TopicPartition, ...]:
        """The transaction's partitions whose last stable offset is the first offset of the transaction."""
        blocked = []
        for partition in described.partitions:
            producers = (await self.describe_producers(partition))[partition]
            starts = [p.transaction_start_offset for p in producers if p.producer_id == described.producer_id]
            if not starts or starts[0] is None:
                continue
            if await self._last_stable_offset(partition) == starts[0]:
                blocked.append(partition)
        return tuple(blocked)

    async def describe_producers(
        self, partitions: TopicPartition | Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[ProducerState]]:
        """The producers that partitions know, by partition, each with the first offset of its open transaction.

        Raises ItemsFailedError by partition (UNKNOWN_TOPIC_OR_PARTITION, ...).
        """
        asked = [TopicPartition(*partition) for partition in listed(partitions, TopicPartition)]

        async def ask(
            node: int | None, some: list[TopicPartition]
        ) -> dict[TopicPartition, list[ProducerState] | KafkaError]:
            topics = [TopicRequest(name=name, partition_indexes=numbers) for name, numbers in by_topic(some).items()]
            response = await self._rpc.ask(node, DescribeProducersRequest(topics=topics))
            return {
                (place := TopicPartition(topic.name, one.partition_index)): failure(
                    one, f"describing producers of {place}", ApiKey.DESCRIBE_PRODUCERS, node
                )
                or [_producer_state(entry) for entry in one.active_producers]
                for topic in response.topics
                for one in topic.partitions
            }

        return await self._rpc.each(asked, self._rpc.leader, ask, "describing producers")

    async def _last_stable_offset(self, partition: TopicPartition) -> int:
        entry = ListOffsetsPartition(partition_index=partition.partition, timestamp=LATEST)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=IsolationLevel.READ_COMMITTED,
            topics=[ListOffsetsTopic(name=partition.topic, partitions=[entry])],
            timeout_ms=self._rpc.timeout_ms,
        )
        found = await self._rpc.response(
            partition,
            self._rpc.leader,
            request,
            f"the last stable offset of {partition}",
            lambda response: response.topics[0].partitions[0],
            at_least=2,
        )
        return int(found.offset)

    async def fence_producers(self, transactional_ids: str | Iterable[str]) -> dict[str, ProducerIdentity]:
        """Fence the producers that use the transactional ids, and abort their open transactions.

        Returns, by id, the new identity that fenced the producer. A transaction that is already prepared is completed,
        not aborted. Raises ItemsFailedError by id.
        """
        route = ToCoordinator(self._rpc.cluster, TRANSACTION)
        return await self._rpc.each(listed(transactional_ids, str), route, self._fence, "fencing producers")

    async def _fence(self, node: int | None, transactional_ids: list[str]) -> dict[str, ProducerIdentity | KafkaError]:
        found: dict[str, ProducerIdentity | KafkaError] = {}
        for name in transactional_ids:
            request = InitProducerIdRequest(
                transactional_id=name, transaction_timeout_ms=FENCE_TIMEOUT_MS, producer_id=-1, producer_epoch=-1
            )
            response = await self._rpc.ask(node, request)
            error = failure(response, f"fencing {name!r}", ApiKey.INIT_PRODUCER_ID, node)
            found[name] = error or ProducerIdentity(response.producer_id, response.producer_epoch)
        return found

    async def abort_transaction(
        self, partition: TopicPartition, producer: ProducerState, *, only_hanging: bool = True
    ) -> None:
        """Write an ABORT marker for the producer's open transaction in the partition, past its coordinator (row T20).

        With `only_hanging`, a fencepost broker refuses to abort a transaction that a coordinator owns
        (INVALID_TXN_STATE). Other brokers do not check that: call `find_hanging_transactions` first. Raises KafkaError.
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
        await self._rpc.response(
            place,
            self._rpc.leader,
            WriteTxnMarkersRequest(markers=[marker]),
            f"aborting on {place}",
            lambda response: response.markers[0].topics[0].partitions[0],
            at_least=1,
        )


def _description(one: Any) -> TransactionDescription:
    partitions = tuple(TopicPartition(topic.topic, p) for topic in one.topics for p in topic.partitions)
    started = one.transaction_start_time_ms
    return TransactionDescription(
        one.transactional_id,
        one.transaction_state,
        one.producer_id,
        one.producer_epoch,
        one.transaction_timeout_ms,
        datetime.fromtimestamp(started / 1000, UTC) if started >= 0 and partitions else None,
        partitions,
        history=_history(one.history),
    )


def _producer_state(entry: Any) -> ProducerState:
    return ProducerState(
        entry.producer_id,
        entry.producer_epoch,
        entry.last_sequence,
        entry.last_timestamp,
        entry.coordinator_epoch,
        entry.current_txn_start_offset if entry.current_txn_start_offset >= 0 else None,
    )


def _history(history: Any) -> TransactionHistory | None:
    """The history in fencepost's tagged field of DescribeTransactions; None if the broker sent none."""
    if history is None:
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
        for line in history.lines
    )
    return TransactionHistory(
        history.owner_client_id, history.owner_host, history.writer_client_id, history.writer_host, lines
    )
