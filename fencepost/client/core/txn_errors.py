"""What an error code means in the response to a transactional request: one table, by API and code (KIP-1050, row T17).

| meaning       | what the client does                                                        | the program sees    |
|---------------|-----------------------------------------------------------------------------|---------------------|
| DONE          | continues                                                                   |                     |
| AGAIN         | retries after a pause, until the deadline                                   | RetriableError [1]  |
| MOVED         | finds the coordinator, or the leader [4], first; then as AGAIN              | RetriableError [1]  |
| ABORT         | the transaction can only be aborted; the producer stays usable              | AbortableError [3]  |
| LOST_IDENTITY | as ABORT; the cluster has forgotten the producer id: a new epoch afterwards | AbortableError      |
| NOT_OPEN      | no such transaction is open: ending it shows why (KIP-588)                  | AbortableError      |
| STALE_EPOCH   | a newer producer, or a timed-out transaction: ending it decides (KIP-588)   | AbortableError [2]  |
| FENCED        | a newer producer has the transactional id                                   | FencedError         |
| FORBIDDEN     | a permission is missing; no retry changes that                              | AuthorizationError  |
| FATAL         | this client and this broker cannot work together                           | FatalError          |

[1] Only when the deadline ends; inside a transaction it is then an AbortableError.
[2] FencedError where ending it finds a newer producer.
[3] RecordRejectedError where Produce rejects the records themselves: the next transaction would fail, too.
[4] For Produce, and for TxnShareAcknowledge, which no Kafka has.

The table follows Kafka's TransactionManager and Sender; the test names each difference and its reason.
"""

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fencepost.protocol.errors import ErrorCode as E


class Meaning(enum.Enum):
    """What a transactional producer does about an error code; the table is at the top of the module."""

    DONE = "done"
    AGAIN = "again"
    MOVED = "moved"
    ABORT = "abort"
    LOST_IDENTITY = "lost identity"
    NOT_OPEN = "not open"
    STALE_EPOCH = "stale epoch"
    FENCED = "fenced"
    FORBIDDEN = "forbidden"
    FATAL = "fatal"


APIS: Final = (
    "FindCoordinator",
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "TxnShareAcknowledge",
    "Produce",
    "EndTxn",
)
"""The requests of a transactional producer."""

