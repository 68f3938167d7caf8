"""Finds positions: the committed offset, or the reset policy's; and compares them with the log."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from fencepost.client.config import ConsumerConfig
from fencepost.client.consumer.fetch_requests import Failures, epoch_ends, offsets_by_time
from fencepost.client.consumer.fetch_state import PartitionState
from fencepost.client.consumer.read_errors import LogTruncatedError, OffsetOutOfRangeError
from fencepost.client.core.fetch_session import NO_TOPIC_ID
from fencepost.client.core.group_types import CommittedOffset
from fencepost.client.core.reset import truncated
from fencepost.client.errors import KafkaError, RetriableError
from fencepost.client.network.cluster import Cluster
from fencepost.protocol.reset_policy import EARLIEST, LATEST
from fencepost.protocol.topics import TopicPartition

_LOG = logging.getLogger(__name__)
_SHOWN = 10
Committed = Callable[[list[TopicPartition]], Awaitable[dict[TopicPartition, CommittedOffset]]]
States = Mapping[TopicPartition, PartitionState]


@dataclass(eq=False, repr=False)
class PositionFinder:
    """Finds positions for `states()`, the consumer's present partitions. `committed` fetches the group's offsets."""

    _cluster: Cluster
    _config: ConsumerConfig
    _purpose: str
    _committed: Committed | None
    _states: Callable[[], States]

    async def settle(self) -> None:
        """One attempt to give every partition a position that is valid in the log.

        Raises RetriableError if another attempt is due; an error that the program must handle goes into `error`.
        """
        await self._find()
        await self._validate()

    def suspect(self, state: PartitionState) -> bool:
        """Whether the leader has changed since the position was last compared with its log (KIP-320)."""
        epoch = self._cluster.leader_epoch(state.partition)
        if epoch <= state.validated_epoch or state.position is None:
            return False
        if state.fetch_epoch < 0:
            state.validated_epoch = epoch  # no record was read yet, or the broker is old: nothing to compare
            return False
        return True

    def is_recreated(self, state: PartitionState) -> bool:
        """Whether the topic of the position was deleted, and another one has its name now (topic ids: Kafka 2.8)."""
        info = self._cluster.topics.get(state.partition.topic)
        if info is None or info.topic_id == NO_TOPIC_ID or state.position is None:
            return False
        if state.topic_id == NO_TOPIC_ID:
            state.topic_id = info.topic_id
        return state.topic_id != info.topic_id

    def renewed(self) -> dict[TopicPartition, PartitionState]:
        """New states for the partitions of topics that were created again.

        A new topic is read from its beginning, also with "latest": all its records are later than the position. With
        "none" the program must seek.
        """
        found = {partition: state for partition, state in self._states().items() if self.is_recreated(state)}
        new = {partition: state.in_new_topic() for partition, state in found.items()}
        must_seek = self._config.auto_offset_reset.timestamp(0) is None
        for partition, state in new.items():
            if must_seek:
                state.error = OffsetOutOfRangeError(partition, -1, -1, None)
            else:
                state.reset = EARLIEST
        what = "needs a seek" if must_seek else "reads the new topic from its beginning"
        for topic in sorted({partition.topic for partition in new}):
            lost = {p.partition: state.position for p, state in found.items() if p.topic == topic}
            _LOG.warning(
                "topic %r was deleted and created again. This consumer %s; its positions in the old topic were %s",
                *(
                    topic,
                    what,
                    ", ".join(f"{number}: {position}" for number, position in sorted(lost.items())[:_SHOWN]),
                ),
            )
        return new

    def out_of_range(self, state: PartitionState, node: int) -> None:
        """The broker does not have the position: apply the reset policy, or leave the error to the program."""
        reset = self._config.auto_offset_reset.timestamp(self._now_ms())
        if reset is None:
            found = OffsetOutOfRangeError(state.partition, state.fetch_offset, state.log_start_offset, node)
            state.error = found
        else:
            state.leave()
            state.jump(None)
            state.reset = reset

    def _now_ms(self) -> int:
        return int(self._cluster.wall_clock() * 1000)

    async def _find(self) -> None:
        lost = {p: (s, s.jumps) for p, s in self._states().items() if s.position is None and s.error is None}
        if not lost:
            return
        asked = [partition for partition, (state, _) in lost.items() if state.reset is None]
        committed: dict[TopicPartition, CommittedOffset] = {}
        if asked and self._committed is not None:
            committed = await self._committed(asked)
        wanted: dict[TopicPartition, int] = {}
        for partition, (state, jumps) in lost.items():
            if not self._stands(state, jumps):
                continue
            place = committed.get(partition)
            if state.reset is None and place is not None:
                state.start_at(place.offset, place.leader_epoch)
                state.committed = place.offset
                continue
            if state.reset is None and state.back.point is not None:
                state.start_at(state.back.point)  # without a commit the start position counts, not the policy
                continue
            reset = state.reset
            if reset is None:
                reset = self._config.auto_offset_reset.timestamp(self._now_ms())
            if reset is None:
                state.error = OffsetOutOfRangeError(partition, -1, -1, None)
            else:
                wanted[partition] = reset
        current = {partition: self._cluster.leader_epoch(partition) for partition in wanted}
        found, failed = await self._offsets(wanted)
        for partition, (offset, epoch) in found.items():
            state, jumps = lost[partition]
            if self._stands(state, jumps):
                state.start_at(max(offset, 0), epoch)
                state.validated_epoch = current[partition]  # this leader has returned the offset
        self._note_failures({partition: lost[partition] for partition in failed}, failed)

    async def _offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, tuple[int, int]], Failures]:
        """(Offset, epoch) for each; the end if no record is that late."""
        if not wanted:
            return {}, {}
        isolation = self._config.isolation_level
        found, failed = await offsets_by_time(self._cluster, wanted, isolation, self._purpose)
        late = {partition: LATEST for partition, (offset, _, _) in found.items() if offset < 0}
        if late:
            ends, more = await offsets_by_time(self._cluster, late, isolation, self._purpose)
            for partition in late:
                del found[partition]
            found.update(ends)
            failed.update(more)
        return {partition: (offset, epoch) for partition, (offset, _, epoch) in found.items()}, failed

    async def _validate(self) -> None:
        suspects = {p: (s, s.jumps) for p, s in self._states().items() if s.error is None and self.suspect(s)}
        if not suspects:
            return
        current = {partition: self._cluster.leader_epoch(partition) for partition in suspects}
        asked = {partition: state.fetch_epoch for partition, (state, _) in suspects.items()}
        offsets = {partition: state.fetch_offset for partition, (state, _) in suspects.items()}
        ends, failed = await epoch_ends(self._cluster, asked, self._purpose)
        for partition, end in ends.items():
            state, jumps = suspects[partition]
            # A fetch that was under way may have moved the offset: the answer is about the old one, so ask again.
            if not self._stands(state, jumps) or state.fetch_offset != offsets[partition]:
                continue
            cut = None if end is None else truncated(offsets[partition], asked[partition], *end)
            if cut is None:
                state.validated_epoch = current[partition]
            elif state.chunks:
                state.drop_buffered()  # it may be of the truncated part: the position itself is compared next
            elif (reset := self._config.auto_offset_reset.timestamp(self._now_ms())) is None:
                epoch = None if cut.end is None else cut.epoch
                node = self._cluster.leader(partition)
                state.error = LogTruncatedError(partition, state.position or 0, cut.end, epoch, node)
            elif cut.end is not None:
                state.start_at(cut.end, cut.epoch)
                state.back.point = min(state.back.point or 0, cut.end)
                state.validated_epoch = current[partition]
            else:
                state.leave()
                state.jump(None)
                state.reset = reset
        self._note_failures({partition: suspects[partition] for partition in failed}, failed)
        if any(
            s.position is None or self.is_recreated(s) or self.suspect(s)
            for s in self._states().values()
            if s.error is None
        ):
            raise RetriableError("more positions must be compared with the log")

    def _stands(self, state: PartitionState, jumps: int) -> bool:
        return state.jumps == jumps and self._states().get(state.partition) is state

    def _note_failures(self, asked: Mapping[TopicPartition, tuple[PartitionState, int]], failed: Failures) -> None:
        """Leave final errors to the program; raise one of the retriable ones."""
        again: KafkaError | None = None
        for partition, error in failed.items():
            state, jumps = asked[partition]
            if isinstance(error, RetriableError):
                again = error
            elif self._stands(state, jumps):
                state.error = error
        if again is not None:
            raise again
