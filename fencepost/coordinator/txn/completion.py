"""From a Prepare record to Complete: the markers of decided transactions, written until every partition has its own."""

import logging
from collections.abc import Mapping

import trio

from fencepost.coordinator.ports import AppendedMarkers, Clock, LogWriteFailed, MarkerWriter, Ticket
from fencepost.coordinator.txn import machine
from fencepost.coordinator.txn.commands import Complete
from fencepost.coordinator.txn.config import TxnConfig
from fencepost.coordinator.txn.fencing_history import FencingHistory
from fencepost.coordinator.txn.ids import TxnShard
from fencepost.coordinator.txn.state import (
    CompleteAbort,
    CompleteCommit,
    PrepareAbort,
    PrepareCommit,
    Prepared,
    marker_of,
)
from fencepost.coordinator.txn.tallies import Tallies
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

logger = logging.getLogger(__name__)

COMPLETE_DELAY_SECONDS = 0.02
"""A Complete record is appended at most this long after its markers. No request waits for it; the client's next request
may append it earlier, in one batch with its own record."""

OVERTAKEN = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
"""A marker with a higher epoch ended the partition's transaction (an operator's WriteTxnMarkers)."""
NO_MORE_MARKERS = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, *OVERTAKEN)


def lacking(
    partitions: frozenset[TopicPartition], answers: Mapping[TopicPartition, ErrorCode]
) -> frozenset[TopicPartition]:
    """The partitions that still lack their marker after a round. One without an answer does.

    A partition that no longer exists needs no marker. After one of `OVERTAKEN` Kafka gives up the whole transaction,
    and its id hangs in Prepare; here only that partition is left out. All other errors (storage, replicas, leadership)
    may pass, so they are retried without end (row T8).
    """
    return frozenset(partition for partition in partitions if answers.get(partition) not in NO_MORE_MARKERS)


class _Owed:
    """The markers of one decided transaction."""

    __slots__ = ("appended", "ended", "is_complete", "marker", "name", "pending", "scope", "shard")

    def __init__(self, shard: TxnShard, name: str, state: Prepared) -> None:
        self.shard = shard
        self.name = name
        self.marker = marker_of(state, shard.log.leader_epoch)
        self.pending = state.partitions
        """The partitions that lack their marker."""
        self.appended: AppendedMarkers | None = None
        """The markers, if they were appended with the decision."""
        self.is_complete = False
        self.ended = trio.Event()
        self.scope = trio.CancelScope()