_COMMON: Final[Mapping[E, Meaning]] = {
    E.NONE: Meaning.DONE,
    E.NOT_COORDINATOR: Meaning.MOVED,
    E.COORDINATOR_NOT_AVAILABLE: Meaning.MOVED,
    E.TRANSACTION_ABORTABLE: Meaning.ABORT,
    E.TOPIC_AUTHORIZATION_FAILED: Meaning.ABORT,
    E.GROUP_AUTHORIZATION_FAILED: Meaning.ABORT,
    E.OPERATION_NOT_ATTEMPTED: Meaning.ABORT,
    E.UNKNOWN_PRODUCER_ID: Meaning.LOST_IDENTITY,
    E.INVALID_PRODUCER_ID_MAPPING: Meaning.LOST_IDENTITY,
    E.INVALID_TXN_STATE: Meaning.NOT_OPEN,
    E.INVALID_PRODUCER_EPOCH: Meaning.STALE_EPOCH,
    E.PRODUCER_FENCED: Meaning.FENCED,
    E.TRANSACTION_COORDINATOR_FENCED: Meaning.FATAL,
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Meaning.FORBIDDEN,
    E.CLUSTER_AUTHORIZATION_FAILED: Meaning.FORBIDDEN,
    E.DELEGATION_TOKEN_AUTHORIZATION_FAILED: Meaning.FORBIDDEN,
    E.SASL_AUTHENTICATION_FAILED: Meaning.FORBIDDEN,
    E.UNSUPPORTED_VERSION: Meaning.FATAL,
    E.UNSUPPORTED_FOR_MESSAGE_FORMAT: Meaning.FATAL,
}
_STALE_MEMBER: Final = dict.fromkeys(
    (
        E.ILLEGAL_GENERATION,
        E.UNKNOWN_MEMBER_ID,
        E.FENCED_INSTANCE_ID,
        E.STALE_MEMBER_EPOCH,
        E.FENCED_MEMBER_EPOCH,
        E.REBALANCE_IN_PROGRESS,
        E.GROUP_ID_NOT_FOUND,
    ),
    Meaning.ABORT,
)
_LEADER_MOVED: Final = dict.fromkeys(
    (
        E.NOT_LEADER_OR_FOLLOWER,
        E.LEADER_NOT_AVAILABLE,
        E.FENCED_LEADER_EPOCH,
        E.UNKNOWN_LEADER_EPOCH,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.UNKNOWN_TOPIC_ID,
        E.INCONSISTENT_TOPIC_ID,
        E.REPLICA_NOT_AVAILABLE,
        E.KAFKA_STORAGE_ERROR,
    ),
    Meaning.MOVED,
)
_SPECIAL: Final[Mapping[str, Mapping[E, Meaning]]] = {
    "FindCoordinator": {E.COORDINATOR_NOT_AVAILABLE: Meaning.AGAIN, E.INVALID_REQUEST: Meaning.FATAL},
    # No transaction is open during InitProducerId, so a code that would abort one is final here.
    "InitProducerId": {
        E.INVALID_PRODUCER_EPOCH: Meaning.FENCED,
        E.INVALID_TRANSACTION_TIMEOUT: Meaning.FATAL,
        E.INVALID_REQUEST: Meaning.FATAL,
        E.INVALID_TXN_STATE: Meaning.FATAL,
        E.UNKNOWN_PRODUCER_ID: Meaning.FATAL,
        E.INVALID_PRODUCER_ID_MAPPING: Meaning.FATAL,
        E.UNKNOWN_SERVER_ERROR: Meaning.FATAL,
    },
    "AddPartitionsToTxn": {E.INVALID_TOPIC_EXCEPTION: Meaning.ABORT},
    "AddOffsetsToTxn": {E.INVALID_GROUP_ID: Meaning.ABORT},
    "TxnOffsetCommit": {
        **_STALE_MEMBER,
        E.REQUEST_TIMED_OUT: Meaning.MOVED,
        E.OFFSET_METADATA_TOO_LARGE: Meaning.ABORT,
        E.INVALID_COMMIT_OFFSET_SIZE: Meaning.ABORT,
    },
    # Fencepost's own. A new leader, or one that began anew, holds no locks: it answers INVALID_RECORD_STATE.
    "TxnShareAcknowledge": {**_LEADER_MOVED, E.INVALID_RECORD_STATE: Meaning.ABORT},
    "Produce": {
        E.OUT_OF_ORDER_SEQUENCE_NUMBER: Meaning.LOST_IDENTITY,
        E.DUPLICATE_SEQUENCE_NUMBER: Meaning.DONE,
        **_LEADER_MOVED,
    },
    # Only EndTxn decides whether a stale epoch means a newer producer.
    "EndTxn": {E.INVALID_PRODUCER_EPOCH: Meaning.FENCED},
}
_PARTITION_LEVEL: Final = frozenset(
    {"AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "TxnShareAcknowledge", "Produce", "EndTxn"}
)


def _meaning(api: str, code: E) -> Meaning:
    found = _SPECIAL[api].get(code) or _COMMON.get(code)
    if found is not None:
        return found
    if code.retriable:
        return Meaning.AGAIN
    # An unforeseen code aborts an open transaction; without one the producer cannot continue.
    return Meaning.ABORT if api in _PARTITION_LEVEL else Meaning.FATAL


TABLE: Final[Mapping[str, Mapping[E, Meaning]]] = MappingProxyType(
    {api: MappingProxyType({code: _meaning(api, code) for code in E}) for api in APIS}
)
"""By API name and error code, for every code that Kafka has."""

INDEFINITE: Final = frozenset(
    {E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, E.REQUEST_TIMED_OUT, E.NETWORK_EXCEPTION}
)
"""Codes of EndTxn after which the coordinator may still have written the decision (row T7).

NOT_COORDINATOR as well: a coordinator that moves between the append and the response returns it (Kafka's
`TransactionStateManager.appendTransactionToLog`).
"""
