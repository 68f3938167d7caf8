"""The shell around a pure coordinator: decide, append, apply, wait until durable, reply, act; one for all of them."""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from fencepost.coordinator.decision import Decision
from fencepost.coordinator.ports import Clock, CoordinatorLog, KeyValue, LogWriteFailed, ProducerTag, ReplayedBatch
from fencepost.protocol.errors import ErrorCode

StateT = TypeVar("StateT")
RecordT = TypeVar("RecordT")
ReplyT = TypeVar("ReplyT")
EffectT = TypeVar("EffectT")

NOTED_BATCH = 500


class LostLog:
    """Stands where a partition's log can not be replayed: nothing is known, so nothing is answered and nothing written.

    Whoever asks hears COORDINATOR_NOT_AVAILABLE and comes again; a guess would be worse than to wait for the operator.
    """

    end_offset = 0

    def __init__(self, why: str) -> None:
        self.why = why

    def append(self, records: Sequence[KeyValue], now_ms: int, producer: ProducerTag | None = None) -> int:
        """Refuse. Raises LogWriteFailed."""
        raise LogWriteFailed(ErrorCode.COORDINATOR_NOT_AVAILABLE, self.why)

    def is_durable(self, end_offset: int) -> bool:
        """Nothing is, and never will be."""
        return False

    async def durable(self, end_offset: int) -> None:
        """Refuse, also what rests on an empty state alone. Raises LogWriteFailed."""
        raise LogWriteFailed(ErrorCode.COORDINATOR_NOT_AVAILABLE, self.why)

    def replay(self) -> Iterator[ReplayedBatch]:
        """Nothing that could be believed."""
        return iter(())


class Shard(Generic[StateT, RecordT]):
    """One log partition and the state it folds to.

    A record is applied as soon as it is appended, and nothing that depends on it leaves the broker before the log is
    durable up to the end offset seen after the decision: a decision that writes nothing waits as well, because it may
    rest on records of a neighbour that are not durable yet. The log is one sequence, so waiting for an offset covers
    all that came before it (docs/decisions/0003-apply-at-append.md).
    """

    def __init__(
        self,
        log: CoordinatorLog,
        clock: Clock,
        state: StateT,
        apply: Callable[[StateT, RecordT], StateT],
        encode: Callable[[RecordT], KeyValue],
    ) -> None:
        self.log = log
        self.state = state
        self._clock = clock
        self._apply = apply
        self._encode = encode
        self._noted: list[RecordT] = []

    @property
    def is_lost(self) -> bool:
        """Whether its log could not be replayed: the state is empty and means nothing."""
        return isinstance(self.log, LostLog)

    def decide(
        self,
        decide: Callable[[StateT, int], Decision[RecordT, ReplyT, EffectT]],
        producer: ProducerTag | None = None,
    ) -> tuple[Decision[RecordT, ReplyT, EffectT], int]:
        """Decide, append and apply without a checkpoint; return the decision and the end offset its reply waits for.

        Raises LogWriteFailed; the state is then as it was.
        """
        decision = decide(self.state, self._clock.now_ms())
        if decision.log:
            self.write(decision.log, producer)
        return decision, self.log.end_offset

    def write(self, records: Sequence[RecordT], producer: ProducerTag | None = None) -> int:
        """Append `records` as one batch, apply them, and return the end offset after it. Raises LogWriteFailed."""
        if self._noted:
            self.catch_up()
        end_offset = self.log.append([self._encode(record) for record in records], self._clock.now_ms(), producer)
        for record in records:
            self.state = self._apply(self.state, record)
        return end_offset

    def note(self, record: RecordT) -> None:
        """Apply `record`, and leave it to `catch_up` or the next `write` to append it.

        For what a replay would come to without it: then it does no harm if a crash comes before it is in the log.
        """
        self.state = self._apply(self.state, record)
        self._noted.append(record)

    def catch_up(self) -> None:
        """Append what was noted, some hundred to a batch. Raises LogWriteFailed; what is left comes the next time."""
        while self._noted:
            batch = self._noted[:NOTED_BATCH]
            self.log.append([self._encode(record) for record in batch], self._clock.now_ms())
            del self._noted[: len(batch)]

    def is_settled(self, end_offset: int) -> bool:
        """Whether `settled` would answer NONE at once."""
        return self.log.is_durable(end_offset)

    async def settled(self, end_offset: int) -> ErrorCode:
        """NONE once the log is durable below `end_offset`; what a client hears where it never will be."""
        try:
            await self.log.durable(end_offset)
        except LogWriteFailed as error:
            return error.code
        return ErrorCode.NONE

    async def run(
        self,
        decide: Callable[[StateT, int], Decision[RecordT, ReplyT, EffectT]],
        producer: ProducerTag | None = None,
    ) -> Decision[RecordT, ReplyT, EffectT]:
        """As `decide`, and return once the reply may leave: when the log is durable that far. Raises LogWriteFailed."""
        decision, end_offset = self.decide(decide, producer)
        await self.log.durable(end_offset)
        return decision
