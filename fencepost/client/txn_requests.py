"""What a transactional producer asks of its coordinators, in the old protocol (TV1) and the new one (TV2, KIP-890)."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from fencepost.client.cluster import GROUP, TRANSACTION, Cluster
from fencepost.client.errors import FENCED, STALE_MEMBER, AbortableError, KafkaError, RetriableError, code_of, error_for
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api22_init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.api24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from fencepost.protocol.messages.api25_add_offsets_to_txn import AddOffsetsToTxnRequest
from fencepost.protocol.messages.api26_end_txn import EndTxnRequest
from fencepost.protocol.messages.api28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.topics import TopicPartition

PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS = API_BY_KEY[0], API_BY_KEY[22], API_BY_KEY[24]
ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = API_BY_KEY[25], API_BY_KEY[26], API_BY_KEY[28]
FEATURE = "transaction.version"
NO_PRODUCER = (-1, -1)
TWO_PHASE_SINCE = 6


class GroupMetadata(NamedTuple):
    """Which member of a group commits, and under which generation (KIP-447); -1 and "" for a consumer without one."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


class CommittedOffset(NamedTuple):
    """Where a group goes on reading, with the leader epoch of the record before (-1 if unknown) and a note."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class TransactionLink:
    """One transactional id's talk with its coordinators. Each method is one attempt and raises by the answer."""

    def __init__(self, cluster: Cluster, transactional_id: str, purpose: str, *, two_phase: bool = False) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._purpose = purpose
        self._two_phase = two_phase

    async def speaks_tv2(self) -> bool:
        """Whether the coordinator has transaction.version 2 finalized and all three requests are new enough (T16)."""
        node = await self._cluster.coordinator(TRANSACTION, self._id)
        connection = await self._cluster.connection(node, self._purpose)

        def reaches(key: int, version: int) -> bool:
            return connection.versions.get(key, (0, -1))[1] >= version

        new_enough = reaches(PRODUCE.key, 12) and reaches(END_TXN.key, 5) and reaches(TXN_OFFSET_COMMIT.key, 5)
        return connection.features.get(FEATURE, 0) >= 2 and new_enough

    async def initialise(self, timeout_ms: int, producer: tuple[int, int]) -> tuple[int, int]:
        """A new (producer id, epoch), which fences older owners and ends what they left open (rows T2, P6).

        With a `producer` it is given only if that one is still the owner; otherwise FencedError.
        """
        since = 0 if producer == NO_PRODUCER else 3
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer[0],
            producer_epoch=producer[1],
            enable2_pc=self._two_phase,
        )
        at_least = TWO_PHASE_SINCE if self._two_phase else since
        answer = await self._ask(TRANSACTION, self._id, INIT_PRODUCER_ID, request, at_least=at_least)
        return answer.producer_id, answer.producer_epoch

    async def take_over(self, timeout_ms: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """As `initialise`, but what is open stays open, to be ended by the new owner (KIP-939, row T23).

        The second pair is the identity under which it was written; NO_PRODUCER when nothing is open.
        """
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=timeout_ms,
            enable2_pc=self._two_phase,
            keep_prepared_txn=True,
        )
        answer = await self._ask(TRANSACTION, self._id, INIT_PRODUCER_ID, request, at_least=TWO_PHASE_SINCE)
        ongoing = (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch)
        return (answer.producer_id, answer.producer_epoch), ongoing

    async def add_partitions(self, producer: tuple[int, int], partitions: Collection[TopicPartition]) -> None:
        """TV1: tell the coordinator before the first record of a partition (row T3)."""
        topics: dict[str, list[int]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(partition)
        answer = await self._ask(
            TRANSACTION,
            self._id,
            ADD_PARTITIONS,
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._id,
                v3_and_below_producer_id=producer[0],
                v3_and_below_producer_epoch=producer[1],
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=t, partitions=p) for t, p in topics.items()],
            ),
            at_most=3,
        )
        worst = ErrorCode.NONE
        for topic in answer.results_by_topic_v3_and_below:
            for entry in topic.results_by_partition:
                code = code_of(entry.partition_error_code)
                if code not in (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED):
                    worst = code if worst is ErrorCode.NONE or not code.retriable else worst
        _raise_for(worst, "partitions could not be added to the transaction", "AddPartitionsToTxn")

    async def add_offsets(self, producer: tuple[int, int], group_id: str) -> None:
        """TV1: tell the coordinator that a group's offsets are part of the transaction (row T4)."""
        await self._ask(
            TRANSACTION,
            self._id,
            ADD_OFFSETS,
            AddOffsetsToTxnRequest(
                transactional_id=self._id, producer_id=producer[0], producer_epoch=producer[1], group_id=group_id
            ),
        )

    async def commit_offsets(
        self,
        producer: tuple[int, int],
        group: GroupMetadata,
        offsets: Mapping[TopicPartition, CommittedOffset],
        *,
        tv2: bool,
    ) -> None:
        """Offsets that count once the transaction commits; member and generation are checked (rows T5, T16)."""
        topics: dict[str, list[Any]] = {}
        for (topic, partition), committed in offsets.items():
            topics.setdefault(topic, []).append(
                TxnOffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    committed_metadata=committed.metadata,
                )
            )
        answer = await self._ask(
            GROUP,
            group.group_id,
            TXN_OFFSET_COMMIT,
            TxnOffsetCommitRequest(
                transactional_id=self._id,
                group_id=group.group_id,
                producer_id=producer[0],
                producer_epoch=producer[1],
                generation_id_or_member_epoch=group.generation,
                member_id=group.member_id,
                group_instance_id=group.instance_id,
                topics=[TxnOffsetCommitRequestTopic(name=t, partitions=p) for t, p in topics.items()],
            ),
            at_least=5 if tv2 else (3 if group.generation >= 0 else 0),
            at_most=5 if tv2 else 4,
        )
        for topic in answer.topics:
            for entry in topic.partitions:
                what = f"offset of {topic.name}-{entry.partition_index} for group {group.group_id!r}"
                _raise_for(code_of(entry.error_code), what, "TxnOffsetCommit")

    async def end(self, producer: tuple[int, int], *, commit: bool, tv2: bool) -> tuple[int, int]:
        """Commit or abort; the (producer id, epoch) of the next transaction, which TV2 has bumped (rows T7, T16)."""
        answer = await self._ask(
            TRANSACTION,
            self._id,
            END_TXN,
            EndTxnRequest(
                transactional_id=self._id, producer_id=producer[0], producer_epoch=producer[1], committed=commit
            ),
            at_least=5 if tv2 else 0,
            at_most=5 if tv2 else 4,
        )
        if tv2 and answer.producer_id >= 0:
            return answer.producer_id, answer.producer_epoch
        return producer

    async def _ask(self, kind: int, key: str, api: Any, request: Any, **more: Any) -> Any:
        answer = await self._cluster.ask_coordinator(kind, key, api, request, _any_code, purpose=self._purpose, **more)
        _raise_for(code_of(_any_code(answer)), f"{api.name} of {self._id!r} was refused", api.name)
        return answer


