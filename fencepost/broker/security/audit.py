"""The audit log: a line for each login, refused login and change of ACLs, users and quotas. It has no secrets.

The logger is `fencepost.audit`. A line is an event and `key=value` pairs; names that clients choose are quoted
(`log_names`). A client that repeats a denied request or a login must not fill the log: each cause gets
`LINES_PER_SECOND`, and the next line says how many were left out.
"""

import logging
from collections.abc import Iterable
from typing import Protocol

import trio

from fencepost.broker.security.log_names import principal_text, quoted
from fencepost.broker.security.ports import RequestInfo
from fencepost.broker.security.principal import Principal
from fencepost.protocol.admin_enums import AclOperation, AclResourceType
from fencepost.protocol.api_keys import ApiKey

audit = logging.getLogger("fencepost.audit")

LINES_PER_SECOND = 10
CAUSES_KEPT = 1024
CHANGES_AT_ONCE = 200
"""How many changes of one request are logged before other requests are served."""


class _Window:
    """The lines of one cause in the present second."""

    __slots__ = ("began", "left_out", "lines")

    def __init__(self, began: float) -> None:
        self.began = began
        self.lines = 0
        self.left_out = 0


class RepeatLimit(logging.Filter):
    """Lets `LINES_PER_SECOND` records of a cause pass each second. A record without a `cause` always passes."""

    def __init__(self) -> None:
        super().__init__()
        self._windows: dict[object, _Window] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Count the record. The first one of a new second reports those left out before it."""
        cause = getattr(record, "cause", None)
        if cause is None:
            return True
        window = self._windows.get(cause)
        if window is None:
            if len(self._windows) >= CAUSES_KEPT:
                del self._windows[next(iter(self._windows))]
            window = self._windows[cause] = _Window(record.created)
        if not 0 <= record.created - window.began < 1:
            window.began, window.lines = record.created, 0
        if window.lines >= LINES_PER_SECOND:
            window.left_out += 1
            return False
        window.lines += 1
        if window.left_out:
            record.msg = f"{record.msg} left_out_before={window.left_out}"
            window.left_out = 0
        return True


audit.addFilter(RepeatLimit())
logging.getLogger("fencepost.coordinator.txn.bounds").addFilter(RepeatLimit())


class _Session(Protocol):
    client_host: str
    listener_name: str
    principal: Principal


class _Request(Protocol):
    client_id: str | None

    @property
    def session(self) -> _Session: ...


def log_login(session: _Session, mechanism: str) -> None:
    """A client has logged in, for the first time or again (KIP-368)."""
    audit.info(
        "LOGIN principal=%s host=%s listener=%s mechanism=%s",
        principal_text(session.principal),
        session.client_host,
        session.listener_name,
        mechanism,
        extra={"cause": ("LOGIN", session.principal, session.client_host)},
    )


def log_failed_login(session: _Session, why: str) -> None:
    """A login was refused. `why` is the text that the connection's log line has, too."""
    audit.info(
        "LOGIN_FAILED host=%s listener=%s cause=%s",
        session.client_host,
        session.listener_name,
        why,
        extra={"cause": ("LOGIN_FAILED", session.client_host)},
    )


def log_change(context: _Request, event: str, what: str) -> None:
    """A request has changed an ACL, a user or a quota: `what` holds the `key=value` pairs of the change."""
    session = context.session
    audit.info(
        "%s principal=%s host=%s client_id=%s %s",
        event,
        principal_text(session.principal),
        session.client_host,
        quoted(context.client_id or ""),
        what,
    )


async def log_changes(context: _Request, event: str, changes: Iterable[str]) -> None:
    """As `log_change` for each of many changes. They have been made, so a cancellation leaves no line out."""
    for number, what in enumerate(changes, 1):
        log_change(context, event, what)
        if not number % CHANGES_AT_ONCE:
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()


def log_denied(context: RequestInfo, operation: AclOperation, kind: AclResourceType, name: str) -> None:
    _log(logging.INFO, "DENIED", context, operation, kind, name)


def log_allowed(context: RequestInfo, operation: AclOperation, kind: AclResourceType, name: str) -> None:
    """One line for an allowed operation. The caller checks the logger's level first: most requests are allowed."""
    _log(logging.DEBUG, "ALLOWED", context, operation, kind, name)


def _log(
    level: int, verdict: str, context: RequestInfo, operation: AclOperation, kind: AclResourceType, name: str
) -> None:
    session = context.session
    audit.log(
        level,
        "%s principal=%s host=%s operation=%s resource=%s:%s api=%s version=%d client_id=%s",
        verdict,
        principal_text(session.principal),
        session.client_host,
        operation.name,
        kind.name,
        quoted(name),
        ApiKey(context.api_key).api_name,
        context.api_version,
        quoted(context.client_id or ""),
        extra={"cause": (verdict, session.principal, session.client_host, operation, kind)},
    )
