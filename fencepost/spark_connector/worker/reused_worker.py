"""Spark's Python workers that live on from task to task: what they hold for good is kept out of the collector's way."""

from __future__ import annotations

import gc
import os

_REUSED = "SPARK_REUSE_WORKER"
"""Set by Spark in the environment of workers that it keeps (`spark.python.worker.reuse`), and of nothing else."""


def is_kept() -> bool:
    """Whether this process is a Python worker that Spark keeps for further tasks."""
    return _REUSED in os.environ


class ReusedWorker:
    """Counts what one worker is asked to do, and lets the collector forget once what was there before.

    Spark's daemon collects all garbage of a worker after each task, and by then a worker holds some 50,000 objects of
    modules: looking through them takes longer than reading 60,000 records. `settle` belongs before any work. At the
    second piece of work in a process all modules are there and the garbage of the first has just been collected, so
    what is frozen then (gc.freeze) is what stays anyway. Once only: whatever comes later is collected as ever.
    """

    def __init__(self) -> None:
        self._before = 0

    def settle(self) -> None:
        """Count a piece of work; at the second of a worker that Spark keeps, freeze what there is."""
        if not is_kept() or self._before > 1:
            return
        if self._before == 1:
            gc.freeze()
        self._before += 1


WORKER = ReusedWorker()
"""Of this process."""
