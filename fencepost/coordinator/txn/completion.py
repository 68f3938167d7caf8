"""From a Prepare record to Complete: the markers of decided transactions, written until every partition has its own."""

import logging
from collections.abc import Mapping

import trio

from fencepost.coordinator.ports import LogWriteFailed, MarkerWriter, Ticket
from fencepost.coordinator.txn import markers
from fencepost.coordinator.txn.commands import WriteMarkers
from fencepost.coordinator.txn.state import PrepareAbort, PrepareCommit
from fencepost.coordinator.txn.store import TxnShard, TxnStore
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

logger = logging.getLogger(__name__)

WRITTEN_UP_SECONDS = 0.02
"""So long after its markers a Complete record is in its log at the latest. A client that goes on at once has it written
on its way, and is not held up meanwhile by what nobody waits for."""


class _Completion:
    """One decided transaction on its way to Complete."""

    __slots__ = ("ended", "owed", "scope")

    def __init__(self, owed: frozenset[TopicPartition]) -> None:
        self.owed = owed
        """The partitions that lack their marker."""
        self.ended = trio.Event()
        self.scope = trio.CancelScope()


class Completions:
    """The decided transactions that still owe markers, each with a task of its own (rows T7, T8, T13).

    Where all is durable as soon as it is appended nothing has to be waited for: then there is no task either.
    Such a task goes on whatever becomes of the request behind it, and without end: the transaction is decided.
    """

    def __init__(self, store: TxnStore, writer: MarkerWriter) -> None:
        self._store = store
        self._writer = writer
        self._behind = trio.Event()
        self._under_way: dict[str, _Completion] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    def is_under_way(self, transactional_id: str) -> bool:
        """Whether its markers are being written."""
        return transactional_id in self._under_way

    def owed(self, transactional_id: str) -> frozenset[TopicPartition] | None:
        """The partitions that lack their marker; None where nothing is being completed."""
        completion = self._under_way.get(transactional_id)
        return None if completion is None else completion.owed

    def carry_out(self, nursery: trio.Nursery, duty: WriteMarkers, ticket: Ticket) -> None:
        """Do a Prepare record's duty, at once where nothing has to be waited for; what is left is begun."""
        owed = self._carried_out(duty, ticket)
        if owed is not None:
            self.begin(nursery, duty, ticket, owed)

    def begin(
        self, nursery: trio.Nursery, duty: WriteMarkers, ticket: Ticket, owed: frozenset[TopicPartition] | None = None
    ) -> None:
        """Start to write the markers of a Prepare record once its ticket is durable; all of them, or the `owed`."""
        assert duty.transactional_id not in self._under_way, f"{duty.transactional_id!r} is completed twice"
        completion = self._under_way[duty.transactional_id] = _Completion(duty.partitions if owed is None else owed)
        nursery.start_soon(self._complete, duty, ticket, completion)

    def stop(self, shard: TxnShard) -> None:
        """Write no more markers for the ids of a shard, which is unloaded; requests that wait for them go on."""
        for name in [name for name in self._under_way if self._store.runtime.find(name) is shard]:
            completion = self._under_way.pop(name)
            completion.scope.cancel()
            completion.ended.set()

    async def wait(self, transactional_id: str, deadline: float) -> bool:
        """Wait until the transaction under way has all its markers; False when the deadline (trio's) comes first.

        It may have them already: other tasks have run since a request met it in Prepare.
        """
        completion = self._under_way.get(transactional_id)
        if completion is None:
            is_owed = isinstance(self._store.state_of(transactional_id), PrepareCommit | PrepareAbort)
            assert not is_owed, f"{transactional_id!r} is in Prepare, and no task writes its markers"
            return True
        with trio.move_on_at(deadline):
            await completion.ended.wait()
        return completion.ended.is_set()

    def _carried_out(self, duty: WriteMarkers, ticket: Ticket) -> frozenset[TopicPartition] | None:
        """Go all the way if there is no wait on it: None when it is Complete, else the partitions left to be marked."""
        if not ticket.is_durable:
            return duty.partitions
        if duty.partitions:
            answers = self._writer.write_at_once(duty.marker, duty.partitions)
            owed = duty.partitions if answers is None else self._settle(duty.transactional_id, duty.partitions, answers)
            if owed:
                return owed
        self._finish(duty)
        return None

    async def _complete(self, duty: WriteMarkers, ticket: Ticket, completion: _Completion) -> None:
        """A Prepare record's duty: first it is durable, then every partition has its marker, then it is Complete."""
        name = duty.transactional_id
        with completion.scope:
            if await self._store.shard_of(name).settled(ticket):
                return  # it may be on the disk or not: the next load finds out, and writes the markers
            for seconds in markers.pauses(self._store.config):
                await self._write_owed(duty, completion)
                if not completion.owed:
                    break
                await trio.sleep(seconds)
            if self._under_way.get(name) is not completion:
                return  # stopped meanwhile: the broker that loads the shard next writes the markers again
            self._finish(duty)
            del self._under_way[name]
            completion.ended.set()

    def _finish(self, duty: WriteMarkers) -> None:
        """Every partition has its marker; that this is so need not be in the log before anybody is answered."""
        self._store.marked(duty)
        self._behind.set()

    async def write_up(self) -> None:
        """Append the records of what is complete soon after, until cancelled."""
        try:
            while True:
                await self._behind.wait()
                await trio.sleep(WRITTEN_UP_SECONDS)
                self._behind = trio.Event()
                for seconds in markers.pauses(self._store.config):
                    if self._caught_up():
                        break
                    await trio.sleep(seconds)
        finally:
            self._caught_up()

    def _caught_up(self) -> bool:
        try:
            self._store.catch_up()
        except LogWriteFailed as error:
            logger.error("the end of a transaction is not in its log yet: %s", error)
            return False
        return True

    async def _write_owed(self, duty: WriteMarkers, completion: _Completion) -> None:
        """One round of markers for the partitions that still lack one."""
        if completion.owed:
            answers = await self._writer.write_markers(duty.marker, completion.owed)
            completion.owed = self._settle(duty.transactional_id, completion.owed, answers)

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
