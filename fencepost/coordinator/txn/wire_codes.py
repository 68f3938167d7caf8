"""Which error code a client of a given request version may receive (row T11, KIP-588, KIP-890)."""

from fencepost.coordinator.txn.commands import Answer
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

PRODUCER_FENCED_SINCE: dict[int, int] = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}
"""By API key: the first version whose clients know PRODUCER_FENCED; older ones receive INVALID_PRODUCER_EPOCH."""

ABORTABLE_SINCE: dict[int, int] = {
    ApiKey.INIT_PRODUCER_ID: 5,
    ApiKey.ADD_PARTITIONS_TO_TXN: 5,
    ApiKey.ADD_OFFSETS_TO_TXN: 4,
    ApiKey.END_TXN: 4,
}
"""By API key: the first version whose clients know TRANSACTION_ABORTABLE."""

WRITES: dict[int, tuple[int, int]] = {ApiKey.PRODUCE: (12, 11), ApiKey.TXN_OFFSET_COMMIT: (5, 4)}
"""Produce and TxnOffsetCommit: the first version of TV2, and the first whose clients know TRANSACTION_ABORTABLE."""


def visible(api_key: int, api_version: int, error: ErrorCode) -> ErrorCode:
    """`error` as a client of this version knows it."""
    if error is ErrorCode.PRODUCER_FENCED and api_version < PRODUCER_FENCED_SINCE[api_key]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and api_version < ABORTABLE_SINCE[api_key]:
        return ErrorCode.INVALID_TXN_STATE
    return error


def visible_to_producer(error: ErrorCode, *, adds: bool, knows_abortable: bool) -> ErrorCode:
    """`error` of a write's check against its transaction, as clients of Produce and TxnOffsetCommit know it.

    `adds`: the request is of TV2 and knows CONCURRENT_TRANSACTIONS; older ones receive NOT_ENOUGH_REPLICAS, as in
    Kafka, and retry. Fencing is always INVALID_PRODUCER_EPOCH here (row P4).
    """
    match error:
        case ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        case ErrorCode.TRANSACTION_ABORTABLE:
            return error if knows_abortable else ErrorCode.INVALID_TXN_STATE
        case ErrorCode.CONCURRENT_TRANSACTIONS:
            return error if adds else ErrorCode.NOT_ENOUGH_REPLICAS
        case (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            | ErrorCode.COORDINATOR_NOT_AVAILABLE
            | ErrorCode.NOT_COORDINATOR
            | ErrorCode.NETWORK_EXCEPTION
        ):
            return ErrorCode.NOT_ENOUGH_REPLICAS
        case _:
            return error


def visible_in_reply(api_key: int, api_version: int, error: ErrorCode) -> ErrorCode:
    """`error` as the client of this request receives it, whichever API it is."""
    if api_key in PRODUCER_FENCED_SINCE:
        return visible(api_key, api_version, error)
    if api_key in WRITES:
        adds_since, abortable_since = WRITES[api_key]
        return visible_to_producer(
            error, adds=api_version >= adds_since, knows_abortable=api_version >= abortable_since
        )
    return error


def by_partition(partitions: frozenset[TopicPartition], answer: Answer) -> dict[TopicPartition, ErrorCode]:
    """The error of each partition; those that verification did not find are TRANSACTION_ABORTABLE (row T15)."""
    if not answer.missing:
        return dict.fromkeys(partitions, answer.error)
    abortable = ErrorCode.TRANSACTION_ABORTABLE
    return {partition: abortable if partition in answer.missing else answer.error for partition in partitions}
