"""Excludes the permanent objects of a reused Python worker from garbage collection."""

from __future__ import annotations

import gc
import os

_REUSED = "SPARK_REUSE_WORKER"
"""Spark sets this variable only in workers that it reuses (`spark.python.worker.reuse`)."""


def is_reused() -> bool:
    return _REUSED in os.environ


class ReusedWorker:
    """Counts the tasks of this worker, and freezes its objects once (gc.freeze).

    Spark's daemon collects garbage after each task. A worker then holds about 50,000 objects of modules, and a full
    collection takes longer than reading 60,000 records. Call `settle` before each task. Before the second task all
    modules are imported and the first task's garbage is collected, so only permanent objects are frozen. Later objects
    are collected as usual.
    """

    def __init__(self) -> None:
        self._before = 0

    def settle(self) -> None:
        """Count a task. Before the second task of a reused worker, freeze the existing objects."""
        if not is_reused() or self._before > 1:
            return
        if self._before == 1:
            gc.freeze()
        self._before += 1


WORKER = ReusedWorker()
"""The one instance of this process."""
