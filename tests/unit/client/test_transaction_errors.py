"""Every code that a transactional request can answer, held against Kafka's own producer (TransactionManager, Sender).

`KAFKA` are the facts of Kafka 4.0's TransactionManager, by the request whose answer is handled and the state that
follows from it; `DIFFERENT` is where we decide otherwise, each with its reason.
"""

import pytest

from fencepost.client.core.txn_errors import APIS, TABLE, Meaning
from fencepost.client.core.txn_failures import error_of
from fencepost.client.errors import AbortableError, AuthorizationError, FatalError, FencedError, RetriableError
from fencepost.protocol.errors import ErrorCode as E

RETRY, ABORT, FENCED, FATAL = "asks again", "abortable", "fenced, fatal", "fatal"
COORDINATOR = {E.NOT_COORDINATOR: RETRY, E.COORDINATOR_NOT_AVAILABLE: RETRY, E.COORDINATOR_LOAD_IN_PROGRESS: RETRY}
FENCES = {E.INVALID_PRODUCER_EPOCH: FENCED, E.PRODUCER_FENCED: FENCED}
KAFKA: dict[str, dict[E, str]] = {
    "FindCoordinator": {
        E.COORDINATOR_NOT_AVAILABLE: RETRY,
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: FATAL,
        E.GROUP_AUTHORIZATION_FAILED: ABORT,
        E.TRANSACTION_ABORTABLE: ABORT,
        E.INVALID_REQUEST: FATAL,
    },
    "InitProducerId": {
        **COORDINATOR,
        **FENCES,
        E.CONCURRENT_TRANSACTIONS: RETRY,
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ABORT,
        E.CLUSTER_AUTHORIZATION_FAILED: ABORT,
        E.TRANSACTION_ABORTABLE: ABORT,
        E.INVALID_TRANSACTION_TIMEOUT: FATAL,
        E.INVALID_TXN_STATE: FATAL,
        E.INVALID_PRODUCER_ID_MAPPING: FATAL,
        E.UNKNOWN_SERVER_ERROR: FATAL,
    },
    "AddPartitionsToTxn": {
        **COORDINATOR,
        **FENCES,
        E.CONCURRENT_TRANSACTIONS: RETRY,
        E.UNKNOWN_TOPIC_OR_PARTITION: RETRY,
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: FATAL,
        E.INVALID_TXN_STATE: FATAL,
        E.TOPIC_AUTHORIZATION_FAILED: ABORT,
        E.OPERATION_NOT_ATTEMPTED: ABORT,
        E.UNKNOWN_PRODUCER_ID: ABORT,
        E.INVALID_PRODUCER_ID_MAPPING: ABORT,
        E.TRANSACTION_ABORTABLE: ABORT,
        E.UNKNOWN_SERVER_ERROR: ABORT,
    },
    "AddOffsetsToTxn": {
        **COORDINATOR,
        **FENCES,
        E.CONCURRENT_TRANSACTIONS: RETRY,
        E.UNKNOWN_PRODUCER_ID: ABORT,
        E.INVALID_PRODUCER_ID_MAPPING: ABORT,
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: FATAL,
        E.INVALID_TXN_STATE: FATAL,
        E.GROUP_AUTHORIZATION_FAILED: ABORT,
        E.TRANSACTION_ABORTABLE: ABORT,
        E.UNKNOWN_SERVER_ERROR: FATAL,
    },
    "TxnOffsetCommit": {
        **COORDINATOR,
        **FENCES,
        E.REQUEST_TIMED_OUT: RETRY,
        E.CONCURRENT_TRANSACTIONS: RETRY,
        E.UNKNOWN_TOPIC_OR_PARTITION: RETRY,
        E.GROUP_AUTHORIZATION_FAILED: ABORT,
        E.FENCED_INSTANCE_ID: ABORT,
        E.TRANSACTION_ABORTABLE: ABORT,
        E.UNKNOWN_MEMBER_ID: ABORT,
        E.ILLEGAL_GENERATION: ABORT,
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: FATAL,
        E.UNSUPPORTED_FOR_MESSAGE_FORMAT: FATAL,
        E.UNKNOWN_SERVER_ERROR: FATAL,
        E.STALE_MEMBER_EPOCH: FATAL,
        E.GROUP_ID_NOT_FOUND: FATAL,
        E.TOPIC_AUTHORIZATION_FAILED: FATAL,
        E.INVALID_PRODUCER_ID_MAPPING: FATAL,
        E.INVALID_TXN_STATE: FATAL,
    },
    # Not Kafka's: TxnOffsetCommit's codes, and those of ShareAcknowledge, of which the first spoils the transaction.
    "TxnShareAcknowledge": {
        E.INVALID_RECORD_STATE: ABORT,
        E.INVALID_REQUEST: ABORT,
        E.COORDINATOR_NOT_AVAILABLE: RETRY,
        E.CONCURRENT_TRANSACTIONS: RETRY,
        E.NOT_LEADER_OR_FOLLOWER: RETRY,
        E.UNKNOWN_TOPIC_ID: RETRY,
        E.TOPIC_AUTHORIZATION_FAILED: ABORT,
        E.GROUP_AUTHORIZATION_FAILED: ABORT,
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: FATAL,
        E.INVALID_PRODUCER_ID_MAPPING: ABORT,
        E.UNKNOWN_SERVER_ERROR: ABORT,
        E.PRODUCER_FENCED: FENCED,
        E.UNSUPPORTED_VERSION: FATAL,
    },
    "Produce": {
        E.NOT_LEADER_OR_FOLLOWER: RETRY,
        E.UNKNOWN_TOPIC_OR_PARTITION: RETRY,
        E.LEADER_NOT_AVAILABLE: RETRY,
        E.NOT_ENOUGH_REPLICAS: RETRY,
        E.NOT_ENOUGH_REPLICAS_AFTER_APPEND: RETRY,
        E.REQUEST_TIMED_OUT: RETRY,
        E.KAFKA_STORAGE_ERROR: RETRY,
        E.CORRUPT_MESSAGE: RETRY,
        E.CONCURRENT_TRANSACTIONS: RETRY,
        E.COORDINATOR_NOT_AVAILABLE: RETRY,
        E.NOT_COORDINATOR: RETRY,
        E.COORDINATOR_LOAD_IN_PROGRESS: RETRY,
        E.INVALID_PRODUCER_EPOCH: ABORT,
        E.PRODUCER_FENCED: FENCED,
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: FATAL,
        E.CLUSTER_AUTHORIZATION_FAILED: FATAL,
        E.UNSUPPORTED_VERSION: FATAL,
        E.INVALID_TXN_STATE: ABORT,
        E.INVALID_PRODUCER_ID_MAPPING: ABORT,
        E.TRANSACTION_ABORTABLE: ABORT,
        E.OUT_OF_ORDER_SEQUENCE_NUMBER: ABORT,
        E.UNKNOWN_PRODUCER_ID: ABORT,
        E.TOPIC_AUTHORIZATION_FAILED: ABORT,
        E.MESSAGE_TOO_LARGE: ABORT,
        E.RECORD_LIST_TOO_LARGE: ABORT,
        E.INVALID_RECORD: ABORT,
        E.INVALID_TIMESTAMP: ABORT,
        E.UNKNOWN_SERVER_ERROR: ABORT,
    },
    "EndTxn": {
        **COORDINATOR,
        **FENCES,
        E.CONCURRENT_TRANSACTIONS: RETRY,
        E.REQUEST_TIMED_OUT: RETRY,
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: FATAL,
        E.INVALID_TXN_STATE: FATAL,
        E.UNKNOWN_PRODUCER_ID: ABORT,
        E.INVALID_PRODUCER_ID_MAPPING: ABORT,
        E.TRANSACTION_ABORTABLE: ABORT,
        E.UNKNOWN_SERVER_ERROR: FATAL,
    },
}
BY_THE_END = "the end of the transaction tells a timeout from somebody newer (KIP-588), so we ask for it first"
NO_RIGHT = "asking again brings no right: open a new producer (KIP-1050 lets initTransactions be called again)"
SPOILT = "a later Kafka may bring codes that only spoil the transaction; nothing of it can have committed"
DIFFERENT: dict[tuple[str, E], str] = {
    ("InitProducerId", E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED): NO_RIGHT,
    ("InitProducerId", E.CLUSTER_AUTHORIZATION_FAILED): NO_RIGHT,
    ("AddPartitionsToTxn", E.INVALID_PRODUCER_EPOCH): BY_THE_END,
    ("AddPartitionsToTxn", E.INVALID_TXN_STATE): BY_THE_END,
    ("AddOffsetsToTxn", E.INVALID_PRODUCER_EPOCH): BY_THE_END,
    ("AddOffsetsToTxn", E.INVALID_TXN_STATE): BY_THE_END,
    ("AddOffsetsToTxn", E.UNKNOWN_SERVER_ERROR): SPOILT,
    ("TxnOffsetCommit", E.INVALID_PRODUCER_EPOCH): BY_THE_END,
    ("TxnOffsetCommit", E.INVALID_TXN_STATE): BY_THE_END,
    ("TxnOffsetCommit", E.INVALID_PRODUCER_ID_MAPPING): "as in the other requests: a new epoch mends it (KIP-360)",
    ("TxnOffsetCommit", E.UNKNOWN_SERVER_ERROR): SPOILT,
    ("TxnOffsetCommit", E.STALE_MEMBER_EPOCH): "the member's epoch is over, as ILLEGAL_GENERATION says for the others",
    ("TxnOffsetCommit", E.GROUP_ID_NOT_FOUND): "v6 says so of a group that is gone; before it was ILLEGAL_GENERATION",
    ("TxnOffsetCommit", E.TOPIC_AUTHORIZATION_FAILED): "as for a record: the transaction is lost, the producer is not",
    ("EndTxn", E.INVALID_TXN_STATE): BY_THE_END,
    ("EndTxn", E.UNKNOWN_SERVER_ERROR): SPOILT,
}
OURS = {
    Meaning.AGAIN: RETRY,
    Meaning.MOVED: RETRY,
    Meaning.ABORT: ABORT,
    Meaning.LOST_IDENTITY: ABORT,
    Meaning.NOT_OPEN: ABORT,
    Meaning.STALE_EPOCH: ABORT,
    Meaning.FENCED: FENCED,
    Meaning.FORBIDDEN: FATAL,
    Meaning.FATAL: FATAL,
}
CLASSES = {
    Meaning.AGAIN: RetriableError,
    Meaning.MOVED: RetriableError,
    Meaning.ABORT: AbortableError,
    Meaning.LOST_IDENTITY: AbortableError,
    Meaning.NOT_OPEN: AbortableError,
    Meaning.STALE_EPOCH: AbortableError,
    Meaning.FENCED: FencedError,
    Meaning.FORBIDDEN: AuthorizationError,
    Meaning.FATAL: FatalError,
}


