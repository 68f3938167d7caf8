"""A transactional producer's requests to its coordinators, in the old protocol (TV1) and the new one (TV2, KIP-890)."""

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import anyio

from fencepost.client.core.acknowledgements import AcknowledgeType
from fencepost.client.core.group_types import CommittedOffset, GroupMetadata
from fencepost.client.core.txn_errors import TABLE, Meaning
from fencepost.client.core.txn_failures import raise_for
from fencepost.client.core.txn_state import NO_PRODUCER, AskEnd, AskInit, Producer, Response
from fencepost.client.errors import AbortableError, ConnectionLostError, KafkaError, code_of
from fencepost.client.group.requests import by_topic
from fencepost.client.network.cluster import GROUP, TRANSACTION, ByVersion, Cluster, Request
from fencepost.client.network.connection import Connection
from fencepost.client.queues.message import Message
from fencepost.client.transactions.acknowledgements import RecordsInTransaction
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api22_init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.api24_add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from fencepost.protocol.messages.api25_add_offsets_to_txn import AddOffsetsToTxnRequest
from fencepost.protocol.messages.api26_end_txn import EndTxnRequest
from fencepost.protocol.messages.api28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from fencepost.protocol.schema import ResponseValue
from fencepost.protocol.topics import TopicPartition

FEATURE = "transaction.version"
_TV2_SINCE = {ApiKey.PRODUCE: 12, ApiKey.END_TXN: 5, ApiKey.TXN_OFFSET_COMMIT: 5}
TWO_PHASE_SINCE = 6
BUMPS_SINCE = 3
"""InitProducerId with the current identity (KIP-360), since Kafka 2.5."""
MEMBER_SINCE = 3
"""TxnOffsetCommit with member and generation (KIP-447), since Kafka 2.5."""
R = TypeVar("R", bound=ResponseValue)
_LOG = logging.getLogger(__name__)


class NegotiatedVersions(NamedTuple):
    """The cluster's features for a transaction that begins now."""

    tv2: bool
    bumps: bool


