"""An error that a broker sent: what went wrong in one sentence, and what to do about it."""

import re
from collections.abc import Iterable
from typing import Final

from fencepost.client import AuthenticationError, KafkaError
from fencepost.client.admin import ItemsFailedError
from fencepost.protocol.errors import ErrorCode

_RIGHTS = "this needs rights that your user has not"
_LOADING = "the coordinator is loading, or its log is damaged (the broker's log says which); try with --timeout 60"
_HINTS: Final = {
    ErrorCode.NETWORK_EXCEPTION: "is a broker running at {bootstrap}? Name another with --bootstrap HOST:PORT;"
    " one that wants TLS needs --command-config FILE",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such partition or topic; `fencepost topic list` shows what"
    " there is, and partitions are numbered from 0",
    ErrorCode.UNKNOWN_TOPIC_ID: "`fencepost topic list --json` shows the topics with their ids",
    ErrorCode.TOPIC_ALREADY_EXISTS: "`fencepost topic describe NAME` shows it; --if-not-exists accepts it",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "a name has up to 249 letters, digits, '.', '_' and '-'; '.' and '_' count"
    " as the same",
    ErrorCode.INVALID_CONFIG: "`fencepost config get KIND NAME --all --explain` shows the settings there are",
    ErrorCode.INVALID_PARTITIONS: "partitions can be added, and never taken away",
    ErrorCode.INVALID_REPLICATION_FACTOR: "there can be as many replicas as brokers; `fencepost cluster brokers` shows"
    " them",
    ErrorCode.TOPIC_DELETION_DISABLED: "the broker runs with delete.topic.enable=false",
    ErrorCode.OFFSET_OUT_OF_RANGE: "`fencepost topic offsets TOPIC` shows where its partitions begin and end",
    ErrorCode.POLICY_VIOLATION: "the broker's rules forbid it; its message says which",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "no such transactional id, or it was forgotten unused; `fencepost txn list`"
    " shows those that are known",
    ErrorCode.GROUP_ID_NOT_FOUND: "`fencepost group list` shows the groups there are",
    ErrorCode.UNKNOWN_MEMBER_ID: "a member has joined the group: stop its members first",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "wait until that transaction has ended; `fencepost txn list --state Ongoing`"
    " shows which are open",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the pattern must match the whole id, as in 'orders-.*'",
    ErrorCode.UNSUPPORTED_VERSION: "this broker does not know that request, or is too old for one of its filters",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _LOADING,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _LOADING,
    ErrorCode.NOT_CONTROLLER: "the metadata log takes nothing now; the broker's log says why, and trying again is safe",
    ErrorCode.SECURITY_DISABLED: "the broker runs without an authorizer: it keeps no access rules",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _RIGHTS,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: _RIGHTS,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: _RIGHTS,
}
_TRUST = "how this broker is to be trusted stands in a file: --command-config FILE (security.protocol, sasl.*, ssl.*)"


_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_NAMED = re.compile(r"(?:\w+ )?'(?P<name>[^']+)'$")
"""The thing at the end of what the client was doing: `creating topic 'orders'`."""


def sentence(error: KafkaError) -> str:
    """The error in one sentence, with the name of its code.

    It is the broker's own message if that names the thing; otherwise, what the client was doing stands before it.
    """
    if isinstance(error, ItemsFailedError):
        return "\n  ".join(sentence(one) for one in error.errors.values())
    if error.code is None:
        return str(error)
    text, words = str(error.args[0]), error.broker_message
    named = _NAMED.search(text if words is None else text.removesuffix(f": {words}"))
    if words is None and named is not None and error.code in _UNKNOWN:
        text = f"{named[0]} does not exist"
    elif words is not None and named is not None and named["name"] in words:
        text = words
    if text[1:2].islower():
        text = text[0].lower() + text[1:]
    return f"{text.rstrip('.')} ({error.code.name})"


def hints_for(errors: Iterable[KafkaError], bootstrap: str) -> list[str]:
    """What to do next about several errors, each hint once."""
    return list(dict.fromkeys(hint for hint in (hint_for(error, bootstrap) for error in errors) if hint is not None))


def hint_for(error: KafkaError, bootstrap: str) -> str | None:
    """What to do next; None where the error says all there is."""
    if isinstance(error, AuthenticationError):
        return _TRUST
    hint = _HINTS.get(error.code) if error.code is not None else None
    return None if hint is None else hint.format(bootstrap=bootstrap)
