"""A pipeline's command as a process of its own, killed with 9 as soon as it has done something.

Spark gives the Python worker of a stream ten seconds to start, and there is no setting for it. Where a busy machine
takes longer the command, or the query, ends with an error, and is started again: that it may be is what a pipeline
promises anyway.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from tests.spark.conftest import ROOT

DEADLINE_SECONDS = 300
SLOW_WORKER = (
    "Python worker failed to connect back",
    "Timed out while waiting for the Python worker to connect back",
    "CANNOT_OPEN_SOCKET",
)
"""What Spark, the cause it names, or the worker itself says; a query's error has the first one only."""
SLOW_STARTS_MAX = 5
_LOOK_SECONDS = 0.05
T = TypeVar("T")


def patiently(work: Callable[[], T]) -> T:
    """What `work` returns, which starts a query; it is called again where Spark did not wait for a Python worker."""
    for _ in range(SLOW_STARTS_MAX):
        try:
            return work()
        except Exception as error:
            if not any(text in str(error) for text in SLOW_WORKER):
                raise
    return work()


def kill_when(words: Sequence[str], log: Path, has_begun: Callable[[], object]) -> None:
    """Run `fencepost WORDS`, and kill it with all its processes once `has_begun()`; it may have ended by then."""
    command = [sys.executable, "-m", "fencepost", *words]
    until = time.monotonic() + DEADLINE_SECONDS
    process = _started(command, log)
    try:
        while not has_begun():
            if process.poll() is not None:
                told = log.read_text()
                if process.returncode == 0:
                    assert has_begun(), told
                    return
                assert any(text in told for text in SLOW_WORKER), told
                process = _started(command, log)
            assert time.monotonic() < until, log.read_text()
            time.sleep(_LOOK_SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _started(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