class TransactionLink:
    """Sends one transactional id's requests to its coordinators. Each method is one attempt."""

    def __init__(
        self, cluster: Cluster, transactional_id: str, purpose: str, timeout_ms: int, *, two_phase: bool = False
    ) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._purpose = purpose
        self._timeout_ms = timeout_ms
        self._two_phase = two_phase
        self._coordinator: Connection | None = None
        self._negotiated_at = 0.0
        self._warned = False
        self.node: int | None = None
        """The broker of the last request."""

    async def negotiated(self) -> NegotiatedVersions:
        """The protocol that the cluster has now; checked at each begin, so a change counts from the next transaction.

        TV2 where the coordinator has transaction.version 2 finalized and supports all three requests of it (row T16).
        The features of an open connection are requested again when they are older than `metadata_max_age`.
        """
        node = await self._cluster.coordinator(TRANSACTION, self._id)
        try:
            connection = await self._cluster.connection(node, self._purpose)
        except ConnectionLostError:
            self._cluster.forget_coordinator(TRANSACTION, self._id)  # another broker may coordinate it now
            raise
        if connection is not self._coordinator:
            self._coordinator, self._negotiated_at = connection, anyio.current_time()
        elif self._is_old():
            await connection.negotiate(self._cluster.request_timeout_s)
            self._negotiated_at = anyio.current_time()
        return self._versions_of(connection)

    def negotiated_now(self) -> NegotiatedVersions | None:
        """The same without a request, or None where one is needed."""
        connection = self._coordinator
        if connection is None or connection.closed or self._is_old():
            return None
        return self._versions_of(connection)

    def _is_old(self) -> bool:
        return anyio.current_time() - self._negotiated_at >= self._cluster.config.metadata_max_age_ms / 1000

    @staticmethod
    def _versions_of(connection: Connection) -> NegotiatedVersions:
        def reaches(key: ApiKey, version: int) -> bool:
            return connection.session.versions.get(key, (0, -1))[1] >= version

        new_enough = all(reaches(key, version) for key, version in _TV2_SINCE.items())
        tv2 = connection.session.features.get(FEATURE, 0) >= 2 and new_enough
        return NegotiatedVersions(tv2, reaches(ApiKey.INIT_PRODUCER_ID, BUMPS_SINCE))

    # -- the machine's requests

    async def ask(self, wanted: AskInit | AskEnd) -> Response:
        """The coordinator's response. Raises ConnectionLostError; RetriableError where there is no coordinator."""
        if isinstance(wanted, AskEnd):
            return await self._end(wanted)
        return await self._initialise(wanted.producer)

    async def _initialise(self, producer: Producer) -> Response:
        """A new (producer id, epoch), which fences older owners and ends their open transactions (rows T2, P6).

        With a `producer` it succeeds only if that one is still the owner.
        """
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=producer[0],
            producer_epoch=producer[1],
            enable2_pc=self._two_phase,
        )
        least = TWO_PHASE_SINCE if self._two_phase else 0 if producer == NO_PRODUCER else BUMPS_SINCE
        response, _ = await self._send(TRANSACTION, self._id, request, at_least=least)
        return Response(code_of(response.error_code), (response.producer_id, response.producer_epoch))

    async def _end(self, wanted: AskEnd) -> Response:
        """Commit or abort; the (producer id, epoch) of the next transaction where TV2 has bumped it (rows T7, T16)."""
        response, _ = await self._send(
            TRANSACTION,
            self._id,
            EndTxnRequest(
                transactional_id=self._id,
                producer_id=wanted.producer[0],
                producer_epoch=wanted.producer[1],
                committed=wanted.commit,
            ),
            at_least=5 if wanted.tv2 else 0,
            at_most=5 if wanted.tv2 else 4,
        )
        given = wanted.tv2 and not response.error_code and response.producer_id >= 0
        return Response(
            code_of(response.error_code), (response.producer_id, response.producer_epoch) if given else NO_PRODUCER
        )

    async def take_over(self) -> tuple[Producer, Producer]:
        """A new identity; an open transaction stays open, and the new owner ends it (KIP-939, row T23).

        The second value is the identity of that transaction; NO_PRODUCER when none is open.
        """
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=self._timeout_ms,
            enable2_pc=self._two_phase,
            keep_prepared_txn=True,
        )
        response, node = await self._send(TRANSACTION, self._id, request, at_least=TWO_PHASE_SINCE)
        raise_for(
            code_of(response.error_code),
            f"taking over the transactional id {self._id!r} failed",
            "InitProducerId",
            node,
        )
        ongoing = (response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch)
        return (response.producer_id, response.producer_epoch), ongoing

    # -- requests inside a transaction

    async def add_partitions(self, producer: Producer, partitions: Collection[TopicPartition]) -> None:
        """TV1: add partitions at the coordinator before their first record (row T3)."""
        topics = by_topic(partitions)
        response, node = await self._send(
            TRANSACTION,
            self._id,
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._id,
                v3_and_below_producer_id=producer[0],
                v3_and_below_producer_epoch=producer[1],
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=t, partitions=p) for t, p in topics.items()],
            ),
            at_most=3,
        )
        codes = {
            TopicPartition(topic.name, entry.partition_index): code_of(entry.partition_error_code)
            for topic in response.results_by_topic_v3_and_below
            for entry in topic.results_by_partition
        }
        place, code = _decisive_code(codes, "AddPartitionsToTxn")
        raise_for(code, f"{place} could not be added to the transaction", "AddPartitionsToTxn", node)

    async def add_offsets(self, producer: Producer, group_id: str) -> None:
        """TV1: add a group's offsets to the transaction at the coordinator (row T4)."""
        response, node = await self._send(
            TRANSACTION,
            self._id,
            AddOffsetsToTxnRequest(
                transactional_id=self._id, producer_id=producer[0], producer_epoch=producer[1], group_id=group_id
            ),
        )
        code = code_of(response.error_code)
        raise_for(code, f"offsets of group {group_id!r} could not be added to the transaction", "AddOffsetsToTxn", node)

    async def commit_offsets(
        self, producer: Producer, group: GroupMetadata, offsets: Mapping[TopicPartition, CommittedOffset], *, tv2: bool
    ) -> None:
        """Offsets that count once the transaction commits; member and generation are checked (rows T5, T16).

        A broker before Kafka 2.5 does not support the check: then a member that the group has removed is not rejected,
        and only the transactional id fences. That is logged once.
        """
        topics = by_topic(
            (
                topic,
                TxnOffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    committed_metadata=committed.metadata,
                ),
            )
            for (topic, partition), committed in offsets.items()
        )

        def request(version: int) -> TxnOffsetCommitRequest:
            member = GroupMetadata(group.group_id) if version < MEMBER_SINCE else group
            if member != group and not self._warned:
                self._warned = True
                _LOG.warning(
                    "the broker is older than Kafka 2.5: offsets of group %r in transactions of %r are not checked, so"
                    " a member that the group has removed can still commit (KIP-447)",
                    group.group_id,
                    self._id,
                )
            return TxnOffsetCommitRequest(
                transactional_id=self._id,
                group_id=group.group_id,
                producer_id=producer[0],
                producer_epoch=producer[1],
                generation_id_or_member_epoch=member.generation,
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                topics=[TxnOffsetCommitRequestTopic(name=t, partitions=p) for t, p in topics.items()],
            )

        response, node = await self._send(
            GROUP,
            group.group_id,
            ByVersion(ApiKey.TXN_OFFSET_COMMIT, request),
            at_least=5 if tv2 else 0,
            at_most=5 if tv2 else 4,
        )
        codes = {
            TopicPartition(topic.name, entry.partition_index): code_of(entry.error_code)
            for topic in response.topics
            for entry in topic.partitions
        }
        missing = {partition: ErrorCode.UNKNOWN_SERVER_ERROR for partition in offsets if partition not in codes}
        place, code = _decisive_code({**codes, **missing}, "TxnOffsetCommit")
        raise_for(code, f"the offset of {place} for group {group.group_id!r}", "TxnOffsetCommit", node)

    def acknowledging(self, messages: Iterable[Message[Any, Any]], kind: AcknowledgeType) -> RecordsInTransaction:
        """The requests that acknowledge messages of one queue."""
        return RecordsInTransaction(self._cluster, self._id, self._purpose, messages, kind)

    async def _send(self, kind: int, key: str, request: Request[R], **more: Any) -> tuple[R, int]:
        """The response, and the node that sent it; a coordinator that moved is forgotten."""
        node = self.node = await self._cluster.coordinator(kind, key)
        response = await self._cluster.ask_coordinator(kind, key, request, _moved, purpose=self._purpose, **more)
        return response, node