@pytest.mark.parametrize("api", APIS)
def test_codes_mean_what_they_mean_to_kafkas_producer_t17(api: str) -> None:
    """KIP-1050: or they differ for a reason that is written down; a reason without a difference fails as well."""
    for code, kafka in KAFKA[api].items():
        same = OURS[TABLE[api][code]] == kafka
        assert same != ((api, code) in DIFFERENT), f"{api}, {code.name}: Kafka {kafka}, we {TABLE[api][code]}"


def test_every_difference_is_about_something_that_kafka_says() -> None:
    assert {api for api, _ in DIFFERENT} <= set(APIS) == set(KAFKA)
    assert all(code in KAFKA[api] for api, code in DIFFERENT)


@pytest.mark.parametrize("api", APIS)
def test_every_code_has_a_meaning_and_an_error_with_code_api_and_node(api: str) -> None:
    assert set(TABLE[api]) == set(E)
    for code, meaning in TABLE[api].items():
        if meaning is Meaning.DONE:
            assert code in (E.NONE, E.DUPLICATE_SEQUENCE_NUMBER)
            continue
        error = error_of(code, "it", api, 7)
        assert type(error) is CLASSES[meaning]
        assert (error.code, error.api, error.node) == (code, api, 7)
        assert code.name in str(error)


@pytest.mark.parametrize("api", [api for api in APIS if api not in ("FindCoordinator", "InitProducerId")])
def test_the_new_codes_of_transactions(api: str) -> None:
    """120 spoils the transaction, 48 asks what it is, 51 waits, 90 is over (KIP-890, KIP-588)."""
    assert TABLE[api][E.TRANSACTION_ABORTABLE] is Meaning.ABORT
    assert TABLE[api][E.INVALID_TXN_STATE] is Meaning.NOT_OPEN
    assert TABLE[api][E.CONCURRENT_TRANSACTIONS] is Meaning.AGAIN
    assert TABLE[api][E.PRODUCER_FENCED] is Meaning.FENCED
