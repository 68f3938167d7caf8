"""What every log needs every minute or so: retention, and forgetting idle producers."""

import logging

import trio

from fencepost.broker.log.directory import LogDirectory
from fencepost.broker.log.durability.sync_threads import FlushThreads
from fencepost.broker.log.durability.upkeep import done, syncing
from fencepost.broker.log.storage.store import CorruptLogFile, FlushFailed
from fencepost.broker.log.trimming import housekeeping

logger = logging.getLogger(__name__)


async def housekeep(logs: LogDirectory, now_ms: int, threads: FlushThreads | None = None) -> None:
    """Retention and producer expiry of every log; call it every minute or so.

    `threads` wait for the disk; without any it is done at once. What the disk refuses is logged, and tried again the
    next time. After a failed fsync see `LogDirectory.lose`.
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
            logger.error("upkeep of %s failed: %s", tp, error)
            if isinstance(error, OSError):
                logs.make_room(error)
    try:
        await done(syncing(logs.log_start_files()), threads)
    except OSError as error:
        logger.error("log starts of %s not written: %s", logs.place, error)
