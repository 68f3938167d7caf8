"""From a Prepare record to Complete: the markers of decided transactions, written until every partition has its own."""

import logging
from collections.abc import Mapping

import trio

from fencepost.coordinator.ports import LogWriteFailed, MarkerWriter
from fencepost.coordinator.txn import markers
from fencepost.coordinator.txn.books import Books
from fencepost.coordinator.txn.commands import WriteMarkers
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

logger = logging.getLogger(__name__)

WRITTEN_UP_SECONDS = 0.02
"""So long after its markers a Complete record is in its log at the latest. A client that goes on at once has it written
on its way, and is not held up meanwhile by what nobody waits for."""


class Completions:
    """The decided transactions that still owe markers, each with a task of its own (rows T7, T8, T13).

    Where all is durable as soon as it is appended nothing has to be waited for: then there is no task either.
    Such a task goes on whatever becomes of the request behind it, and without end: the transaction is decided.
    """

    def __init__(self, books: Books, writer: MarkerWriter) -> None:
        self._books = books
        self._writer = writer
        self._behind = trio.Event()
        self._events: dict[str, trio.Event] = {}
        self._owed: dict[str, frozenset[TopicPartition]] = {}

    def __len__(self) -> int:
        return len(self._events)

    def is_under_way(self, transactional_id: str) -> bool:
        """Whether its markers are being written."""
        return transactional_id in self._events

    def owed(self, transactional_id: str) -> frozenset[TopicPartition] | None:
        """The partitions that lack their marker; None where nothing is being completed."""
        return self._owed.get(transactional_id)

    def carry_out(self, nursery: trio.Nursery, duty: WriteMarkers, end_offset: int) -> None:
        """Do a Prepare record's duty, at once where nothing has to be waited for; what is left is begun."""
        owed = self._carried_out(duty, end_offset)
        if owed is not None:
            self.begin(nursery, duty, end_offset, owed)

    def begin(
        self, nursery: trio.Nursery, duty: WriteMarkers, end_offset: int, owed: frozenset[TopicPartition] | None = None
    ) -> None:
        """Start to write the markers of a Prepare record that is durable below `end_offset`; of all or the `owed`."""
        assert duty.transactional_id not in self._events, f"{duty.transactional_id!r} is completed twice"
        self._events[duty.transactional_id] = trio.Event()
        self._owed[duty.transactional_id] = duty.partitions if owed is None else owed
        nursery.start_soon(self._complete, duty, end_offset)

    async def wait(self, transactional_id: str, deadline: float, just_decided: bool) -> bool:
        """Wait until the transaction under way has all its markers; False when the deadline (trio's) comes first.

        Only one that was `just_decided` may be complete already, without ever having been under way.
        """
        event = self._events.get(transactional_id)
        if event is None:
            assert just_decided, f"{transactional_id!r} is in Prepare, and nobody writes its markers"
            return True
        with trio.move_on_at(deadline):
            await event.wait()
        return event.is_set()

    def _carried_out(self, duty: WriteMarkers, end_offset: int) -> frozenset[TopicPartition] | None:
        """Go all the way if there is no wait on it: None when it is Complete, else the partitions left to be marked."""
        name = duty.transactional_id
        if not self._books.is_settled(name, end_offset):
            return duty.partitions
        if duty.partitions:
            answers = self._writer.write_at_once(duty.marker, duty.partitions)
            remaining = duty.partitions if answers is None else self._settle(name, duty.partitions, answers)
            if remaining:
                return remaining
        self._finish(duty)
        return None

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
        self._finish(duty)
        del self._owed[name]
        self._events.pop(name).set()

    def _finish(self, duty: WriteMarkers) -> None:
        """Every partition has its marker; that this is so need not be in the log before anybody is answered."""
        self._books.marked(duty)
        self._behind.set()

    async def write_up(self) -> None:
        """Append the records of what is complete soon after, until cancelled."""
        try:
            while True:
                await self._behind.wait()
                await trio.sleep(WRITTEN_UP_SECONDS)
                self._behind = trio.Event()
                for seconds in markers.pauses(self._books.config):
                    if self._caught_up():
                        break
                    await trio.sleep(seconds)
        finally:
            self._caught_up()

    def _caught_up(self) -> bool:
        try:
            self._books.catch_up()
        except LogWriteFailed as error:
            logger.error("the end of a transaction is not in its log yet: %s", error)
            return False
        return True

    async def _write_owed(self, duty: WriteMarkers) -> None:
        """One round of markers for the partitions that still lack one."""
        name = duty.transactional_id
        owed = self._owed[name]
        if not owed:
            return
        answers = await self._writer.write_markers(duty.marker, owed)
        self._owed[name] = self._settle(name, owed, answers)

    def _settle(
        self, name: str, owed: frozenset[TopicPartition], answers: Mapping[TopicPartition, ErrorCode]
    ) -> frozenset[TopicPartition]:
        """What is still owed after this round."""
        outcome = markers.settle(owed, answers)
        for partition, error in outcome.overtaken.items():
            logger.error("transactional id %r: %s was ended by somebody else: %s", name, partition, error.name)
        if outcome.remaining:
            logger.warning("transactional id %r: %d markers to be tried again", name, len(outcome.remaining))
        return outcome.remaining
