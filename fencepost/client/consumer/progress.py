"""How far the program is with what a consumer gave it, and where reading goes on after an aborted transaction."""

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
        """Whether something was given that is not committed."""

    def offsets(self) -> dict[TopicPartition, CommittedOffset]:
        """The offsets to commit now."""

    def committed(self) -> None:
        """What `offsets` returned last is committed."""

    def rewind(self) -> None:
        """Give everything again that is not committed."""

    def forget(self) -> None:
        """It is unknown what is committed."""

    def close(self) -> None: ...


class Progress:
    """What the parts of a consumer know together of its program.

    Records are in the program's hand from when they are given until it asks for more: then the consumer is `resting`.
    """

    def __init__(self, fetcher: Fetcher, config: ConsumerConfig) -> None:
        self._fetcher = fetcher
        self._has_group = config.group_id is not None
        self.is_open = False
        self.resting = True
        self.requests = 0
        """How often the program has asked for records."""
        self.waits = False
        """Whether the program waits for records now."""
        self.lost = False
        """The group has given partitions of the batch in hand to others."""
        self.void = False
        """The batch in hand must not be retried: the outcome of its commit is unknown."""
        self.tracks_handled = config.enable_auto_commit
        """Whether `handled` is kept: for commits that happen while a batch is in hand."""
        self.handled: dict[TopicPartition, CommittedOffset] = {}
        """How far the program is done, by its reads, commits and seeks."""
        self.current: PartitionState | None = None
        """The partition that single records come from."""
        self.gave_one = False
        """Whether a single record of `current` is in hand."""
        self.rewind_due = False
        self.sought: set[TopicPartition] = set()
        """Sought since the rewind was due: these stay where the program wants them."""
        self.looked_up: set[TopicPartition] = set()
        """Partitions whose position the program has asked to look up."""
        self.units: UnitPositions | None = None
        """With `Consumer.transactions`, what knows the positions."""

    def check(self) -> None:
        """Raise what the program has to know: the consumer is not open, has failed, or a partition cannot be read."""
        if not self.is_open:
            raise RuntimeError("the consumer is not open: use it with `async with`")
        self._fetcher.check()

    @property
    def hand_is_stale(self) -> bool:
        """Whether the records in hand are given again, or belong to another member."""
        return self.rewind_due or self.void or self.lost

    def rest(self) -> None:
        """The program asks for more: it is done with what it had."""
        self.resting = True
        self.requests += 1
        self.void = self.lost = False
        if self.rewind_due:
            self._go_back()

    # -- positions

    def note_seek(self, state: PartitionState, place: CommittedOffset | None) -> None:
        """The program says where it goes on: it is done as far as that, whatever is in its hand."""
        state.seeks += 1
        if self.rewind_due:
            self.sought.add(state.partition)
        if place is not None and self.tracks_handled:
            self.handled[state.partition] = place
        else:
            self.handled.pop(state.partition, None)

    def uncommitted(self) -> dict[TopicPartition, CommittedOffset]:
        """The positions that are not committed yet."""
        return {
            partition: CommittedOffset(state.position, state.leader_epoch)
            for partition, state in self._fetcher.states.items()
            if state.position is not None and not state.settled()
        }

    def done(self) -> dict[TopicPartition, CommittedOffset]:
        """What the program is done with and has not committed: nothing that is in its hand."""
        if self.resting:
            return self.uncommitted()
        states = self._fetcher.states
        return {p: place for p, place in self.asked_past().items() if place.offset != states[p].committed}

    def asked_past(self) -> dict[TopicPartition, CommittedOffset]:
        """How far the program is done while a batch is in its hand."""
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
        """Go back to the last commit; what was read since is given again.

        While a batch is in hand this waits for the next read: a program may also retry the same batch, and when that
        commits there is nothing to go back for.
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
        """It is unknown what is committed: ask the group before reading on. The batch in hand must not be retried."""
        self.void = not self.resting
        if self.units is not None:
            self.units.forget()
        for state in self._fetcher.states.values():
            state.go_back()
            if self._has_group:
                state.committed = None
                state.jump(None)
        self._fetcher.wake()
