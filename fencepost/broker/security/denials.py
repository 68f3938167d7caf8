"""The log of decisions: a line for each denied operation (INFO), and for each allowed one (DEBUG).

The logger is `fencepost.audit`. A client that repeats a denied request must not fill the log: one principal, host,
operation and type of resource gets `LINES_PER_SECOND`; the next line says how many were left out.
"""

import logging
from typing import TYPE_CHECKING

from fencepost.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from fencepost.broker.security.ports import Asking
    from fencepost.protocol.admin_enums import AclOperation, AclResourceType

audit = logging.getLogger("fencepost.audit")

LINES_PER_SECOND = 10
CAUSES_KEPT = 1024


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


def log_denied(context: "Asking", operation: "AclOperation", kind: "AclResourceType", name: str) -> None:
    """One line for a denied operation."""
    _log(logging.INFO, "DENIED", context, operation, kind, name)


def log_allowed(context: "Asking", operation: "AclOperation", kind: "AclResourceType", name: str) -> None:
    """One line for an allowed operation, if the logger's level is DEBUG."""
    if audit.isEnabledFor(logging.DEBUG):
        _log(logging.DEBUG, "ALLOWED", context, operation, kind, name)


def _log(
    level: int, verdict: str, context: "Asking", operation: "AclOperation", kind: "AclResourceType", name: str
) -> None:
    session = context.session
    audit.log(
        level,
        "%s principal=%s host=%s operation=%s resource=%s:%r api=%s version=%d client_id=%r",
        verdict,
        session.principal,
        session.client_host,
        operation.name,
        kind.name,
        name,
        ApiKey(context.api_key).api_name,
        context.api_version,
        context.client_id or "",
        extra={"cause": (verdict, session.principal, session.client_host, operation, kind)},
    )
