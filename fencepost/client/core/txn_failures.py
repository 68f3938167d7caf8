"""The exceptions for the error codes of transactional requests, by the table of `core.txn_errors`."""

from fencepost.client.core.txn_errors import TABLE, Meaning
from fencepost.client.errors import (
    AbortableError,
    AuthorizationError,
    FatalError,
    FencedError,
    KafkaError,
    RetriableError,
)
from fencepost.protocol.errors import ErrorCode

_KINDS: dict[Meaning, type[KafkaError]] = {
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


def error_of(code: ErrorCode, what: str, api: str, node: int | None) -> KafkaError:
    """The exception for an error code of a transactional request, by the table of `core.txn_errors`."""
    return _KINDS[TABLE[api][code]](what, code=code, api=api, node=node)


def raise_for(code: ErrorCode, what: str, api: str, node: int | None) -> None:
    if TABLE[api][code] is not Meaning.DONE:
        raise error_of(code, what, api, node)
