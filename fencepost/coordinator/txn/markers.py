"""From a decided transaction to the markers it owes, and from a partition's answer to what is left to do."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fencepost.coordinator.ports import Marker
from fencepost.coordinator.txn.commands import WriteMarkers
from fencepost.coordinator.txn.config import TxnConfig
from fencepost.coordinator.txn.state import PrepareCommit, Prepared
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

COORDINATOR_EPOCH = 0
"""What the markers say of their coordinator (row T9). One node is elected once and never again."""


def owed(transactional_id: str, state: Prepared) -> WriteMarkers:
    """The markers that `state` owes. Writing one twice does no harm (rows T8, T25), so after a crash all come again."""
    producer = state.producer
    commit = isinstance(state, PrepareCommit)
    marker = Marker(producer.producer_id, producer.epoch, commit, COORDINATOR_EPOCH, state.client_version)
    return WriteMarkers(transactional_id, marker, state.partitions)


def pauses(config: TxnConfig) -> Iterator[float]:
    """Seconds to wait before each further try, without end, doubled up to the longest."""
    pause_ms = config.marker_retry_backoff_ms
    while True:
        yield pause_ms / 1000
        pause_ms = min(2 * pause_ms, config.marker_retry_backoff_max_ms)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one round of marker writing left."""

    remaining: frozenset[TopicPartition]
    """Still owed: to be tried again."""
    overtaken: Mapping[TopicPartition, ErrorCode]
    """Never to be written, for the partition has gone on without this marker; worth a line in the log."""


ALL_WRITTEN = Outcome(frozenset(), {})


def settle(remaining: frozenset[TopicPartition], answers: Mapping[TopicPartition, ErrorCode]) -> Outcome:
    """Sort the answers of one round. A partition without an answer stays owed.

    A partition that does not exist any more owes nothing. INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED say
    that somebody ended the partition's transaction with a higher epoch (an operator, through WriteTxnMarkers): Kafka
    gives the whole transaction up then and its id hangs in Prepare; here only that partition is crossed off. All else
    (storage, replicas, leadership) may pass, so it is tried again without end (row T8).
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
    assert outcome.remaining <= remaining, "owed markers only shrink"
    return outcome
