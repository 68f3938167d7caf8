"""How far the program has processed a consumer's records, and where reading continues after an abort."""

from typing import Protocol

from fencepost.client.config import ConsumerConfig
from fencepost.client.consumer.fetch_state import PartitionState
from fencepost.client.consumer.fetcher import Fetcher
from fencepost.client.core.group_types import CommittedOffset
from fencepost.protocol.topics import TopicPartition


class UnitPositions(Protocol):
    """The positions of a consumer that is read by whole transactions."""

    @property
    def given(self) -> bool:
        """Whether the program got records that are not committed."""

    def offsets(self) -> dict[TopicPartition, CommittedOffset]:
        """The offsets to commit now."""

    def committed(self) -> None:
        """What `offsets` returned last is committed."""

    def rewind(self) -> None:
        """Give all uncommitted records again."""

    def forget(self) -> None:
        """It is unknown what is committed."""

    def close(self) -> None: ...


class Progress:
    """The state of the program that the parts of a consumer share.

    Records are in the program's hand until its next read. Then the consumer is `resting`.
    """

    def __init__(self, fetcher: Fetcher, config: ConsumerConfig) -> None:
        self._fetcher = fetcher
        self._has_group = config.group_id is not None
        self.is_open = False
        self.resting = True
        self.requests = 0
        """How often the program has read."""
        self.waits = False
        self.lost = False
        """The group has assigned partitions of the batch in hand to others."""
        self.void = False
        """The batch in hand must not be retried: the outcome of its commit is unknown."""
        self.tracks_handled = config.enable_auto_commit
        """Whether `handled` is kept: for commits that happen while a batch is in hand."""
        self.handled: dict[TopicPartition, CommittedOffset] = {}
        """How far the program has processed each partition, by its reads, commits and seeks."""
        fetcher.forget = lambda partition: self.handled.pop(partition, None)
        self.current: PartitionState | None = None
        """The partition that single records come from."""
        self.gave_one = False
        """Whether a single record of `current` is in hand."""
        self.rewind_due = False
        self.sought: set[TopicPartition] = set()
        """Partitions that the program has sought since the rewind was due: these do not rewind."""
        self.looked_up: set[TopicPartition] = set()
        """Partitions whose position the program has asked to look up."""
        self.units: UnitPositions | None = None
        """With `Consumer.transactions`, the positions of its units."""

    def check(self) -> None:
        """Raise an error if the consumer is not open or has failed, or if a partition cannot be read."""
        if not self.is_open:
            raise RuntimeError("the consumer is not open: use it with `async with`")
        self._fetcher.check()

    @property
    def hand_is_stale(self) -> bool:
        """Whether the records in hand will be read again, by this or another member."""
        return self.rewind_due or self.void or self.lost

    def rest(self) -> None:
        """The program reads again: it has processed the records in hand."""
        self.resting = True
        self.requests += 1
        self.void = self.lost = False
        if self.rewind_due:
            self._go_back()

    # -- positions

    def note_seek(self, state: PartitionState, place: CommittedOffset | None) -> None:
        """The program seeks: everything before that offset counts as processed, whatever is in hand."""
        state.seeks += 1
        if self.rewind_due:
            self.sought.add(state.partition)
        if place is not None and self.tracks_handled:
            self.handled[state.partition] = place
        else:
            self.handled.pop(state.partition, None)

    def uncommitted(self) -> dict[TopicPartition, CommittedOffset]:
        """The positions without a commit."""
        return {
            partition: CommittedOffset(state.position, state.leader_epoch)
            for partition, state in self._fetcher.states.items()
            if state.position is not None and not state.settled()
        }

    def done(self) -> dict[TopicPartition, CommittedOffset]:
        """Processed and uncommitted offsets, without the records in hand."""
        if self.resting:
            return self.uncommitted()
        states = self._fetcher.states
        return {p: place for p, place in self.asked_past().items() if place.offset != states[p].committed}

    def asked_past(self) -> dict[TopicPartition, CommittedOffset]:
        """How far the program has processed each partition, while a batch is in hand."""
        states = self._fetcher.states
        done = {partition: place for partition, place in self.handled.items() if partition in states}
        state = self.current
        if state is not None and states.get(state.partition) is state and self.gave_one:
            offset = state.last_given()
            known = done.get(state.partition)
            if offset is not None and (known is None or known.offset < offset):
                done[state.partition] = CommittedOffset(offset, state.leader_epoch)
        return done

    def rewind(self) -> None:
        """Rewind to the last commit; the program gets later records again.

        While a batch is in hand this waits for the next read: a program may retry the same batch, and if that commits
        no rewind is needed.
        """
        self.sought.clear()
        if self.resting:
            self._go_back()
        else:
            self.rewind_due = True

    def _go_back(self) -> None:
        self.rewind_due = False
        if self.units is not None:
            self.units.rewind()
        else:
            for partition, state in self._fetcher.states.items():
                if partition not in self.sought:
                    state.go_back()
        self._fetcher.wake()

    def forget_positions(self) -> None:
        """It is unknown what is committed: fetch the committed offsets first. The batch in hand must not be retried."""
        self.void = not self.resting
        if self.units is not None:
            self.units.forget()
        for state in self._fetcher.states.values():
            state.go_back()
            if self._has_group:
                state.committed = None
                state.jump(None)
        self._fetcher.wake()
