"""From a Prepare record to Complete: the markers of decided transactions, written until every partition has its own."""

import logging
from collections.abc import Mapping

import trio

from fencepost.coordinator.ports import AppendedMarkers, LogWriteFailed, MarkerWriter, Ticket
from fencepost.coordinator.txn import markers
from fencepost.coordinator.txn.commands import WriteMarkers
from fencepost.coordinator.txn.state import PrepareAbort, PrepareCommit
from fencepost.coordinator.txn.store import TxnShard, TxnStore
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

logger = logging.getLogger(__name__)

COMPLETE_DELAY_SECONDS = 0.02
"""A Complete record is appended at most this long after its markers. No request waits for it; the client's next request
may append it earlier, in one batch with its own record."""


class _Completion:
    """One decided transaction on its way to Complete."""

    __slots__ = ("appended", "ended", "pending", "scope")

    def __init__(self, pending: frozenset[TopicPartition], appended: AppendedMarkers | None) -> None:
        self.pending = pending
        """The partitions that lack their marker."""
        self.appended = appended
        """The markers, if they are in the same commit as the decision."""
        self.ended = trio.Event()
        self.scope = trio.CancelScope()


class Completions:
    """The decided transactions that still lack markers, each with its own task (rows T7, T8, T13).

    If every append is durable at once, nothing has to be waited for, and there is no task. A task outlives the request
    that started it and retries without end, because the transaction is decided.
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

    def pending(self, transactional_id: str) -> frozenset[TopicPartition] | None:
        """The partitions that lack their marker; None if no transaction of this id is being completed."""
        completion = self._under_way.get(transactional_id)
        return None if completion is None else completion.pending

    def carry_out(self, nursery: trio.Nursery, follow_up: WriteMarkers, ticket: Ticket) -> None:
        """Write the markers of a Prepare record, at once if nothing has to be waited for, else in a task."""
        follow_up = self._of_epoch(follow_up)
        pending = self._carry_out_at_once(follow_up, ticket)
        if pending is None:
            return
        appended = None if ticket.is_durable else self._writer.append_with_decision(follow_up.marker, pending)
        if appended is not None and not markers.settle(pending, appended.results).remaining:
            # The Complete record shares the commit, too: a crash leaves nothing to resume.
            self._store.marked(follow_up)
            if not self._catch_up():
                self._behind.set()
            self._start(nursery, follow_up, ticket, _Completion(pending, appended))
            return
        self.begin(nursery, follow_up, ticket, pending)

    def begin(
        self,
        nursery: trio.Nursery,
        follow_up: WriteMarkers,
        ticket: Ticket,
        pending: frozenset[TopicPartition] | None = None,
    ) -> None:
        """Start to write the markers of a Prepare record once its ticket is durable: all, or only the `pending`."""
        assert follow_up.transactional_id not in self._under_way, f"{follow_up.transactional_id!r} is completed twice"
        completion = _Completion(follow_up.partitions if pending is None else pending, None)
        self._start(nursery, self._of_epoch(follow_up), ticket, completion)

    def _of_epoch(self, follow_up: WriteMarkers) -> WriteMarkers:
        return markers.of_epoch(follow_up, self._store.shard_of(follow_up.transactional_id).log.leader_epoch)

    def _start(self, nursery: trio.Nursery, follow_up: WriteMarkers, ticket: Ticket, completion: _Completion) -> None:
        """A completion in one commit may follow another of the same id: the later one is durable last."""
        self._under_way[follow_up.transactional_id] = completion
        nursery.start_soon(self._complete, follow_up, ticket, completion)

    def stop(self, shard: TxnShard) -> None:
        """Write no more markers for the ids of a shard that is unloaded, and wake the requests that wait for them."""
        for name in [name for name in self._under_way if self._store.runtime.find(name) is shard]:
            completion = self._under_way.pop(name)
            completion.scope.cancel()
            completion.ended.set()

    async def wait(self, transactional_id: str, deadline: float) -> bool:
        """Wait until the transaction under way has all its markers; False if the deadline (trio's) comes first.

        It may have them already: other tasks may have run since a request found it in Prepare.
        """
        completion = self._under_way.get(transactional_id)
        if completion is None:
            is_prepared = isinstance(self._store.state_of(transactional_id), PrepareCommit | PrepareAbort)
            assert not is_prepared, f"{transactional_id!r} is in Prepare, and no task writes its markers"
            return True
        with trio.move_on_at(deadline):
            await completion.ended.wait()
        return completion.ended.is_set()

    def _carry_out_at_once(self, follow_up: WriteMarkers, ticket: Ticket) -> frozenset[TopicPartition] | None:
        """Write markers as far as possible without a wait; None if it is Complete, else the partitions left."""
        if not ticket.is_durable:
            return follow_up.partitions
        if follow_up.partitions:
            answers = self._writer.write_at_once(follow_up.marker, follow_up.partitions)
            pending = (
                follow_up.partitions
                if answers is None
                else self._settle(follow_up.transactional_id, follow_up.partitions, answers)
            )
            if pending:
                return pending
        self._finish(follow_up)
        return None

    async def _complete(self, follow_up: WriteMarkers, ticket: Ticket, completion: _Completion) -> None:
        """Wait until the Prepare record is durable, then write every partition's marker, then complete."""
        name = follow_up.transactional_id
        with completion.scope:
            if await self._store.shard_of(name).settled(ticket):
                return  # the record may be in the log or not: the next load finds out, and writes the markers
            if completion.appended is not None:
                answers = await completion.appended.settled()
                completion.pending = self._settle(name, completion.pending, answers)
            for seconds in markers.pauses(self._store.config):
                await self._write_pending(follow_up, completion)
                if not completion.pending:
                    break
                await trio.sleep(seconds)
            completion.ended.set()
            if self._under_way.get(name) is not completion:
                return  # stopped meanwhile: the broker that loads the shard next writes the markers again
            if completion.appended is None:
                self._finish(follow_up)
            del self._under_way[name]

    def _finish(self, follow_up: WriteMarkers) -> None:
        """Every partition has its marker. Replies need not wait until the log has the Complete record."""
        self._store.marked(follow_up)
        self._behind.set()

    async def append_completed(self) -> None:
        """Append the Complete records soon after their markers, until cancelled."""
        try:
            while True:
                await self._behind.wait()
                await trio.sleep(COMPLETE_DELAY_SECONDS)
                self._behind = trio.Event()
                for seconds in markers.pauses(self._store.config):
                    if self._catch_up():
                        break
                    await trio.sleep(seconds)
        finally:
            self._catch_up()

    def _catch_up(self) -> bool:
        try:
            self._store.catch_up()
        except LogWriteFailed as error:
            logger.error("Complete records of transactions could not be appended yet, the append is retried: %s", error)
            return False
        return True

    async def _write_pending(self, follow_up: WriteMarkers, completion: _Completion) -> None:
        """One round of markers for the partitions that still lack one."""
        if completion.pending:
            answers = await self._writer.write_markers(follow_up.marker, completion.pending)
            completion.pending = self._settle(follow_up.transactional_id, completion.pending, answers)

    def _settle(
        self, name: str, pending: frozenset[TopicPartition], answers: Mapping[TopicPartition, ErrorCode]
    ) -> frozenset[TopicPartition]:
        """The partitions that still lack their marker after this round."""
        outcome = markers.settle(pending, answers)
        for partition, error in outcome.overtaken.items():
            logger.error(
                "transactional id %r: another marker already ended its transaction on %s: %s",
                name,
                partition,
                error.name,
            )
        if outcome.remaining:
            logger.warning("transactional id %r: %d markers failed and are retried", name, len(outcome.remaining))
        return outcome.remaining
