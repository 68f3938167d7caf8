"""The journal of a broker under test: answered requests, faults, starts, stops and warnings, for failure reports."""

import logging
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from fencepost.broker.network.context import RequestContext
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.schema import Value

EVENTS_MAX = 2_000
ROUTINE = frozenset({"ApiVersions", "Fetch", "FindCoordinator", "Heartbeat", "ListOffsets", "Metadata"})
"""Frequent requests that the journal has only if they are answered with an error."""
_SHOWN_FIELDS = ("transactional_id", "group_id", "member_id", "producer_id", "producer_epoch", "committed", "acks")
_TOPICS = ("topics", "topic_data", "v3_and_below_topics")


class Event(NamedTuple):
    """One line of a journal."""

    seconds: float
    """Seconds since the broker object was created, on the machine's clock."""
    text: str

    def __str__(self) -> str:
        return f"{self.seconds:9.3f} {self.text}"


class Journal(logging.Handler):
    """The last events, oldest first. Also a log handler for the log lines of the broker's own threads."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.thread_ids: set[int] = set()
        self.owners: dict[str, tuple[str | None, str]] = {}
        """By transactional id, the client id and host of its last InitProducerId."""
        self._began = time.monotonic()
        self._events: deque[Event] = deque(maxlen=EVENTS_MAX)

    def __iter__(self) -> Iterator[Event]:
        return iter(tuple(self._events))

    def note(self, text: str) -> None:
        self._events.append(Event(time.monotonic() - self._began, text))

    def emit(self, record: logging.LogRecord) -> None:
        """Note a line that the broker logged (the method of logging.Handler)."""
        if record.thread in self.thread_ids:
            self.note(f"{record.levelname.lower()}: {record.getMessage()}")

    def tail(self, lines: int = 40) -> str:
        return "\n".join(map(str, list(self._events)[-lines:]))

    def answered(self, name: str, context: RequestContext, request: Any, reply: Any) -> None:
        """Note that a request was answered; a reply of None means no response (acks=0)."""
        errors = sorted(_errors(getattr(reply, "response", reply))) if reply is not None else []
        if name == "InitProducerId" and request.transactional_id and not errors:
            self.owners[request.transactional_id] = context.client_id, context.client_host
        if errors or name not in ROUTINE:
            outcome = ", ".join(map(code_name, errors)) or "ok"
            self.note(f"{request_text(name, context, request)}: {outcome}")


def request_text(name: str, context: RequestContext, request: Any) -> str:
    """One line about a request."""
    shown = [
        f"{field}={value!r}" for field in _SHOWN_FIELDS if (value := getattr(request, field, None)) not in (None, "")
    ]
    topics = [entry for field in _TOPICS for entry in getattr(request, field, None) or ()]
    names = sorted({topic.name for topic in topics if getattr(topic, "name", None)})
    if names:
        shown.append(f"topics={','.join(names)}")
    return f"{name} v{context.api_version} from {context.client_id!r} {' '.join(shown)}".rstrip()


def code_name(code: int) -> str:
    """The name of an error code, or its number if it is unknown."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def _errors(value: Any) -> set[int]:
    """Every error code in a response except NONE."""
    found: set[int] = set()
    if isinstance(value, Value):
        for field in value._fields:
            inner = getattr(value, field)
            if field.endswith("error_code"):
                found.add(int(inner))
            elif isinstance(inner, list | Value):
                found |= _errors(inner)
    elif isinstance(value, list) and value and isinstance(value[0], Value):
        for entry in value:
            found |= _errors(entry)
    return found - {0}