def _any_code(answer: Any) -> int:
    """The answer's own error code, or for offsets the first "not here" among the partitions'."""
    own = getattr(answer, "error_code", 0)
    if own:
        return int(own)
    for topic in getattr(answer, "topics", ()):
        for partition in topic.partitions:
            if partition.error_code:
                return int(partition.error_code)
    for topic in getattr(answer, "results_by_topic_v3_and_below", ()):
        for partition in topic.results_by_partition:
            if partition.partition_error_code and code_of(partition.partition_error_code).retriable:
                return int(partition.partition_error_code)
    return 0


def _raise_for(code: ErrorCode, what: str, api: str) -> None:
    if code is ErrorCode.NONE:
        return
    if code is ErrorCode.INVALID_PRODUCER_EPOCH and api not in ("InitProducerId", "EndTxn"):
        # Fenced, or only timed out at the coordinator: ending the transaction tells which (KIP-588, row T11).
        raise AbortableError(what, code=code, api=api)
    if code in STALE_MEMBER:
        raise AbortableError(f"{what}: this member's generation is over", code=code, api=api)
    if code.retriable and code not in FENCED:
        raise RetriableError(what, code=code, api=api)
    raise error_for(code, what, api=api, in_transaction=True)


def abortable(error: KafkaError) -> AbortableError:
    """What ended a deadline inside a transaction only spoils that transaction (row T17)."""
    spoiled = AbortableError(str(error.args[0]), code=error.code, api=error.api, node=error.node)
    spoiled.__cause__ = error
    return spoiled
