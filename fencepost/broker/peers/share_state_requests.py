"""The requests to the share coordinator of another broker, and what their answers say (KIP-932, APIs 83 to 87)."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from fencepost.coordinator.ports import ProducerTag
from fencepost.coordinator.share.values import (
    InitialState,
    Outcome,
    PendingBatch,
    ShareKey,
    StateBatch,
    StateSummary,
    StateUpdate,
    StoredState,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import api83_initialize_share_group_state as api83
from fencepost.protocol.messages import api84_read_share_group_state as api84
from fencepost.protocol.messages import api85_write_share_group_state as api85
from fencepost.protocol.messages import api86_delete_share_group_state as api86
from fencepost.protocol.messages import api87_read_share_group_state_summary as api87
from fencepost.protocol.messages import api1093_txn_share_acknowledge as api1093

AskedT = TypeVar("AskedT")
FoundT = TypeVar("FoundT")


class Call(NamedTuple, Generic[AskedT, FoundT]):
    """One of the APIs."""

    version: int
    request: Callable[[str, Mapping[ShareKey, AskedT]], Any]
    """Makes the request for partitions of one group."""
    read: Callable[[Any], FoundT]
    """Reads what an answer has of one partition."""
    failed: Callable[[ErrorCode, str | None], FoundT]
    """What is found if nothing else is known."""

    def found(self, group_id: str, answer: Any) -> dict[ShareKey, FoundT]:
        """What an answer says of each partition."""
        return {
            ShareKey(group_id, topic.topic_id, one.partition): self.read(one)
            for topic in answer.results
            for one in topic.partitions
        }


def _by_topic(asked: Mapping[ShareKey, AskedT]) -> Iterator[tuple[bytes, list[tuple[int, AskedT]]]]:
    topics: dict[bytes, list[tuple[int, AskedT]]] = {}
    for key, value in asked.items():
        topics.setdefault(key.topic_id, []).append((key.partition, value))
    yield from topics.items()


def _initialize(group_id: str, asked: Mapping[ShareKey, InitialState]) -> api83.InitializeShareGroupStateRequest:
    topics = [
        api83.InitializeStateData(
            topic_id=topic_id,
            partitions=[
                api83.PartitionData(partition=number, state_epoch=one.state_epoch, start_offset=one.start_offset)
                for number, one in parts
            ],
        )
        for topic_id, parts in _by_topic(asked)
    ]
    return api83.InitializeShareGroupStateRequest(group_id=group_id, topics=topics)


def _read(group_id: str, asked: Mapping[ShareKey, int]) -> api84.ReadShareGroupStateRequest:
    topics = [
        api84.ReadStateData(
            topic_id=topic_id,
            partitions=[api84.PartitionData(partition=number, leader_epoch=epoch) for number, epoch in parts],
        )
        for topic_id, parts in _by_topic(asked)
    ]
    return api84.ReadShareGroupStateRequest(group_id=group_id, topics=topics)


def _write(group_id: str, asked: Mapping[ShareKey, StateUpdate]) -> api85.WriteShareGroupStateRequest:
    topics = [
        api85.WriteStateData(
            topic_id=topic_id,
            partitions=[
                api85.PartitionData(
                    partition=number,
                    state_epoch=one.state_epoch,
                    leader_epoch=one.leader_epoch,
                    start_offset=one.start_offset,
                    delivery_complete_count=one.delivery_complete_count,
                    state_batches=[
                        api85.StateBatch(
                            first_offset=batch.first_offset,
                            last_offset=batch.last_offset,
                            delivery_state=batch.delivery_state,
                            delivery_count=batch.delivery_count,
                            held_until_ms=batch.held_until_ms,
                        )
                        for batch in one.batches
                    ],
                )
                for number, one in parts
            ],
        )
        for topic_id, parts in _by_topic(asked)
    ]
    return api85.WriteShareGroupStateRequest(group_id=group_id, topics=topics)


def in_transaction(transactional_id: str, producer: ProducerTag) -> Call[StateUpdate, Outcome]:
    """A write that counts if the producer's transaction commits. A broker that does not know it refuses the request."""

    def request(group_id: str, asked: Mapping[ShareKey, StateUpdate]) -> api1093.TxnShareAcknowledgeRequest:
        return api1093.TxnShareAcknowledgeRequest(
            transactional_id=transactional_id,
            group_id=group_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            updates=[
                api1093.UpdatedTopic(
                    topic_id=topic_id,
                    partitions=[
                        api1093.UpdatedPartition(
                            partition_index=number,
                            state_epoch=one.state_epoch,
                            leader_epoch=one.leader_epoch,
                            batches=[_undecided_batch(batch) for batch in one.batches],
                        )
                        for number, one in parts
                    ],
                )
                for topic_id, parts in _by_topic(asked)
            ],
        )

    return _TransactionalCall(0, request, _outcome, Outcome)


