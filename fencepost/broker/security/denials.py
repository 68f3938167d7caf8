"""The audit log of decisions: a line for each denied operation (INFO), and for each allowed one (DEBUG)."""

import logging
from typing import TYPE_CHECKING

from fencepost.broker.security.audit import audit
from fencepost.broker.security.log_names import principal_text, quoted
from fencepost.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from fencepost.broker.security.ports import Asking
    from fencepost.protocol.admin_enums import AclOperation, AclResourceType


def log_denied(context: "Asking", operation: "AclOperation", kind: "AclResourceType", name: str) -> None:
    """One line for a denied operation."""
    _log(logging.INFO, "DENIED", context, operation, kind, name)


def log_allowed(context: "Asking", operation: "AclOperation", kind: "AclResourceType", name: str) -> None:
    """One line for an allowed operation. The caller checks the logger's level first: most requests are allowed."""
    _log(logging.DEBUG, "ALLOWED", context, operation, kind, name)


def _log(
    level: int, verdict: str, context: "Asking", operation: "AclOperation", kind: "AclResourceType", name: str
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
