"""The format of log lines: text for people (time, level, what, key=value), or one JSON object a line for machines."""

import json
import logging
import sys
import time
from functools import lru_cache

from fencepost.cli.log_limit import LimitedHandler

PEOPLE, MACHINES = "text", "json"
FORMATS = (PEOPLE, MACHINES)
LEVELS = ("debug", "info", "warning", "error")
TEXT_MAX = 2000


_core: list[int] = []
"""The number of the core that this process serves, if it is one of several."""


def name_core(number: int) -> None:
    """Name the core in every line of this process."""
    _core[:] = [number]


class TextFormatter(logging.Formatter):
    """`2026-11-21 03:44:12.123 WARNING what happened key=value`; a line never holds another one's beginning."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and a traceback under it if there is one."""
        seconds = _to_the_second(int(record.created))
        core = f"core {_core[0]}: " if _core else ""
        line = f"{seconds}.{int(record.msecs):03d} {record.levelname:<7} {core}{_one_line(record.getMessage())}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object with time, level, logger, message and, if there is one, the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _one_line(record.getMessage()),
            **({"core": _core[0]} if _core else {}),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def configure_logging(level: str, format_name: str) -> None:
    """Send the log of this process to standard error."""
    handler = LimitedHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if format_name == MACHINES else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # No format here shows where a line was written, or by which thread. Finding that out is a good part of the cost.
    logging._srcfile = None  # as logging's own guide has it, under "Optimization"
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root.setLevel(level.upper())


@lru_cache(maxsize=1)
def _to_the_second(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _one_line(text: str) -> str:
    """Escape control characters, and bound the length: the text may hold names and ids from clients."""
    shown = text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
    return shown if len(shown) <= TEXT_MAX else shown[:TEXT_MAX] + "..."
