"""At most ten log lines a second for one cause; the others are counted, and one line says how many they were."""

import logging
import time
from collections.abc import Hashable

LINES_PER_SECOND = 10
CAUSES_MAX = 1000
UNLIMITED = "fencepost.audit"
"""The audit log has a line for every event."""


class _Window:
    """The lines of one cause in one second."""

    __slots__ = ("began", "count", "record")

    def __init__(self, began: float, record: logging.LogRecord) -> None:
        self.began = began
        self.count = 1
        self.record = record


class LimitedHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes log lines, but not thousands of the same kind: a client can cause them as fast as it connects.

    Lines have the same cause if they have the same logger, text and level, and errors of the same type.
    """

    def __init__(self, stream: object = None) -> None:
        super().__init__(stream)
        self._windows: dict[Hashable, _Window] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write or count the line. Before it come the counts of causes whose second is over."""
        if record.name.startswith(UNLIMITED):
            super().emit(record)
            return
        now = time.monotonic()
        cause = _cause(record)
        window = self._windows.get(cause)
        if window is not None and now - window.began < 1:
            window.count += 1
            if window.count > LINES_PER_SECOND:
                return
        else:
            self._end_windows(now)
            self._windows[cause] = _Window(now, record)
        super().emit(record)

    def close(self) -> None:
        self._end_windows(float("inf"))
        super().close()

    def _end_windows(self, now: float) -> None:
        if len(self._windows) > CAUSES_MAX:
            now = float("inf")
        for cause, window in list(self._windows.items()):
            if now - window.began >= 1:
                del self._windows[cause]
                if (left_out := window.count - LINES_PER_SECOND) > 0:
                    super().emit(_summary(window.record, left_out))


def _cause(record: logging.LogRecord) -> Hashable:
    args = record.args if isinstance(record.args, tuple) else ()
    errors = tuple(type(arg) for arg in args if isinstance(arg, BaseException))
    return record.name, record.levelno, record.msg if isinstance(record.msg, str) else type(record.msg), errors


def _summary(record: logging.LogRecord, left_out: int) -> logging.LogRecord:
    text = f"left out {left_out} more lines within a second like: {record.getMessage()}"
    return logging.LogRecord(record.name, record.levelno, record.pathname, record.lineno, text, None, None)
