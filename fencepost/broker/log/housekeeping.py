"""The periodic upkeep of every log: retention, and expiry of idle producers."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import trio

from fencepost.broker.log import trimming
from fencepost.broker.log.deletions import is_full_disk
from fencepost.broker.log.durability.sync_threads import FlushThreads
from fencepost.broker.log.durability.upkeep import done, syncing
from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.storage.store import FlushFailed
from fencepost.broker.log.upkeep_failures import RETENTION
from fencepost.protocol.topics import TopicPartition

logger = logging.getLogger(__name__)


async def housekeep(logs: LogManager, now_ms: int, threads: FlushThreads | None = None) -> None:
    """Run retention and producer expiry of every log; the broker calls it about every minute.

    The new log starts of all logs are durable before the segments below them are deleted. `threads` wait for the disk;
    without any this task does. If a log's upkeep fails, the others go on, and the next call tries again. For a failed
    fsync see `LogManager.lose`.
    """
    logs.check_place()
    due: list[PartitionLog] = []
    for tp in sorted(logs.partitions()):
        await trio.lowlevel.checkpoint()
        if tp in logs.offline():
            continue
        with _upkeep_of(logs, tp):
            log = logs.get(tp)
            if log is not None:
                is_due = trimming.housekeep(log, now_ms)
                log.failed_upkeep.pop(RETENTION, None)
                if is_due:
                    due.append(log)
    if await _log_starts_allow_deletions(logs, threads):
        for log in due:
            await trio.lowlevel.checkpoint()
            with _upkeep_of(logs, log.tp):
                await done(trimming.deleting_segments(log, now_ms), threads)


async def _log_starts_allow_deletions(logs: LogManager, threads: FlushThreads | None) -> bool:
    """Write the log starts. Returns whether the segments below them may be deleted."""
    try:
        await done(syncing(logs.log_start_files()), threads)
    except OSError as error:  # also a failed flush: the next call writes the whole file again
        logs.upkeep.note("the write of log start offsets", error)
        if not is_full_disk(error):
            return False
        try:
            logs.kept.doubt_log_starts()
        except OSError as failure:
            logger.error("log start offsets of %s not removed, the broker will try again: %s", logs.place, failure)
            return False
    return True


@contextmanager
def _upkeep_of(logs: LogManager, tp: TopicPartition) -> Iterator[None]:
    try:
        with logs.upkeep.guard(RETENTION, failed=partial(_failed, logs, tp)):
            yield
    except FlushFailed as error:
        log = logs.opened(tp)
        if log is None or logs.lose is None:
            raise
        logs.lose(log, error)


def _failed(logs: LogManager, tp: TopicPartition, error: Exception) -> None:
    if logs.upkeep.ends_process(error):
        raise error
    logs.upkeep.note(RETENTION, error, logs.opened(tp), tp)
    logs.make_room(error)
