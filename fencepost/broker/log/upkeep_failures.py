"""What happens when upkeep fails: one log's cleaning or retention, a checkpoint, a sweep. The broker and others go on.

Kafka does the same for its cleaner: an exception marks the partition uncleanable (LogCleanerManager), and the cleaner
continues. Only two kinds of failure end the process: a failed flush, by `log.failure.policy`, and in a cluster the loss
of this broker's place.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from fencepost.broker.log.storage.store import CorruptLogFile, FlushFailed
from fencepost.protocol.topics import TopicPartition

COMPACTION = "compaction"
RETENTION = "retention"
CHECKPOINT = "checkpoint"
OPENING = "the opening of a log"

logger = logging.getLogger(__name__)


class MarkedLog(Protocol):
    """What a log keeps of its failures."""

    tp: TopicPartition
    failed_upkeep: dict[str, str]


class UpkeepFailures:
    """The failures of one broker's upkeep: logged, counted by the kind of work, and marked on the log."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """Failures since the start by work."""
        self.ending: tuple[type[Exception], ...] = (FlushFailed,)
        """Errors that the guard lets pass, alone or in a group: they end the process."""

    @contextmanager
    def guard(
        self, work: str, log: MarkedLog | None = None, failed: Callable[[Exception], None] | None = None
    ) -> Iterator[None]:
        """Note an exception of the block and go on behind it. If it is about one log, a success removes the mark.

        `failed` gets every exception instead, and may raise it.
        """
        try:
            yield
        except Exception as error:
            if failed is not None:
                failed(error)
            elif self.ends_process(error):
                raise
            else:
                self.note(work, error, log)
        else:
            if log is not None and log.failed_upkeep:
                log.failed_upkeep.pop(work, None)

    def note(self, work: str, error: Exception, log: MarkedLog | None = None, tp: TopicPartition | None = None) -> None:
        """Log, count and mark a failure. `tp` names a partition whose log is not open."""
        self.mark(work, error, log)
        tp = tp if log is None else log.tp
        where = "" if tp is None else f" partition={tp}"
        logger.error(
            "%s failed, the broker tries again%s cause=%s", work, where, describe(error), exc_info=traced(error)
        )

    def mark(self, work: str, error: Exception, log: MarkedLog | None = None) -> None:
        """Count and mark a failure that the caller logs."""
        self.counts[work] += 1
        if log is not None:
            log.failed_upkeep[work] = describe(error)

    def ends_process(self, error: Exception) -> bool:
        """Whether the process must not continue after this error."""
        if isinstance(error, ExceptionGroup):
            return any(self.ends_process(one) for one in error.exceptions)
        return isinstance(error, self.ending)


def describe(error: Exception) -> str:
    """The text of an error, with its type unless it is of the disk or of a damaged file."""
    return str(error) if traced(error) is None else f"{type(error).__name__}: {error}"


def traced(error: Exception) -> Exception | None:
    """The error, if its traceback should be logged: it is not of the disk or of a damaged file."""
    return None if isinstance(error, OSError | CorruptLogFile) else error