def _undecided_batch(batch: StateBatch) -> api1093.UpdatedBatch:
    return api1093.UpdatedBatch(
        first_offset=batch.first_offset,
        last_offset=batch.last_offset,
        delivery_state=batch.delivery_state,
        delivery_count=batch.delivery_count,
    )


class _TransactionalCall(Call[StateUpdate, Outcome]):
    def found(self, group_id: str, answer: api1093.TxnShareAcknowledgeResponse) -> dict[ShareKey, Outcome]:
        return {
            ShareKey(group_id, topic.topic_id, one.partition_index): self.read(one)
            for topic in answer.responses
            for one in topic.partitions
        }


def _delete(group_id: str, asked: Mapping[ShareKey, None]) -> api86.DeleteShareGroupStateRequest:
    topics = [
        api86.DeleteStateData(
            topic_id=topic_id, partitions=[api86.PartitionData(partition=number) for number, _ in parts]
        )
        for topic_id, parts in _by_topic(asked)
    ]
    return api86.DeleteShareGroupStateRequest(group_id=group_id, topics=topics)


def _summarize(group_id: str, asked: Mapping[ShareKey, int]) -> api87.ReadShareGroupStateSummaryRequest:
    topics = [
        api87.ReadStateSummaryData(
            topic_id=topic_id,
            partitions=[api87.PartitionData(partition=number, leader_epoch=epoch) for number, epoch in parts],
        )
        for topic_id, parts in _by_topic(asked)
    ]
    return api87.ReadShareGroupStateSummaryRequest(group_id=group_id, topics=topics)


def replaced(group_id: str, keys: Iterable[ShareKey]) -> api87.ReadShareGroupStateSummaryRequest:
    """Has the leader of these partitions forget what it knows of them. A broker that does not know the tag reads."""
    request = _summarize(group_id, dict.fromkeys(keys, 0))
    request.replaced = True
    return request


def _outcome(part: Any) -> Outcome:
    return Outcome(ErrorCode(part.error_code), part.error_message)


def _state(part: api84.PartitionResult) -> StoredState:
    if part.error_code:
        return StoredState(*_outcome(part))
    batches = tuple(
        StateBatch(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count, one.held_until_ms)
        for one in part.state_batches
    )
    pending = tuple(
        PendingBatch(
            one.producer_id, StateBatch(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
        )
        for one in part.pending
    )
    return StoredState(state_epoch=part.state_epoch, start_offset=part.start_offset, batches=batches, pending=pending)


def _summary(part: api87.PartitionResult) -> StateSummary:
    if part.error_code:
        return StateSummary(*_outcome(part))
    return StateSummary(
        state_epoch=part.state_epoch,
        leader_epoch=part.leader_epoch,
        start_offset=part.start_offset,
        delivery_complete_count=part.delivery_complete_count,
    )


INITIALIZE = Call(0, _initialize, _outcome, Outcome)
READ = Call(0, _read, _state, StoredState)
WRITE = Call(1, _write, _outcome, Outcome)
DELETE = Call(0, _delete, _outcome, Outcome)
SUMMARIZE = Call(1, _summarize, _summary, StateSummary)
