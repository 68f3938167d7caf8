"""Errors of brokers: what went wrong, in one sentence, and what to do about it."""

from collections.abc import Iterable
from typing import Final

import click

from fencepost.cli.client_options import config_file, profile_name
from fencepost.client import AuthenticationError, KafkaError
from fencepost.client.admin import ItemsFailedError
from fencepost.protocol.errors import ErrorCode

_RIGHTS = (
    "your user is not authorized for this request; `fencepost acl why-denied --help` shows how to find the missing rule"
)
_LOADING = "the coordinator is loading, or its log is damaged (the broker's log names it); try with --timeout 60"
_HINTS: Final = {
    ErrorCode.NETWORK_EXCEPTION: "is a broker running at {bootstrap}? Name another with --bootstrap HOST:PORT;"
    " a broker with TLS needs --command-config FILE",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the topic or partition does not exist; `fencepost topic list` shows the"
    " topics, and partitions are numbered from 0",
    ErrorCode.UNKNOWN_TOPIC_ID: "`fencepost topic list --json` shows the topics with their ids",
    ErrorCode.TOPIC_ALREADY_EXISTS: "`fencepost topic describe NAME` shows it; --if-not-exists accepts it",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "a name has up to 249 letters, digits, '.', '_' and '-'; '.' and '_' count"
    " as the same",
    ErrorCode.INVALID_CONFIG: "`fencepost config get KIND NAME --all --explain` shows all settings",
    ErrorCode.INVALID_PARTITIONS: "partitions can be added, but not removed",
    ErrorCode.INVALID_REPLICATION_FACTOR: "there can be at most as many replicas as brokers; `fencepost cluster"
    " brokers` shows the brokers",
    ErrorCode.TOPIC_DELETION_DISABLED: "the broker runs with delete.topic.enable=false",
    ErrorCode.OFFSET_OUT_OF_RANGE: "`fencepost topic offsets TOPIC` shows where its partitions begin and end",
    ErrorCode.MESSAGE_TOO_LARGE: "-X max.request.size=BYTES raises the client's limit, and the topic's setting"
    " max.message.bytes the broker's",
    ErrorCode.INVALID_RECORD: "a topic with cleanup.policy=compact takes only records with a key: -k KEY or -K BYTES",
    ErrorCode.POLICY_VIOLATION: "a policy of the broker forbids it; the broker's message names it",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "the transactional id does not exist, or it expired; `fencepost txn list`"
    " shows the transactional ids",
    ErrorCode.GROUP_ID_NOT_FOUND: "`fencepost group list` shows all groups",
    ErrorCode.UNKNOWN_MEMBER_ID: "a member has joined the group: stop its members first",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "wait until that transaction has ended; `fencepost txn list --state Ongoing`"
    " shows the open ones",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the pattern must match the whole id, for example 'orders-.*'",
    ErrorCode.UNSUPPORTED_VERSION: "the broker does not support this request, or one of its filters",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _LOADING,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _LOADING,
    ErrorCode.NOT_CONTROLLER: "the metadata log accepts no writes now; the broker's log has the reason; try again",
    ErrorCode.SECURITY_DISABLED: "the broker runs without an authorizer: start it with authorizer.class.name=standard",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _RIGHTS,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: _RIGHTS,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: _RIGHTS,
}
_TRUST = "name a file with the broker's security settings: --command-config FILE (security.protocol, sasl.*, ssl.*)"


_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


def sentence(error: KafkaError) -> str:
    """The error in one sentence, with the name of its code.

    It is the broker's message if that names the thing. Otherwise the client's text comes before the broker's message.
    """
    if isinstance(error, ItemsFailedError):
        return "\n  ".join(sentence(one) for one in error.errors.values())
    if error.code is None:
        return str(error)
    text, words = str(error.args[0]), error.broker_message
    if words is None and error.subject is not None and error.code in _UNKNOWN:
        text = f"topic {error.subject!r} does not exist"
    elif words is not None and error.subject is not None and error.subject in words:
        text = words
    if text[1:2].islower():
        text = text[0].lower() + text[1:]
    return f"{text.rstrip('.')} ({error.code.name})"


def hints_for(errors: Iterable[KafkaError], bootstrap: str) -> list[str]:
    return list(dict.fromkeys(hint for hint in (hint_for(error, bootstrap) for error in errors) if hint is not None))


def hint_for(error: KafkaError, bootstrap: str) -> str | None:
    """What to do next; None if the error itself includes it."""
    if isinstance(error, AuthenticationError):
        context = click.get_current_context()
        file, profile = config_file(context), profile_name(context)
        if profile is not None:
            return f"the security settings come from the profile {profile!r}"
        return _TRUST if file is None else f"the security settings come from {file}"
    hint = _HINTS.get(error.code) if error.code is not None else None
    return None if hint is None else hint.format(bootstrap=bootstrap)
