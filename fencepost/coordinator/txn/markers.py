"""From a decided transaction to its markers, and from the partitions' answers to the markers still to write."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fencepost.coordinator.ports import Marker
from fencepost.coordinator.txn.config import TxnConfig
from fencepost.coordinator.txn.state import NO_PRODUCER_ID, PrepareAbort, PrepareCommit, Prepared, TxnState
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition


def marker_of(state: Prepared, coordinator_epoch: int) -> Marker:
    """The marker of a decided transaction. To write one twice does no harm (rows T8, T25).

    `coordinator_epoch` is the leader epoch of the coordinator's partition (row T9).
    """
    producer, is_commit = state.producer, isinstance(state, PrepareCommit)
    return Marker(producer.producer_id, producer.epoch, is_commit, coordinator_epoch, state.client_version)


def is_evidence(state: TxnState) -> bool:
    """Whether the state is decided and its marker proves how, and so may be durable before it (decision 0080).

    Only TV2 gives each transaction an epoch of its own. A new producer id would not follow from the marker.
    """
    return (
        isinstance(state, PrepareCommit | PrepareAbort)
        and state.client_version >= 2
        and state.next_producer_id == NO_PRODUCER_ID
    )


def pauses(config: TxnConfig) -> Iterator[float]:
    """Seconds to wait before each further try, without end, doubled up to the longest."""
    pause_ms = config.marker_retry_backoff_ms
    while True:
        yield pause_ms / 1000
        pause_ms = min(2 * pause_ms, config.marker_retry_backoff_max_ms)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one round of marker writing."""

    remaining: frozenset[TopicPartition]
    """Partitions that still lack their marker: it is retried."""
    overtaken: Mapping[TopicPartition, ErrorCode]
    """Partitions that refuse the marker for good, because another one ended their transaction; logged as errors."""


ALL_WRITTEN = Outcome(frozenset(), {})


def settle(remaining: frozenset[TopicPartition], answers: Mapping[TopicPartition, ErrorCode]) -> Outcome:
    """Sort the answers of one round. A partition without an answer is retried.

    A partition that no longer exists needs no marker. INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED mean
    that a marker with a higher epoch ended the partition's transaction (an operator's WriteTxnMarkers). Kafka then
    gives up the whole transaction, and its id hangs in Prepare; here only that partition is left out. All other errors
    (storage, replicas, leadership) may pass, so they are retried without end (row T8).
    """
    if answers.keys() == remaining and not any(answers.values()):
        return ALL_WRITTEN
    left: set[TopicPartition] = set()
    overtaken: dict[TopicPartition, ErrorCode] = {}
    for partition in remaining:
        match answers.get(partition):
            case ErrorCode.NONE | ErrorCode.UNKNOWN_TOPIC_OR_PARTITION | ErrorCode.UNKNOWN_TOPIC_ID:
                pass
            case (ErrorCode.INVALID_PRODUCER_EPOCH | ErrorCode.TRANSACTION_COORDINATOR_FENCED) as error:
                overtaken[partition] = error
            case _:
                left.add(partition)
    outcome = Outcome(frozenset(left), overtaken)
    assert outcome.remaining <= remaining, "the set of missing markers only shrinks"
    return outcome
