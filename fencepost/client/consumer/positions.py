"""A consumer's partitions, their positions, and their offsets at the brokers."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from fencepost.client.config import ConsumerConfig
from fencepost.client.consumer.fetch_requests import offsets_by_time
from fencepost.client.consumer.fetch_state import PartitionState
from fencepost.client.consumer.fetcher import Fetcher
from fencepost.client.consumer.metrics import ConsumerMetrics
from fencepost.client.consumer.progress import Progress
from fencepost.client.core.group_types import CommittedOffset
from fencepost.client.core.numbers import whole_number
from fencepost.client.core.partitions import PartitionInfo, by_partition
from fencepost.client.errors import KafkaError
from fencepost.client.keywords import Isolation
from fencepost.client.network.cluster import Cluster
from fencepost.client.options import isolation_level
from fencepost.protocol.reset_policy import EARLIEST, LATEST
from fencepost.protocol.topics import TopicPartition


class OffsetAndTimestamp(NamedTuple):
    """A record's offset and its own timestamp, in ms since 1970."""

    offset: int
    timestamp_ms: int


class Positions:
    """The part of a consumer that has its positions."""

    def __init__(
        self, cluster: Cluster, config: ConsumerConfig, purpose: str, fetcher: Fetcher, progress: Progress
    ) -> None:
        self._cluster = cluster
        self._isolation = config.isolation_level
        self._purpose = purpose
        self._fetcher = fetcher
        self._progress = progress

    # -- partitions and positions

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read these partitions and no others; those read already continue."""
        old = self._fetcher.states
        named = [TopicPartition(*partition) for partition in partitions]
        self._fetcher.states = {p: old.get(p) or self._fetcher.new_state(p) for p in named}
        self._moved()

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that the program will get; waits until it is known.

        Raises ReadError if there is none, or if reading cannot continue from it, and KafkaError for a partition that
        is not assigned to this consumer (any more).
        """
        state = self._state(partition)
        while state.position is None:
            self._progress.check()
            await self._fetcher.arrived.wait()
            state = self._state(partition)
        if self._progress.rewind_due and state.back.point is not None and state.partition not in self._progress.sought:
            return state.back.point
        return state.position

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at `offset`, also after a ReadError. Raises ValueError below 0, KafkaError for a foreign partition.

        The next commit commits it, whether a record was read there or not. A transaction that aborts rewinds to it,
        or to earlier records that the program got and that are not committed.
        """
        if offset < 0:
            raise ValueError(f"offset {offset} is negative: use seek_to_beginning() or seek_to_end()")
        offset = whole_number("an offset", offset)
        state = self._state(partition)
        state.start_at(offset)
        self._progress.note_seek(state, CommittedOffset(offset))
        self._moved()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Move to the log start offset; of all partitions if none is named."""
        self._seek_to(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Move to the end: the last stable offset for read_committed; of all partitions if none is named.

        The consumer looks that offset up at the next read or `position`, as Kafka's own client does.
        """
        self._seek_to(partitions, LATEST)

    def seek_to_timestamp(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Move to the first record of `timestamp_ms` (since 1970) or later, to the end if there is none.

        Of all partitions if none is named. Raises ValueError for a negative time.
        """
        if timestamp_ms < 0:
            raise ValueError(f"timestamp {timestamp_ms} is negative: give milliseconds since 1970")
        timestamp_ms = whole_number("a timestamp", timestamp_ms)
        self._seek_to(partitions, timestamp_ms)

    def _seek_to(self, partitions: Collection[TopicPartition], timestamp: int) -> None:
        for partition in partitions or self._fetcher.states:
            state = self._state(partition)
            state.leave()
            state.jump(None)
            state.reset = timestamp
            self._progress.looked_up.add(state.partition)
            self._progress.note_seek(state, None)
        self._moved()

    async def wait_found(self) -> None:
        """Wait for positions that are being looked up after a seek to a time or an end, so that they can be committed.

        The same holds for the reset policy's positions, if the program got records before: without them a commit would
        repeat these. Raises as `position` does, and RetriableError at the deadline (`default_api_timeout`).
        """
        sought = [
            p
            for p, state in self._fetcher.states.items()
            if state.position is None
            and state.reset is not None
            and (state.back.unsaved or p in self._progress.looked_up)
        ]

        async def attempt() -> None:
            for partition in sought:
                if partition in self._fetcher.states:
                    await self.position(partition)

        if sought:
            await self._cluster.policy.run(attempt, what="finding the positions to commit")

    def _moved(self) -> None:
        self._fetcher.wake()
        self._fetcher.announce()

    def pause(self, *partitions: TopicPartition) -> None:
        """Give no records of these partitions (all, if none is named) until they are resumed.

        Records that were fetched for them stay, unless other partitions need the room.
        """
        for partition in partitions or self._fetcher.states:
            self._state(partition).pause(True)
        self._fetcher.wake()  # their fetched records may have to make room

    def resume(self, *partitions: TopicPartition) -> None:
        """Continue with paused partitions (all, if none is named)."""
        for partition in partitions or self._fetcher.states:
            self._state(partition).pause(False)
        self._moved()

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return {partition for partition, state in self._fetcher.states.items() if state.paused_by_program}

    def _state(self, partition: TopicPartition) -> PartitionState:
        state = self._fetcher.states.get(TopicPartition(*partition))
        if state is None:
            raise KafkaError(f"{partition} is not assigned to this consumer")
        return state

    def lag(self) -> dict[TopicPartition, int | None]:
        """How many records of each partition the program has not got, by its end in the last fetch.

        That is the number of fetched records (without markers, aborted records and gaps) plus the offsets from there
        to the last stable offset (the high watermark for read_uncommitted). So a program that got every committed
        record has lag 0, also when markers follow. In the part that is not fetched, markers and aborted records count,
        because the client does not know them yet. None before the first fetch.
        """
        return {p: state.lag(self._isolation) for p, state in self._fetcher.states.items()}

    def metrics(self) -> ConsumerMetrics:
        """This consumer's metrics now, under the names of Kafka's own consumer (KIP-714)."""
        budget, states = self._fetcher.budget, self._fetcher.states
        queued = budget.held + budget.reserved
        return self._fetcher.metrics.snapshot(self.lag().values(), len(states), queued, budget.peak)

    # -- offsets at the brokers

    async def partitions_for(self, topic: str) -> dict[TopicPartition, PartitionInfo]:
        """The topic's partitions in order, each with its leader and replicas.

        Raises RetriableError (UNKNOWN_TOPIC_OR_PARTITION) at the deadline.
        """
        return by_partition(await self._cluster.topic(topic, create=False))

    async def beginning_offsets(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        """The log start offset of each partition (of the assigned ones, if none is named) at the broker now."""
        found = await self._offsets(dict.fromkeys(self._named(partitions), EARLIEST), None)
        return {partition: offset for partition, (offset, _) in found.items()}

    async def end_offsets(
        self, *partitions: TopicPartition, isolation: Isolation | None = None
    ) -> dict[TopicPartition, int]:
        """The end of each partition (of the assigned ones, if none is named) at the broker now.

        That is the last stable offset for read_committed, the high watermark for read_uncommitted; `isolation` is the
        consumer's own unless it is given. Raises ValueError for an isolation that does not exist.
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
            raise ValueError("a timestamp is negative: give milliseconds since 1970")
        found = await self._offsets({TopicPartition(*p): timestamp for p, timestamp in times.items()}, None)
        return {p: OffsetAndTimestamp(*place) if place[0] >= 0 else None for p, place in found.items()}

    def _named(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition(*partition) for partition in partitions or self._fetcher.states]

    async def _offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: Isolation | None
    ) -> dict[TopicPartition, tuple[int, int]]:
        found: dict[TopicPartition, tuple[int, int]] = {}
        level = self._isolation if isolation is None else isolation_level(isolation)

        async def attempt() -> None:
            left = {partition: timestamp for partition, timestamp in wanted.items() if partition not in found}
            got, failed = await offsets_by_time(self._cluster, left, level, self._purpose)
            found.update({partition: (offset, timestamp) for partition, (offset, timestamp, _) in got.items()})
            for error in failed.values():
                raise error

        await self._cluster.policy.run(attempt, what="offsets")
        return {partition: found[partition] for partition in wanted}
