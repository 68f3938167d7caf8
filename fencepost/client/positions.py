"""Where a consumer stands: its partitions, its positions, what is committed, and going back after an abort."""

from collections.abc import Collection, Mapping

from fencepost.client.cluster import Cluster
from fencepost.client.config import ConsumerConfig
from fencepost.client.errors import AbortableError, ConfigError, KafkaError
from fencepost.client.fetch_state import PartitionState
from fencepost.client.fetcher import Fetcher
from fencepost.client.group_requests import EARLIEST, LATEST, commit_offsets, fetch_committed, list_offsets
from fencepost.client.membership import Membership
from fencepost.client.txn_requests import CommittedOffset, GroupMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition


class Positions:
    """The part of a consumer that knows where it reads, and under whose name it commits."""

    def __init__(self, cluster: Cluster, config: ConsumerConfig, purpose: str) -> None:
        if config.group_instance_id is not None and config.group_id is None:
            raise ConfigError("group_instance_id needs a group")
        self._cluster = cluster
        self._config = config
        self._purpose = purpose
        self.group_id = config.group_id
        self._fetcher = Fetcher(cluster, config, purpose, self._ask_committed if config.group_id else None)
        self._membership: Membership | None = None
        self._hand: GroupMetadata | None = None
        self._resting = True
        self._rewind_due = False
        self._void = False
        self._open = False

    def _check(self) -> None:
        if not self._open:
            raise RuntimeError("the consumer is not open: use it with `async with`")
        if self._fetcher.failure is not None:
            raise self._fetcher.failure

    # -- partitions and positions

    @property
    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read now."""
        return set(self._fetcher.states)

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read these partitions and no others, without a group's rebalancing; committing needs a group name still."""
        if self._membership is not None:
            raise RuntimeError("the group assigns this consumer's partitions")
        self._assign(partitions)

    def _assign(self, partitions: Collection[TopicPartition]) -> None:
        old = self._fetcher.states
        self._fetcher.states = {p: old.get(p) or PartitionState(p) for p in partitions}
        self._fetcher.wake()

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that the program will get."""
        state = self._state(partition)
        while state.position is None:
            self._check()
            await self._fetcher.arrived.wait()
        if self._rewind_due and state.rewind_point is not None:
            return state.rewind_point
        return state.position

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at `offset`."""
        self._state(partition).start_at(offset)
        self._fetcher.wake()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go to the first offset that is still there; of all partitions if none is named."""
        self._seek_to(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go to the end: the last stable offset for read_committed; of all partitions if none is named."""
        self._seek_to(partitions, LATEST)

    def _seek_to(self, partitions: Collection[TopicPartition], timestamp: int) -> None:
        for partition in partitions or self._fetcher.states:
            state = self._state(partition)
            state.jump(None)
            state.reset = timestamp
        self._fetcher.wake()

    def pause(self, *partitions: TopicPartition) -> None:
        """Give out nothing of these partitions (all, if none is named) until they are resumed."""
        for partition in partitions or self._fetcher.states:
            self._state(partition).paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with paused partitions (all, if none is named)."""
        for partition in partitions or self._fetcher.states:
            self._state(partition).paused = False
        self._fetcher.wake()
        self._fetcher.announce()

    def _state(self, partition: TopicPartition) -> PartitionState:
        state = self._fetcher.states.get(TopicPartition(*partition))
        if state is None:
            raise KafkaError(f"{partition} is not assigned to this consumer")
        return state

    def lag(self) -> dict[TopicPartition, int | None]:
        """Offsets between each position and what may be read: the last stable offset for read_committed.

        Markers count as offsets until they are passed, so a reader at the end has lag 0. None before the first fetch.
        """
        return {p: state.lag(self._config.isolation_level) for p, state in self._fetcher.states.items()}

    async def end_offsets(self) -> dict[TopicPartition, int]:
        """The end of each assigned partition as the broker sees it now."""
        wanted = dict.fromkeys(self._fetcher.states, LATEST)
        found = await self._cluster.policy.run(
            lambda: list_offsets(self._cluster, wanted, self._config.isolation_level, self._purpose)
        )
        return {partition: offset for partition, (offset, _) in found.items()}

    # -- offsets

    async def committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """The group's committed offsets (of the assigned partitions, if none is named); None where there is none."""
        wanted = list(partitions or self._fetcher.states)
        found = await self._cluster.policy.run(lambda: self._ask_committed(wanted), what="committed offsets")
        return {partition: found[partition].offset if partition in found else None for partition in wanted}

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit the positions (or `offsets`) of this member, outside of transactions.

        Raises KafkaError (ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS) when the group has moved on.
        """
        if offsets is None:
            await self._commit_positions()
        else:
            group = self._hand or self._group()
            await self._commit(group, {TopicPartition(*p): CommittedOffset(o) for p, o in offsets.items()})

    async def _commit_positions(self) -> None:
        group, positions = self.offsets_in_hand()
        if positions:
            await self._commit(group, positions)

    async def _commit(self, group: GroupMetadata, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        await self._cluster.policy.run(
            lambda: commit_offsets(self._cluster, group, offsets, self._purpose), what="committing offsets"
        )
        self.committed_in_transaction({partition: place.offset for partition, place in offsets.items()})

    async def _ask_committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        return await fetch_committed(self._cluster, self._group().group_id, partitions, self._purpose)

    def _group(self) -> GroupMetadata:
        if self.group_id is None:
            raise KafkaError("this consumer has no group", code=ErrorCode.INVALID_GROUP_ID)
        return self._membership.metadata if self._membership is not None else GroupMetadata(self.group_id)

    # -- for transactions

    def offsets_in_hand(self) -> tuple[GroupMetadata, dict[TopicPartition, CommittedOffset]]:
        """Who this consumer is in its group (as of the batch in hand), and the positions not committed yet.

        Raises AbortableError when the membership under which the batch in hand was read is known to be over.
        """
        if self._void:
            raise RuntimeError("the last commit's outcome is unknown: read the records again instead of retrying them")
        group = self._hand or self._group()
        if self._hand is not None and self._hand != self._group():
            raise AbortableError(
                "the group has given this batch's partitions away", code=ErrorCode.ILLEGAL_GENERATION, api="Heartbeat"
            )
        return group, {
            partition: CommittedOffset(state.position, state.leader_epoch)
            for partition, state in self._fetcher.states.items()
            if state.position is not None and state.position != state.rewind_point
        }

    def committed_in_transaction(self, offsets: Mapping[TopicPartition, int]) -> None:
        """These offsets are committed: an abort goes back no further."""
        for partition, offset in offsets.items():
            state = self._fetcher.states.get(partition)
            if state is not None:
                state.rewind_point = offset

    def rewind(self) -> None:
        """Go back to where the last commit was; what was read since comes again.

        While a batch is in hand this waits for the next read: a program may also try the same batch once more, and
        when that commits there is nothing to go back for.
        """
        if self._resting:
            self._go_back()
        else:
            self._rewind_due = True

    def _go_back(self) -> None:
        self._rewind_due = False
        for state in self._fetcher.states.values():
            if state.rewind_point is not None and state.rewind_point != state.position:
                state.start_at(state.rewind_point)
        self._fetcher.wake()

    def forget_positions(self) -> None:
        """Nobody knows what is committed: ask the group before reading on; the batch in hand must not be retried."""
        self._void = not self._resting
        for state in self._fetcher.states.values():
            if self.group_id is not None:
                state.jump(None)
            elif state.rewind_point is not None:
                state.start_at(state.rewind_point)
        self._fetcher.wake()
