"""From a Prepare record to Complete: the markers of decided transactions, written until every partition has its own."""

import logging
from collections.abc import Callable

import trio

from fencepost.coordinator.ports import LogWriteFailed, MarkerWriter
from fencepost.coordinator.txn import commands, markers
from fencepost.coordinator.txn.books import Books
from fencepost.coordinator.txn.commands import WriteMarkers
from fencepost.coordinator.txn.state import CompleteAbort, CompleteCommit, Completed
from fencepost.protocol.topics import TopicPartition

logger = logging.getLogger(__name__)


class Completions:
    """The decided transactions that still owe markers, each with a task of its own (rows T7, T8, T13).

    Such a task goes on whatever becomes of the request behind it, and without end: the transaction is decided. `ended`
    is called for each that is complete, with its duty and the state it is in now.
    """

    def __init__(self, books: Books, writer: MarkerWriter, ended: Callable[[WriteMarkers, Completed], None]) -> None:
        self._books = books
        self._writer = writer
        self._ended = ended
        self._events: dict[str, trio.Event] = {}
        self._owed: dict[str, frozenset[TopicPartition]] = {}

    def __len__(self) -> int:
        return len(self._events)

    def owed(self, transactional_id: str) -> frozenset[TopicPartition] | None:
        """The partitions that lack their marker; None where nothing is being completed."""
        return self._owed.get(transactional_id)

    def begin(self, nursery: trio.Nursery, duty: WriteMarkers, end_offset: int) -> None:
        """Start to write the markers of a Prepare record that is durable below `end_offset`."""
        assert duty.transactional_id not in self._events, f"{duty.transactional_id!r} is completed twice"
        self._events[duty.transactional_id] = trio.Event()
        self._owed[duty.transactional_id] = duty.partitions
        nursery.start_soon(self._complete, duty, end_offset)

    async def wait(self, transactional_id: str, deadline: float) -> bool:
        """Wait until the transaction under way has all its markers; False when the deadline (trio's) comes first."""
        event = self._events[transactional_id]
        with trio.move_on_at(deadline):
            await event.wait()
        return event.is_set()

    async def _complete(self, duty: WriteMarkers, end_offset: int) -> None:
        """A Prepare record's duty: first it is durable, then every partition has its marker, then it is Complete."""
        name = duty.transactional_id
        if await self._books.shard_of(name).settled(end_offset):
            return  # nobody knows whether it is on the disk: the next start finds out, and writes the markers
        for seconds in markers.pauses(self._books.config):
            await self._write_owed(duty)
            if not self._owed[name]:
                break
            await trio.sleep(seconds)
        for seconds in markers.pauses(self._books.config):
            try:
                decision, _ = self._books.decide(name, commands.Complete())
            except LogWriteFailed as error:
                logger.error("transactional id %r: its completion could not be written: %s", name, error)
                await trio.sleep(seconds)
            else:
                state = decision.log[0].state
                assert isinstance(state, CompleteCommit | CompleteAbort)
                self._ended(duty, state)
                break
        del self._owed[name]
        self._events.pop(name).set()

    async def _write_owed(self, duty: WriteMarkers) -> None:
        """One round of markers for the partitions that still lack one."""
        name = duty.transactional_id
        owed = self._owed[name]
        if not owed:
            return
        answers = await self._writer.write_markers(
            duty.producer_id, duty.epoch, duty.commit, markers.COORDINATOR_EPOCH, duty.transaction_version, owed
        )
        outcome = markers.settle(owed, answers)
        self._owed[name] = outcome.remaining
        for partition, error in outcome.overtaken.items():
            logger.error("transactional id %r: %s was ended by somebody else: %s", name, partition, error.name)
        if outcome.remaining:
            logger.warning("transactional id %r: %d markers to be tried again", name, len(outcome.remaining))
