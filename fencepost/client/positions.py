"""Where a consumer stands: its partitions, its positions, what is committed, and going back after an abort."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import trio

from fencepost.client.cluster import Cluster
from fencepost.client.config import ConsumerConfig
from fencepost.client.core.reset import EARLIEST, LATEST
from fencepost.client.errors import AbortableError, ConfigError, KafkaError
from fencepost.client.fetch_metrics import COORDINATOR
from fencepost.client.fetch_requests import offsets_by_time
from fencepost.client.fetch_state import PartitionState
from fencepost.client.fetcher import Fetcher
from fencepost.client.group_requests import commit_offsets, fetch_committed
from fencepost.client.membership import Membership
from fencepost.client.txn_requests import CommittedOffset, GroupMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import IsolationLevel, TopicPartition


class OffsetAndTimestamp(NamedTuple):
    """A record's offset and its own timestamp, in ms since 1970."""

    offset: int
    timestamp_ms: int


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
        self._fetcher.check()

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
        named = [TopicPartition(*partition) for partition in partitions]
        self._fetcher.states = {p: old.get(p) or self._fetcher.new_state(p) for p in named}
        self._moved()

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that the program will get; waits until it is known.

        Raises ReadError where there is none, or where the log can not be read on from it.
        """
        state = self._state(partition)
        while state.position is None:
            self._check()
            await self._fetcher.arrived.wait()
        if self._rewind_due and state.rewind_point is not None:
            return state.rewind_point
        return state.position

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at `offset`, also after a ReadError. Raises ValueError below 0, KafkaError for a foreign partition."""
        if offset < 0:
            raise ValueError(f"offset {offset}: seek_to_beginning and seek_to_end have names of their own")
        self._state(partition).start_at(offset)
        self._moved()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go to the first offset that is still there; of all partitions if none is named."""
        self._seek_to(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go to the end: the last stable offset for read_committed; of all partitions if none is named."""
        self._seek_to(partitions, LATEST)

    def seek_to_timestamp(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Go to the first record of `timestamp_ms` (since 1970) or later, to the end if there is none.

        Of all partitions if none is named. Raises ValueError for a negative time.
        """
        if timestamp_ms < 0:
            raise ValueError(f"{timestamp_ms} ms is before 1970")
        self._seek_to(partitions, timestamp_ms)

    def _seek_to(self, partitions: Collection[TopicPartition], timestamp: int) -> None:
        for partition in partitions or self._fetcher.states:
            state = self._state(partition)
            state.jump(None)
            state.reset = timestamp
        self._moved()

    def _moved(self) -> None:
        self._fetcher.wake()
        self._fetcher.announce()

    def pause(self, *partitions: TopicPartition) -> None:
        """Give out nothing of these partitions (all, if none is named) until they are resumed.

        What was fetched for them stays, unless other partitions need the room.
        """
        for partition in partitions or self._fetcher.states:
            self._state(partition).pause(True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with paused partitions (all, if none is named)."""
        for partition in partitions or self._fetcher.states:
            self._state(partition).pause(False)
        self._moved()

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return {partition for partition, state in self._fetcher.states.items() if state.pause_wish}

    def _state(self, partition: TopicPartition) -> PartitionState:
        state = self._fetcher.states.get(TopicPartition(*partition))
        if state is None:
            raise KafkaError(f"{partition} is not assigned to this consumer")
        return state

    def lag(self) -> dict[TopicPartition, int | None]:
        """How much of each partition is still to come, by what the last fetch told of its end.

        Counted are the records that were fetched and not given out yet (no markers, nothing aborted, no holes) and,
        from there to the last stable offset (the high watermark for read_uncommitted), the offsets. So a reader that
        was given every committed record has lag 0, though markers follow; while more is to be fetched, markers and
        aborted records in that part count, since nobody knows them yet. None before the first fetch.
        """
        return {p: state.lag(self._config.isolation_level) for p, state in self._fetcher.states.items()}

    def metrics(self) -> dict[str, float]:
        """Counters and gauges under the names of Kafka's own consumer (KIP-714), with times in milliseconds.

        `fencepost_queued_bytes` is what is held and reserved of `queued_max_bytes`, `fencepost_queued_bytes_max` the
        most that was held.
        """
        budget = self._fetcher.budget
        return {
            **self._fetcher.metrics.names({str(partition): lag for partition, lag in self.lag().items()}),
            f"{COORDINATOR}assigned_partitions": len(self._fetcher.states),
            "fencepost_queued_bytes": budget.held + budget.reserved,
            "fencepost_queued_bytes_max": budget.peak,
        }

    # -- what the brokers know

    async def partitions_for(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic, in order. Raises RetriableError (UNKNOWN_TOPIC_OR_PARTITION) at the deadline."""
        info = await self._cluster.topic(topic, create=False)
        return [TopicPartition(topic, number) for number in range(len(info.partitions))]

    async def beginning_offsets(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        """The first offset of each partition (of the assigned ones, if none is named) as the broker sees it now."""
        found = await self._offsets(dict.fromkeys(self._named(partitions), EARLIEST), None)
        return {partition: offset for partition, (offset, _) in found.items()}

    async def end_offsets(
        self, *partitions: TopicPartition, isolation: IsolationLevel | None = None
    ) -> dict[TopicPartition, int]:
        """The end of each partition (of the assigned ones, if none is named) as the broker sees it now.

        That is the last stable offset for read_committed, the high watermark for read_uncommitted; `isolation` is the
        consumer's own unless it is given.
        """
        found = await self._offsets(dict.fromkeys(self._named(partitions), LATEST), isolation)
        return {partition: offset for partition, (offset, _) in found.items()}

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """For each partition the first record of that time (ms since 1970) or later; None where there is none.

        Nothing above the last stable offset is found for read_committed (row I6). Raises ValueError for negative times.
        """
        if any(timestamp < 0 for timestamp in times.values()):
            raise ValueError("times are milliseconds since 1970")
        found = await self._offsets({TopicPartition(*p): timestamp for p, timestamp in times.items()}, None)
        return {p: OffsetAndTimestamp(*place) if place[0] >= 0 else None for p, place in found.items()}

    def _named(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition(*partition) for partition in partitions or self._fetcher.states]

    async def _offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: IsolationLevel | None
    ) -> dict[TopicPartition, tuple[int, int]]:
        found: dict[TopicPartition, tuple[int, int]] = {}
        level = self._config.isolation_level if isolation is None else IsolationLevel(isolation)

        async def attempt() -> None:
            left = {partition: timestamp for partition, timestamp in wanted.items() if partition not in found}
            got, failed = await offsets_by_time(self._cluster, left, level, self._purpose)
            found.update({partition: (offset, timestamp) for partition, (offset, timestamp, _) in got.items()})
            for error in failed.values():
                raise error

        await self._cluster.policy.run(attempt, what="offsets")
        return {partition: found[partition] for partition in wanted}

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
        began = trio.current_time()
        await self._cluster.policy.run(
            lambda: commit_offsets(self._cluster, group, offsets, self._purpose), what="committing offsets"
        )
        self._fetcher.metrics.committed(trio.current_time() - began)
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
