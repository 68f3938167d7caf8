"""Errors for people: what happened, to what, and what to do."""

from typing import NamedTuple

from fencepost.cli.hints import sentence
from fencepost.client import AuthenticationError, KafkaError
from fencepost.protocol.errors import ErrorCode

OUTAGE = 502
"""The status of an error that may pass."""
_HINTS = {
    ErrorCode.NETWORK_EXCEPTION: "Is a broker running at the address that the console was started with? The page"
    " works again as soon as it is there.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "It may have been deleted, or your user may not see it.",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "It expired, or it never existed. The page Transactions lists them all.",
    ErrorCode.GROUP_ID_NOT_FOUND: "It was deleted, or it is of another type. The page Groups lists them all.",
    ErrorCode.UNSUPPORTED_VERSION: "This broker does not offer what the page needs.",
    ErrorCode.OFFSET_OUT_OF_RANGE: "The log was cut short meanwhile. Load the page again.",
    ErrorCode.SECURITY_DISABLED: "The broker runs without an authorizer.",
}
_MISSING = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.GROUP_ID_NOT_FOUND}
)
_RIGHTS = "Ask an administrator for the right; `fencepost acl why-denied` names the rule that is missing."


class Trouble(NamedTuple):
    """An error for people, with a status of HTTP."""

    status: int
    title: str
    hint: str | None


def described(error: KafkaError) -> Trouble:
    """The error in one sentence, what to do, and the status of a page that shows it."""
    title = sentence(error)
    if title.split(" ")[0].isalpha():  # and no name, such as that of a partition
        title = title[:1].upper() + title[1:]
    codes = {one.code for one in getattr(error, "errors", {}).values()} or {error.code}
    code = next(iter(codes))
    if code is not None and code.name.endswith("AUTHORIZATION_FAILED"):
        return Trouble(403, title, _RIGHTS)
    if isinstance(error, AuthenticationError):
        return Trouble(OUTAGE, title, "The console's own name or password is wrong: start it with others.")
    hint = None if code is None else _HINTS.get(code)
    if code in _MISSING:
        return Trouble(404, title, hint)
    return Trouble(OUTAGE, title, hint)
