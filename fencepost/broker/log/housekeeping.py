"""The periodic upkeep of every log: retention, and expiry of idle producers."""

import logging

import trio

from fencepost.broker.log.directory import LogDirectory
from fencepost.broker.log.durability.sync_threads import FlushThreads
from fencepost.broker.log.durability.upkeep import done, syncing
from fencepost.broker.log.storage.store import CorruptLogFile, FlushFailed
from fencepost.broker.log.trimming import housekeeping

logger = logging.getLogger(__name__)


async def housekeep(logs: LogDirectory, now_ms: int, threads: FlushThreads | None = None) -> None:
    """Run retention and producer expiry of every log; the broker calls it about every minute.

    `threads` wait for the disk; without any this task does. An error of the disk is logged, and the next call tries
    again. For a failed fsync see `LogDirectory.lose`.
    """
    for tp in sorted(logs.partitions()):
        await trio.lowlevel.checkpoint()
        if tp in logs.offline():
            continue
        try:
            log = logs.get(tp)
            if log is not None:
                await done(housekeeping(log, now_ms), threads)
        except FlushFailed as error:
            log = logs.opened(tp)
            if log is None or logs.lose is None:
                raise
            logs.lose(log, error)
        except (OSError, CorruptLogFile) as error:
            logger.error("retention of %s failed, the broker will try again: %s", tp, error)
            if isinstance(error, OSError):
                logs.make_room(error)
    try:
        await done(syncing(logs.log_start_files()), threads)
    except OSError as error:
        logger.error("log start offsets of %s not written, the broker will try again: %s", logs.place, error)