def _codes(response: Any) -> list[int]:
    codes = [getattr(response, "error_code", 0)]
    codes += [entry.error_code for topic in getattr(response, "topics", ()) for entry in topic.partitions]
    for topic in getattr(response, "results_by_topic_v3_and_below", ()):
        codes += [entry.partition_error_code for entry in topic.results_by_partition]
    return [int(code) for code in codes if code]


def _moved(response: Any) -> int:
    """A code of the response that means "not here" or "not yet", at any level, and otherwise 0."""
    away = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return next((code for code in _codes(response) if code in away), 0)


def _decisive_code(codes: Mapping[TopicPartition, ErrorCode], api: str) -> tuple[TopicPartition | None, ErrorCode]:
    """The code that decides: any before "not attempted", and one that no retry resolves before others."""
    order = [Meaning.FENCED, Meaning.FORBIDDEN, Meaning.FATAL, Meaning.STALE_EPOCH, Meaning.NOT_OPEN]
    order += [Meaning.LOST_IDENTITY, Meaning.ABORT, Meaning.MOVED, Meaning.AGAIN, Meaning.DONE]
    last = len(order)

    def rank(item: tuple[TopicPartition, ErrorCode]) -> int:
        code = item[1]
        return last - 2 if code is ErrorCode.OPERATION_NOT_ATTEMPTED else order.index(TABLE[api][code])

    return min(codes.items(), key=rank, default=(None, ErrorCode.NONE))


def abortable(error: KafkaError) -> AbortableError:
    """An error at a deadline inside a transaction aborts only that transaction (row T17)."""
    spoiled = AbortableError(str(error.args[0]), code=error.code, api=error.api, node=error.node)
    spoiled.__cause__ = error
    return spoiled
