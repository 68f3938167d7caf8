"""The owner's side of proposed compactions: it checks them against what it knows, and commits or refuses them."""

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

import trio

from fencepost.broker.cluster.commit.shared_log import SharedLog
from fencepost.broker.cluster.commit.writer import Writer
from fencepost.broker.cluster.engine import Changed, ClaimLost, Engine, Fenced, Proposed, StoreUnavailable, slot_of
from fencepost.broker.cluster.growth.proposals import LogFacts, Proposal, Refused, decode, pending
from fencepost.broker.cluster.growth.row_cleaning import CleanedPart, RowCleaner
from fencepost.broker.log.partition import PartitionLog
from fencepost.coordinator.metadata.topic_names import is_internal

COMMITTED = "committed"
RETRY_SECONDS = 0.5

logger = logging.getLogger(__name__)


class Acceptor:
    """Answers the proposals of the logs that this broker owns."""

    def __init__(
        self,
        engine: Engine,
        writer: Writer,
        cleaner: RowCleaner,
        logs: Callable[[], Collection[PartitionLog]],
        reserve: Callable[[SharedLog | None], None],
    ) -> None:
        """`reserve` names the log whose rows nothing else may change, or None."""
        self._engine = engine
        self._writer = writer
        self._cleaner = cleaner
        self._logs = logs
        self._reserve = reserve

    async def answer(self) -> None:
        """Answer all proposals. Those of logs that are not open yet wait for the next call."""
        try:
            for proposed in await trio.to_thread.run_sync(self._engine.proposed):
                log = next((log for log in self._logs() if _log_id(log) == proposed.log), None)
                if log is not None:
                    await self._decide(log, proposed)
                elif not await trio.to_thread.run_sync(self._exists, proposed.log):
                    await self._store(proposed, "the partition was deleted")
        except StoreUnavailable as error:
            logger.warning("proposed compactions are not answered now, the broker tries again later: %s", error)
        except Fenced:
            logger.info("proposed compactions are not answered: this broker is not active any more")

    async def _decide(self, log: PartitionLog, proposed: Proposed) -> None:
        shared = log.segments
        assert isinstance(shared, SharedLog)
        with self._reserved(shared):
            try:
                if is_internal(log.tp.topic):
                    raise Refused("the topic is internal: only brokers compact it")
                proposal = decode(proposed.log, proposed.value)
                await self._commit(log, shared, proposal)
            except (Refused, Changed, ClaimLost) as error:
                logger.warning("the proposed compaction %d of %s is refused: %s", proposed.number, log.tp, error)
                await self._store(proposed, str(error))
                return
        logger.info("committed proposal=%d partition=%s to_offset=%d", proposed.number, log.tp, proposal.cleaned_to)
        await self._store(proposed, COMMITTED)

    async def _commit(self, log: PartitionLog, shared: SharedLog, proposal: Proposal) -> None:
        for replacement in pending(proposal, _facts(log, shared)):
            try:
                part = await trio.to_thread.run_sync(self._cleaner.replace, replacement)
            except (Changed, StoreUnavailable, Fenced, ClaimLost):
                await self._read_again(shared, replacement.start, replacement.end)
                raise
            _apply(shared, part)
        first = proposal.read[0][0]
        await trio.to_thread.run_sync(self._cleaner.note, shared.log_id, first, proposal.cleaned_to)
        shared.cleaned_to = max(shared.cleaned_to, proposal.cleaned_to)

    async def _read_again(self, shared: SharedLog, start: int, end: int) -> None:
        """Follow the database, whatever became of a replacement."""
        while not self._writer.fenced:
            try:
                part = await trio.to_thread.run_sync(self._cleaner.read, shared.log_id, start, end)
            except StoreUnavailable as error:
                logger.debug("the rows of log %d cannot be read: %s", shared.log_id, error)
                await trio.sleep(RETRY_SECONDS)
            else:
                _apply(shared, part)
                return

    async def _store(self, proposed: Proposed, answer: str) -> None:
        await trio.to_thread.run_sync(self._engine.answer, self._writer.identity, proposed.number, answer)

    def _exists(self, log: int) -> bool:
        return any(head.log == log for head in self._engine.heads([slot_of(log)]))

    @contextmanager
    def _reserved(self, shared: SharedLog) -> Iterator[None]:
        self._reserve(shared)
        try:
            yield
        finally:
            self._reserve(None)


def _log_id(log: PartitionLog) -> int | None:
    shared = log.segments
    return shared.log_id if isinstance(shared, SharedLog) and shared.is_open else None


def _facts(log: PartitionLog, shared: SharedLog) -> LogFacts:
    index = shared.index
    return LogFacts(
        rows=list(index.rows),
        sealed_to=min(index.folded_to, log.last_stable_offset),
        compacted=log.config.compacted,
        producers=list(log.producers.entries()),
        aborted=index.aborted_between,
    )


def _apply(shared: SharedLog, part: CleanedPart) -> None:
    if shared.is_open:
        shared.compacted(part.start, part.end, part.rows, part.aborted)
