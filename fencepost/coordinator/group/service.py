"""The group coordinator: its parts over one runtime, and the broker's notifications to it."""

import logging
import uuid
from collections.abc import Callable, Sequence

import trio

from fencepost.coordinator.group import notes
from fencepost.coordinator.group.admin import GroupAdmin
from fencepost.coordinator.group.classic_service import ClassicGroups
from fencepost.coordinator.group.config import GroupConfig
from fencepost.coordinator.group.consumer_service import ConsumerGroups
from fencepost.coordinator.group.effects import Effects
from fencepost.coordinator.group.positions import GroupPositions
from fencepost.coordinator.group.shard_state import GroupRecords
from fencepost.coordinator.group.shards import GroupRuntime, GroupShard, GroupShards
from fencepost.coordinator.group.share_partitions import BegunPartitions
from fencepost.coordinator.group.share_service import ShareGroups
from fencepost.coordinator.group.timers import TimerKey
from fencepost.coordinator.ports import Clock, CoordinatorLogs, LogWriteFailed, TopicView
from fencepost.coordinator.runtime.runtime import CoordinatorRuntime
from fencepost.coordinator.share.group_config import ShareGroupConfig
from fencepost.coordinator.share.values import SharePersister
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import GROUP_TOPIC

logger = logging.getLogger(__name__)

RETRY_MS = 1000
"""The delay after which a timer fires again if the log refused its write."""


class GroupService:
    """All groups of this broker.

    Every method of its parts that answers a client returns once everything the answer rests on is durable; only
    `heartbeat` does not wait. Call `start` before the first request and keep `run` running.
    """

    def __init__(
        self,
        config: GroupConfig,
        logs: CoordinatorLogs,
        topics: TopicView,
        clock: Clock,
        share_states: SharePersister,
        share_config: ShareGroupConfig,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self.config = config
        self.tallies = notes.Tallies()
        self.runtime: GroupRuntime = CoordinatorRuntime(GROUP_TOPIC, logs, clock, GroupRecords(), self)
        self._shards = GroupShards(self.runtime, topics, clock)
        self._effects = Effects(self.runtime)
        self._forgets_deleted = False
        self.consumers = ConsumerGroups(config, self._shards, lambda: topics.image, clock, new_id, self._effects)
        self.classic = ClassicGroups(config, self._shards, self._effects, self.consumers, clock, new_id, self.tallies)
        """Groups of the classic protocol, and its members in consumer groups."""
        begun = BegunPartitions(self._shards, share_states, lambda: topics.image, clock)
        self.shares = ShareGroups(share_config, self._shards, lambda: topics.image, clock, self._effects, begun)
        self.positions = GroupPositions(self._shards, self._effects, config, topics, self.tallies)
        self.admin = GroupAdmin(self._shards, self.consumers, self.shares)
        """The requests of operators and metrics."""

    async def start(self) -> None:
        """Load every partition that has a log; the groups of an unreadable one answer COORDINATOR_NOT_AVAILABLE."""
        self.consumers.start()
        await self.runtime.load_all()

    def loaded(self, shard: GroupShard) -> None:
        """Restart the sessions of all members (as in Kafka)."""
        self.classic.loaded(shard)
        self.consumers.loaded(shard)
        self.shares.loaded(shard)
        if self._forgets_deleted:
            self._shards.forget_deleted_topics_in(shard)

    def unloading(self, shard: GroupShard, code: ErrorCode) -> None:
        """Answer the waiting requests of a shard with `code`: their members join again where it is loaded next."""
        self._effects.unloading(shard, code)

    def id_of(self, timer: TimerKey) -> str:
        return timer.group_id

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch the sessions and rebalances, and remove expired groups and offsets, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.runtime.serve)
            nursery.start_soon(self._sweep)
            task_status.started()

    def close(self) -> None:
        """The broker stops: answer every waiting request with NOT_COORDINATOR, and refuse new Joins and Syncs."""
        self._effects.closed = True
        self._effects.answer_all(ErrorCode.NOT_COORDINATOR)

    def group_partition(self, group_id: str) -> int:
        return self.runtime.partition_for(group_id)

    def refusal(self, group_id: str) -> ErrorCode:
        return self._shards.runtime.refusal(group_id)

    def complete_transaction(self, partition: int, producer_id: int, commit: bool) -> None:
        """A marker is durable on this partition of `__consumer_offsets`: apply or drop the transaction's offsets."""
        shard = self._shards.runtime.at(partition)
        if shard is not None:
            shard.state.offsets.complete(producer_id, commit)

    def topics_changed(self, topics: Sequence[str], *, created: bool = False) -> None:
        """Topics were created or grew: groups in which the broker assigns compute a new assignment."""
        self.consumers.topics_changed(topics, created=created)
        self.shares.topics_changed(topics)

    def topics_deleted(self, topics: Sequence[str]) -> None:
        """Remove all offsets of deleted topics, so that a new topic of the same name does not inherit them."""
        self._shards.forget_topics(set(topics))
        self.topics_changed(topics)

    def forget_deleted_topics(self) -> None:
        """Call it once at start: the broker may have crashed between the deletion of a topic and `topics_deleted`.

        From then on every loaded shard is checked too: topics may have been deleted while another broker owned it.
        """
        self._forgets_deleted = True
        self._shards.forget_deleted_topics()

    async def expire(self, timer: TimerKey) -> None:
        """A timer expired. If the log refuses its decision, the timer fires again after RETRY_MS."""
        shard = self._shards.of(timer.group_id)
        try:
            if (consumers := shard.state.consumers.get(timer.group_id)) is not None:
                self.consumers.expire(shard, consumers, timer)
            elif (share := shard.state.shares.get(timer.group_id)) is not None:
                self.shares.expire(shard, share, timer)
            else:
                self.classic.expire(shard, timer)
        except LogWriteFailed as failed:
            logger.warning(
                "group %s: the log refused the write of the %s timer, will retry: %s",
                timer.group_id,
                timer.kind.value,
                failed,
            )
            self.runtime.set_timer(timer, RETRY_MS)

    async def _sweep(self) -> None:
        while True:
            await trio.sleep(self.config.offsets_retention_check_interval_ms / 1000)
            for count in self._shards.forget_expired(self.config.offsets_retention_minutes * 60_000):
                self.tallies.expired_offsets += count
                await trio.lowlevel.checkpoint()
