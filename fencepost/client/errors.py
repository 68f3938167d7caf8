"""The client's exceptions, in three kinds by what a program does next: retry, abort the transaction, or stop."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition


class KafkaError(Exception):
    """Base of all errors that this client raises because of the cluster.

    `code` is the broker's error code, `api` the Kafka name of the request ("Produce"), `node` the broker's id,
    `broker_message` the text that the broker sent with the code, and `subject` the name of the topic, group, user or
    transactional id that an admin request failed for; each is None where it does not apply. An error that needs no
    special reaction (a topic that already exists) is a plain KafkaError.
    """

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode | None = None,
        api: str | None = None,
        node: int | None = None,
        broker_message: str | None = None,
        subject: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.api = api
        self.node = node
        self.broker_message = broker_message
        self.subject = subject

    def __str__(self) -> str:
        text = super().__str__()
        facts = [
            self.code.name if self.code is not None else "",
            self.api or "",
            f"node {self.node}" if self.node is not None else "",
        ]
        known = ", ".join(fact for fact in facts if fact)
        return f"{text} ({known})" if known else text

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """For pickle and copy: `__init__` is not called, so a subclass may have any signature."""
        state = {name: list(value) if name == "__notes__" else value for name, value in vars(self).items()}
        return _restored, (type(self), self.args), state

    @property
    def retriable(self) -> bool:
        """Whether the same call, or a transaction with the same records, may succeed later without another change."""
        return self.code is not None and self.code.retriable


def _restored(kind: type[KafkaError], args: tuple[Any, ...]) -> KafkaError:
    return kind.__new__(kind, *args)


class ConfigError(KafkaError, ValueError):
    """An option that does not exist, or a value that it does not accept."""


class RetriableError(KafkaError):
    """The same call may succeed later. The library has already retried until its deadline ended."""

    @property
    def retriable(self) -> bool:
        """True."""
        return True


class WouldBlockError(RetriableError):
    """A call that never waits would have to wait. The message says for what, and which call to use instead."""


class DeliveryError(RetriableError):
    """A record's batch failed without an acknowledgement, mostly because `delivery_timeout` was over.

    `may_be_written` False: it is certainly not in the log. True: it may be, and sending it again may double it.
    """

    def __init__(
        self,
        message: str,
        *,
        may_be_written: bool,
        code: ErrorCode | None = None,
        api: str | None = None,
        node: int | None = None,
    ) -> None:
        super().__init__(message, code=code, api=api, node=node)
        self.may_be_written = may_be_written


class AbortableError(KafkaError):
    """The transaction cannot commit and was (or must be) aborted; the producer stays usable (KIP-890, KIP-1050).

    `retriable` is False where the next transaction with the same records and offsets would fail, too: a permission is
    missing, or a name or a size is not accepted.
    """

    @property
    def retriable(self) -> bool:
        """Whether a transaction with the same records may succeed later without another change."""
        return self.code not in _PERMANENT


class RejectedRecord(NamedTuple):
    """A record that was rejected, in the bytes that were to be sent, and why."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    reason: str


class RecordRejectedError(KafkaError):
    """`records` are too large or invalid for their topic, and are rejected whenever they are sent.

    Other records of the same batch were not written either, and can be sent again. In a transaction: it was aborted,
    and the producer stays usable. This is no AbortableError, because a loop that begins again would not end.
    `partition` is None if no partition was chosen yet. `records` is empty for batches that the program encoded.
    """

    def __init__(
        self,
        message: str,
        *,
        partition: TopicPartition | None,
        records: Sequence[RejectedRecord],
        code: ErrorCode | None = None,
        api: str | None = None,
        node: int | None = None,
    ) -> None:
        super().__init__(message, code=code, api=api, node=node)
        self.partition = partition
        self.records = tuple(records)

    @property
    def retriable(self) -> bool:
        """False."""
        return False


class FatalError(KafkaError):
    """This producer or client cannot continue."""

    @property
    def retriable(self) -> bool:
        """False."""
        return False


class FencedError(FatalError):
    """A newer program runs under the same transactional id or as the same static member: leave the work to it."""


class AuthorizationError(FatalError):
    """This client does not have the permission for the request."""


class AuthenticationError(FatalError):
    """Client and broker cannot authenticate each other: a wrong password, certificate, mechanism or listener.

    The client does not retry: the result would be the same.
    """


class OutcomeUnknownError(FatalError):
    """A commit was sent and no response came: it may or may not have happened.

    The producer rejects further transactions until `await producer.reinitialise()`, which finds the outcome.
    """


class ConnectionLostError(RetriableError):
    """The connection ended or could not be opened; `sent` says whether the request may have reached the broker."""

    def __init__(self, message: str, *, sent: bool, api: str | None = None, node: int | None = None) -> None:
        super().__init__(message, code=ErrorCode.NETWORK_EXCEPTION, api=api, node=node)
        self.sent = sent


FENCED: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)
STALE_MEMBER: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)
_UNAUTHORIZED: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
    }
)
_PERMANENT: Final = _UNAUTHORIZED | {
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.POLICY_VIOLATION,
    ErrorCode.INVALID_CONFIG,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode.UNSUPPORTED_VERSION,
}
"""Codes after which the next transaction with the same records fails, too, until a person changes something."""
REJECTED: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
    }
)
"""Codes with which a broker rejects the records of a batch themselves."""


def code_of(number: int) -> ErrorCode:
    """The error of a number on the wire; one that this build does not know counts as UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def error_for(
    code: ErrorCode,
    message: str,
    *,
    api: str | None = None,
    node: int | None = None,
    broker_message: str | None = None,
    subject: str | None = None,
) -> KafkaError:
    """The exception for a wire error outside of transactions; `core.txn_errors` has those of transactional requests."""
    kind: type[KafkaError] = KafkaError
    if code in FENCED:
        kind = FencedError
    elif code in _UNAUTHORIZED:
        kind = AuthorizationError
    elif code is ErrorCode.FENCED_INSTANCE_ID:
        kind = FencedError
    elif code.retriable:
        kind = RetriableError
    elif code is ErrorCode.TRANSACTION_ABORTABLE:
        kind = AbortableError
    elif code.fatal:
        kind = FatalError
    return kind(message, code=code, api=api, node=node, broker_message=broker_message, subject=subject)