class Completion:
    """The decided transactions that still lack markers, each with its own task (rows T7, T8, T13).

    If every append is durable at once, nothing has to be waited for, and there is no task. A task outlives the request
    that started it and retries without end, because the transaction is decided.
    """

    def __init__(
        self,
        writer: MarkerWriter,
        clock: Clock,
        config: TxnConfig,
        history: FencingHistory,
        tallies: Tallies,
    ) -> None:
        self.writer = writer
        self._clock = clock
        self._config = config
        self._history = history
        self._tallies = tallies
        self.nursery: trio.Nursery | None = None
        """Where the tasks run; None while the coordinator serves no requests."""
        self._under_way: dict[str, _Owed] = {}
        self._behind: dict[TxnShard, None] = {}
        """Shards with Complete records that are not appended yet."""
        self._some_behind = trio.Event()

    def __len__(self) -> int:
        return len(self._under_way)

    def is_under_way(self, transactional_id: str) -> bool:
        """Whether its markers are being written."""
        return transactional_id in self._under_way

    def pending(self, transactional_id: str) -> frozenset[TopicPartition] | None:
        """The partitions that lack their marker; None if no transaction of this id is being completed."""
        owed = self._under_way.get(transactional_id)
        return None if owed is None else owed.pending

    async def wait(self, shard: TxnShard, transactional_id: str, deadline: float) -> bool:
        """Wait until the transaction under way has all its markers; False if the deadline (trio's) comes first.

        It may have them already: other tasks may have run since a request found it in Prepare.
        """
        owed = self._under_way.get(transactional_id)
        if owed is None:
            is_prepared = isinstance(shard.state.state_of(transactional_id), PrepareCommit | PrepareAbort)
            assert not is_prepared, f"{transactional_id!r} is in Prepare, and no task writes its markers"
            return True
        with trio.move_on_at(deadline):
            await owed.ended.wait()
        return owed.ended.is_set()

    # Begin and end

    def begin(self, shard: TxnShard, name: str, state: Prepared, ticket: Ticket, *, may_be_first: bool) -> None:
        """Write the markers of a new Prepare record, at once if nothing has to be waited for, else in a task.

        `may_be_first`: a crash may keep a marker and lose the record, because `Doubts` then decides the same again.
        """
        owed = _Owed(shard, name, state)
        is_durable = ticket.is_durable
        owed.appended = appended = self.writer.append_with_decision(
            owed.marker, owed.pending, is_durable or may_be_first
        )
        if appended is not None:
            if is_durable:
                if (results := appended.settled_now()) is not None:
                    owed.appended = None
                    self._settle(owed, results)
                    if not owed.pending:
                        self._complete(owed)
                        return
            elif not appended.in_one_commit:
                ticket.request()  # in the round of its markers
            elif not lacking(owed.pending, appended.results):
                # The Complete record shares the commit, too: a crash leaves nothing to resume.
                self._complete(owed)
                self._catch_up()
        self._start(owed, ticket)

    def resume(self, shard: TxnShard, name: str, state: Prepared) -> None:
        """Write the markers of a Prepare record that was loaded, in a task."""
        self._start(_Owed(shard, name, state), shard.log.newest)

    def _start(self, owed: _Owed, ticket: Ticket) -> None:
        """Of two completions of one id, both in one commit with their decision, the later one is durable last."""
        assert owed.is_complete or owed.name not in self._under_way, f"{owed.name!r} is completed twice"
        assert self.nursery is not None
        self._under_way[owed.name] = owed
        self.nursery.start_soon(self._write_all, owed, ticket)

    def stop(self, shard: TxnShard) -> None:
        """Write nothing more for a shard that is unloaded, and wake the requests that wait for its markers.

        The next load completes its transactions again, from their Prepare records.
        """
        self._behind.pop(shard, None)
        for owed in [owed for owed in self._under_way.values() if owed.shard is shard]:
            del self._under_way[owed.name]
            owed.scope.cancel()
            owed.ended.set()

    # Markers

    async def _write_all(self, owed: _Owed, ticket: Ticket) -> None:
        """Wait until the Prepare record is durable, then until every partition has its marker, then complete."""
        with owed.scope:
            if await owed.shard.settled(ticket):
                return  # the record may be in the log or not: the next load finds out, and writes the markers
            if owed.appended is not None:
                self._settle(owed, await owed.appended.settled())
            for seconds in self._config.marker_pauses():
                if owed.pending:
                    self._settle(owed, await self.writer.write_markers(owed.marker, owed.pending))
                if not owed.pending:
                    break
                await trio.sleep(seconds)
            owed.ended.set()
            if self._under_way.get(owed.name) is not owed:
                return  # stopped meanwhile: the broker that loads the shard next writes the markers again
            if not owed.is_complete:
                self._complete(owed)
            del self._under_way[owed.name]

    def _settle(self, owed: _Owed, answers: Mapping[TopicPartition, ErrorCode]) -> None:
        """Note which partitions still lack their marker after a round."""
        for partition in owed.pending:
            if (error := answers.get(partition)) in OVERTAKEN:
                logger.error(
                    "transactional id %r: another marker already ended its transaction on %s: %s",
                    owed.name,
                    partition,
                    error.name,
                )
        owed.pending = lacking(owed.pending, answers)
        if owed.pending:
            logger.warning("transactional id %r: %d markers failed and are retried", owed.name, len(owed.pending))

    # Complete records

    def _complete(self, owed: _Owed) -> None:
        """Every partition has its marker: from now on the transaction is complete for every reader of the state.

        The Complete record is appended soon, or shares a batch with the log's next record. Replies need not wait for
        it: after a crash the Prepare record has the coordinator write the markers again and complete it again.
        """
        owed.is_complete = True
        shard, version = owed.shard, self._config.transaction_version
        state = shard.state.state_of(owed.name)
        assert isinstance(state, PrepareCommit | PrepareAbort)
        [record] = machine.decide(owed.name, state, Complete(), self._clock.now_ms(), version).log
        assert isinstance(record.state, CompleteCommit | CompleteAbort)
        shard.note(record)
        self._behind[shard] = None
        self._some_behind.set()
        self._tallies.count(state, record.state, self._history.ending(owed.name))

    async def append_completed(self) -> None:
        """Append the Complete records soon after their markers, until cancelled."""
        try:
            while True:
                await self._some_behind.wait()
                await trio.sleep(COMPLETE_DELAY_SECONDS)
                self._some_behind = trio.Event()
                for seconds in self._config.marker_pauses():
                    if self._catch_up():
                        break
                    await trio.sleep(seconds)
        finally:
            self._catch_up()

    def _catch_up(self) -> bool:
        """Append the Complete records; False if a log refused some, which the next call appends."""
        failure: LogWriteFailed | None = None
        for shard in tuple(self._behind):
            try:
                shard.catch_up()
            except LogWriteFailed as error:
                failure = error
            else:
                del self._behind[shard]
        if failure is not None:
            logger.error(
                "Complete records of transactions could not be appended yet, the append is retried: %s", failure
            )
        return failure is None
