"""A share partition with a log of batches and a clock, for tests that say what members do."""

from collections.abc import Sequence

from fencepost.broker.share.change import Change
from fencepost.broker.share.partition import SharePartition
from fencepost.broker.share.values import AckBatch, Acquired, AcquireMode, DeadLetters, Fetched, Limits, Refused, Want
from fencepost.coordinator.share.values import StateBatch, StoredState

DEFAULT = Limits()


class Share:
    """One share partition; what it has to store is stored at once, unless a test keeps the change."""

    def __init__(self, limits: Limits = DEFAULT, start: int = 0, stored: Sequence[StateBatch] = ()) -> None:
        self.limits = limits
        self.now = 0
        self.it = SharePartition(lambda: self.limits)
        self.dead: list[DeadLetters] = []
        self.dead += self.it.restore(StoredState(state_epoch=7, start_offset=start, batches=tuple(stored)), 0)

    def fetch(
        self,
        member: str,
        *batches: tuple[int, int],
        most: int = 500,
        mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
        batch_size: int = 500,
        aborted: Sequence[tuple[int, int]] = (),
        held: Sequence[tuple[int, int]] = (),
    ) -> list[Acquired]:
        """A member fetches; the log gives these batches from the next fetch offset on."""
        fetched = Fetched(self.it.next_fetch_offset(), batches, aborted, held)
        return self.it.acquire(member, fetched, Want(most, batch_size, mode), self.now)

    def say(self, member: str, first: int, last: int, *types: int) -> Change:
        """A member acknowledges a range; the change waits."""
        return self.it.acknowledge(member, [AckBatch(first, last, types)], self.now)

    def ack(self, member: str, first: int, last: int, *types: int) -> Sequence[StateBatch]:
        """A member acknowledges a range, and it is stored."""
        return self.store(self.say(member, first, last, *types))

    def refusal(self, member: str, first: int, last: int, *types: int) -> str:
        """Why an acknowledgement is refused; empty if it is not."""
        try:
            self.say(member, first, last, *types)
        except Refused as refused:
            return str(refused)
        return ""

    def store(self, change: Change) -> Sequence[StateBatch]:
        """Store a change; what it said."""
        self.dead += change.settle(True)
        return change.batches

    def wait(self, milliseconds: int) -> Sequence[StateBatch]:
        """Let time pass, and locks end."""
        self.now += milliseconds
        return self.store(self.it.expire(self.now))

    def deliver_and_release(self, member: str, first: int, last: int) -> int:
        """Deliver a range once more, release it; the delivery count that its first record had."""
        count = self.fetch(member, (first, last))[0].delivery_count
        self.store(self.it.release(member))
        return count

    @property
    def offsets(self) -> tuple[int, int, int]:
        """Start offset, end offset, next fetch offset."""
        return self.it.start_offset, self.it.end_offset, self.it.next_fetch_offset()
