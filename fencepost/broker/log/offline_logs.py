"""The logs that are damaged or whose flush failed: each is reported once, and not opened before the next start."""

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from fencepost.broker.log.storage.layout import ACCEPT_LOSS
from fencepost.broker.log.storage.store import CorruptLogFile, FlushFailed
from fencepost.protocol.topics import TopicPartition

_REMEDY = (
    f"see `fencepost verify`; restore it from a backup, or put an empty file {ACCEPT_LOSS} into the partition's"
    " directory, which you create if it is missing, to accept the loss"
)

logger = logging.getLogger(__name__)


class OfflineLogs:
    """The errors of the logs that could not be opened."""

    def __init__(self) -> None:
        self._errors: dict[TopicPartition, CorruptLogFile | FlushFailed] = {}

    def partitions(self) -> Collection[TopicPartition]:
        return self._errors.keys()

    def discard(self, tp: TopicPartition) -> None:
        """The partition was deleted, or its files were repaired."""
        self._errors.pop(tp, None)

    @contextmanager
    def opening(self, tp: TopicPartition) -> Iterator[None]:
        """Around the opening of a log. Raises its known error again."""
        known = self._errors.get(tp)
        if isinstance(known, CorruptLogFile):
            raise CorruptLogFile(known.place, known.position, known.why)
        if known is not None:
            raise FlushFailed(known.errno, known.strerror, known.filename)
        try:
            yield
        except CorruptLogFile as error:
            logger.error("%s is damaged and offline: %s; %s", tp, error, _REMEDY)
            self._errors[tp] = error
            raise
        except FlushFailed as error:
            logger.error("%s is offline until the next start, because a retried flush proves nothing: %s", tp, error)
            self._errors[tp] = error
            raise
