"""Reports the progress of Spark's jobs to a callback."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

_POLL_SECONDS = 0.2
Advance = Callable[[int, int], None]


@contextmanager
def watching(spark: Any, advance: Advance) -> Iterator[None]:
    """While the block runs Spark jobs, call `advance(finished tasks, all tasks)` several times a second."""
    done = threading.Event()
    tracker = spark.sparkContext.statusTracker()
    began = set(tracker.getJobIdsForGroup(None))

    def look() -> None:
        while not done.wait(_POLL_SECONDS):
            advance(*_tasks(tracker, set(tracker.getJobIdsForGroup(None)) - began))

    thread = threading.Thread(target=look, name="fencepost-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def running_tasks(spark: Any) -> tuple[int, int]:
    tracker = spark.sparkContext.statusTracker()
    return _tasks(tracker, tracker.getActiveJobsIds())


def _tasks(tracker: Any, jobs: Iterable[int]) -> tuple[int, int]:
    finished = total = 0
    for job in jobs:
        info = tracker.getJobInfo(job)
        for stage_id in () if info is None else info.stageIds:
            stage = tracker.getStageInfo(stage_id)
            if stage is not None:
                finished += stage.numCompletedTasks
                total += stage.numTasks
    return finished, total
