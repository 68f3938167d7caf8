"""Keep what Spark's processes print off the terminal, unless a user asks for it or must see it."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Thread
from typing import Any

LOST_RECORDS = "(failOnDataLoss=false)"
"""Ends each of the connector's warnings that name records which a query could not read any more."""
_LAST_LINES = 40
_DRAIN_SECONDS = 2.0


def command_session(name: str, *, master: str | None, conf: Mapping[str, str], verbose: bool) -> Any:
    """The session of a command. Without `verbose`, Spark's processes do not print on this terminal.

    A log level does not silence them: the JVM greets, and a Python worker prints the trace of its own end if Spark
    drops its connection. Warnings about lost records are still printed. If Spark does not start, its last lines are.
    """
    from fencepost.spark_pipelines import spark_session

    level = {"spark.log.level": "WARN" if verbose else "OFF"}
    if verbose:
        return spark_session(name, master=master, conf={**level, **conf})
    with child_processes_silent():
        return spark_session(name, master=master, conf={**level, **conf})


@contextmanager
def child_processes_silent() -> Iterator[None]:
    """Processes started inside keep a pipe as their standard error, for as long as they live."""
    terminal = sys.stderr
    reading, writing = os.pipe()
    lines: deque[str] = deque(maxlen=_LAST_LINES)
    relay = Thread(target=_relay, args=(reading, lines, terminal), name="stderr of Spark", daemon=True)
    relay.start()
    own = os.dup(2)
    os.dup2(writing, 2)
    os.close(writing)
    try:
        try:
            yield
        finally:
            os.dup2(own, 2)
            os.close(own)
    except BaseException:
        relay.join(_DRAIN_SECONDS)
        terminal.writelines(lines)
        raise


def _relay(reading: int, lines: deque[str], terminal: Any) -> None:
    """Read to the end of the last process, and pass on what a user must see."""
    with open(reading, encoding="utf-8", errors="replace") as printed:
        for line in printed:
            lines.append(line)
            if LOST_RECORDS in line:
                terminal.write(line)
                terminal.flush()
