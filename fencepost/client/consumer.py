"""The consumer: records in batches or one by one, as a member of a group or with partitions of one's own choice."""

from types import TracebackType
from typing import Any, Self

import trio

from fencepost.client.background import Background
from fencepost.client.cluster import Cluster
from fencepost.client.config import ConsumerConfig
from fencepost.client.consumed import K, V
from fencepost.client.errors import KafkaError
from fencepost.client.membership import Membership
from fencepost.client.reading import Reading, reader_in_hand
from fencepost.client.txn_requests import CommittedOffset
from fencepost.protocol.topics import TopicPartition


def in_hand() -> "Consumer[Any, Any] | None":
    """The group consumer whose batch this task works on, if any."""
    reader = reader_in_hand()
    return reader if isinstance(reader, Consumer) else None


class Consumer(Reading[K, V]):
    """Reads topics; open it with `async with kafka.consumer("orders", group="billing")`.

    With a group it is a member from the start and partitions come and go between two batches; without one it reads
    every partition of its topics, or what `assign` says. What goes wrong in the background is raised by the next call.
    """

    def __init__(
        self, cluster: Cluster, background: Background, topics: tuple[str, ...], config: ConsumerConfig, purpose: str
    ) -> None:
        super().__init__(cluster, config, purpose)
        self._background = background
        self._topics = topics
        self._scopes: list[trio.CancelScope] = []

    # -- life

    async def __aenter__(self) -> Self:
        self._open = True
        self._committed_at = trio.current_time()
        self._scopes.append(self._background.start_soon(self._fetcher.run))
        if self.group_id is not None and self._topics:
            self._membership = Membership(self._cluster, self._config, self._topics, self, self._purpose)
            self._scopes.append(self._background.start_soon(self._run_membership, self._membership))
        elif self._topics:
            partitions = []
            for name in self._topics:
                info = await self._cluster.topic(name, create=False)
                partitions += [TopicPartition(name, number) for number in range(len(info.partitions))]
            self._assign(partitions)
        await trio.lowlevel.checkpoint()
        return self

    async def _run_membership(self, membership: Membership) -> None:
        try:
            await membership.run()
        except KafkaError as error:
            self._fetcher.fail(error)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        try:
            if error is None and self._config.enable_auto_commit:
                self._hand = None
                await self._commit_positions()
        finally:
            for scope in self._scopes:
                scope.cancel()
            self._hand = None
            self._resting = True
            if self._membership is not None:
                await self._membership.leave()
            self._fetcher.states = {}
            self._fetcher.close_sessions(self._background)
            for suffix in ("", "-join"):
                self._cluster.release(self._purpose + suffix)

    # -- what membership asks

    async def revoke(self) -> None:
        """The group rebalances: commit what is due, stop reading."""
        states = self._fetcher.states
        self._fetcher.states = {}
        if self._config.enable_auto_commit and self._membership is not None:
            done = {
                partition: CommittedOffset(state.position, state.leader_epoch)
                for partition, state in states.items()
                if state.position is not None and state.position != state.rewind_point
            }
            if done:
                await self._commit(self._membership.metadata, done)

    def lose(self) -> None:
        """The group has given our partitions to others: whatever is in hand can not be committed."""
        self._fetcher.states = {}

    def assign_from_group(self, partitions: list[TopicPartition]) -> None:
        """The partitions of a new generation."""
        self._rewind_due = False
        self._fetcher.states = {partition: self._fetcher.new_state(partition) for partition in partitions}
        self._fetcher.metrics.rebalances += 1
        self._fetcher.wake()
        self._fetcher.announce()
