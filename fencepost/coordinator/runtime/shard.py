"""One log partition and the state it folds to: decide, append, apply; replies are sent once the log is durable."""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from fencepost.coordinator.decision import Decision
from fencepost.coordinator.ports import (
    Clock,
    CoordinatorLog,
    KeyValue,
    LogBatchTooLarge,
    LogListener,
    LogSuperseded,
    LogWriteFailed,
    ProducerTag,
    ReplayedBatch,
    Ticket,
)
from fencepost.protocol.errors import ErrorCode

StateT = TypeVar("StateT")
RecordT = TypeVar("RecordT")
ReplyT = TypeVar("ReplyT")
EffectT = TypeVar("EffectT")
WrittenT = TypeVar("WrittenT", contravariant=True)

NOTED_BATCH = 500


class Machine(Protocol[StateT, WrittenT]):
    """How a shard folds its log into a state: pure."""

    def empty(self) -> StateT:
        """The state of an empty log."""

    def apply(self, state: StateT, record: WrittenT, /) -> StateT:
        """The state after one record; at its append, and at replay."""

    def encode(self, record: WrittenT, /) -> KeyValue:
        """The record as its log stores it."""

    def replay(self, state: StateT, batch: ReplayedBatch, /) -> int:
        """Fold one batch into `state`; return how many records were of unknown kinds. Raises LogUnreadable."""


class RefusedTicket:
    """A ticket of a shard that is not active."""

    __slots__ = ("_error",)

    end_offset = None
    is_durable = False

    def __init__(self, error: LogWriteFailed) -> None:
        self._error = error

    def request(self) -> None:
        """Nothing: there is nothing to make durable."""

    async def durable(self) -> None:
        """Refuse. Raises LogWriteFailed."""
        raise LogWriteFailed(self._error.code, str(self._error))


class RefusingLog:
    """The log of a shard that is not active. No reply may rest on the shard's empty state, and nothing is written.

    `code` is the answer to every request: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.
    """

    leader_epoch = 0

    def __init__(self, code: ErrorCode, why: str) -> None:
        self.listener: LogListener | None = None
        self._error = LogWriteFailed(code, why)

    @property
    def newest(self) -> RefusedTicket:
        """A ticket that is refused: a reply that rests only on an empty state must not be sent."""
        return RefusedTicket(self._error)

    def append(self, records: Sequence[KeyValue], now_ms: int, producer: ProducerTag | None = None) -> RefusedTicket:
        """Refuse. Raises LogWriteFailed."""
        raise LogWriteFailed(self._error.code, str(self._error))

    def replay(self) -> Iterator[ReplayedBatch]:
        """No batches."""
        return iter(())


class Shard(Generic[StateT, RecordT]):
    """One partition of a coordinator.

    A record is applied as soon as it is appended, and no reply that depends on it leaves the broker before its ticket
    is durable. A decision without records waits for the newest ticket: it may rest on records of another id that are
    not durable yet. The log is one sequence, so a ticket covers all records before it
    (docs/decisions/0003-apply-at-append.md).
    """

    def __init__(self, partition: int, clock: Clock, machine: Machine[StateT, RecordT]) -> None:
        self.partition = partition
        self.state = machine.empty()
        self.log: CoordinatorLog
        self.refusal: ErrorCode
        """NONE while the shard is active, else the answer to every request: COORDINATOR_LOAD_IN_PROGRESS while it
        loads, COORDINATOR_NOT_AVAILABLE where its log cannot be read, NOT_COORDINATOR where it is not owned."""
        self._clock = clock
        self._machine = machine
        self._apply = machine.apply
        self._encode = machine.encode
        self._noted: list[RecordT] = []
        self.close(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the shard is not loaded")

    def open(self, log: CoordinatorLog, state: StateT) -> None:
        """Begin to serve `state`, which is the fold of `log`."""
        self.log, self.state, self.refusal = log, state, ErrorCode.NONE

    def close(self, code: ErrorCode, why: str) -> None:
        """Answer every request with `code`, and release the state."""
        self.log, self.state, self.refusal = RefusingLog(code, why), self._machine.empty(), code
        self._noted.clear()

    def decide(
        self,
        decide: Callable[[StateT, int], Decision[RecordT, ReplyT, EffectT]],
        producer: ProducerTag | None = None,
    ) -> tuple[Decision[RecordT, ReplyT, EffectT], Ticket]:
        """Decide, append and apply without a checkpoint; return the decision and the ticket its reply waits for.

        Raises LogWriteFailed; the state is then as it was.
        """
        decision = decide(self.state, self._clock.now_ms())
        return decision, self.write(decision.log, producer) if decision.log else self.log.newest

    def write(self, records: Sequence[RecordT], producer: ProducerTag | None = None) -> Ticket:
        """Append the noted records and `records` as one batch, and apply `records`. Raises LogWriteFailed.

        If that batch is too large, or belongs to a client's transaction, the noted records are appended before it.
        """
        noted, now_ms = self._noted, self._clock.now_ms()
        if len(noted) > NOTED_BATCH or producer is not None:  # notes are no part of a client's transaction
            self.catch_up()
        encoded = [self._encode(record) for record in (*noted, *records)]
        try:
            ticket = self.log.append(encoded, now_ms, producer)
        except LogBatchTooLarge:
            if not noted:
                raise
            own = encoded[len(noted) :]
            self.catch_up()
            ticket = self.log.append(own, now_ms, producer)
        noted.clear()
        for record in records:
            self.state = self._apply(self.state, record)
        return ticket

    def note(self, record: RecordT) -> None:
        """Apply `record`; `catch_up` or the next `write` appends it.

        Only for a record that follows from the others, so that a crash before its append does no harm.
        """
        self.state = self._apply(self.state, record)
        self._noted.append(record)

    def catch_up(self) -> None:
        """Append the noted records, some hundred to a batch. Raises LogWriteFailed; the next call appends the rest."""
        count = NOTED_BATCH
        while batch := self._noted[:count]:
            try:
                self.log.append([self._encode(record) for record in batch], self._clock.now_ms())
            except LogBatchTooLarge:
                if len(batch) == 1:
                    raise
                count = len(batch) // 2
            else:
                del self._noted[: len(batch)]

    async def settled(self, ticket: Ticket) -> ErrorCode:
        """NONE once `ticket` is durable; the client's error if it never becomes durable.

        If another writer's rows came first, the client has to retry: COORDINATOR_LOAD_IN_PROGRESS.
        """
        try:
            await ticket.durable()
        except LogSuperseded:
            return self.refusal or ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        except LogWriteFailed as error:
            return error.code
        return ErrorCode.NONE
