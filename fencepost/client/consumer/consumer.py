"""The consumer: records in batches or one by one, as a member of a group or with partitions of one's own choice."""

from types import TracebackType
from typing import Any, Self

import trio

from fencepost.client.background import Background
from fencepost.client.config import ConsumerConfig
from fencepost.client.consumer.consumed import K, V
from fencepost.client.consumer.reading import reader_in_hand
from fencepost.client.group.subscriber import Subscriber
from fencepost.client.network.cluster import Cluster


def in_hand() -> "Consumer[Any, Any] | None":
    """The group consumer whose batch this task works on, if any."""
    reader = reader_in_hand()
    return reader if isinstance(reader, Consumer) else None


class Consumer(Subscriber[K, V]):
    """Reads topics; open it with `async with kafka.consumer("orders", group="billing")`.

    With a group it is a member from the start and partitions come and go between two batches; without one it reads
    every partition of its topics, or what `assign` says. What goes wrong in the background is raised by the next call.
    """

    def __init__(
        self, cluster: Cluster, background: Background, topics: tuple[str, ...], config: ConsumerConfig, purpose: str
    ) -> None:
        super().__init__(cluster, background, topics, config, purpose)
        self._scopes: list[trio.CancelScope] = []

    async def __aenter__(self) -> Self:
        await trio.lowlevel.checkpoint()
        if self.group_id is None and self._interest is not None:
            for name in self._interest.topics:
                await self._cluster.topic(name, create=False)
            await self._look_at(self._interest)
        # Nothing is waited for from here on: what begins now, above all a membership, ends in `__aexit__`.
        self._open = True
        self._committed_at = trio.current_time()
        self._scopes.append(self._background.start_soon(self._fetcher.run))
        if self.group_id is not None and self._config.enable_auto_commit:
            self._scopes.append(self._background.start_soon(self._commit_now_and_then))
        self._begin_group_tasks()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        try:
            if error is None:
                await self._hand_back()
        finally:
            for scope in self._scopes:
                scope.cancel()
            self._end_group_tasks()
            self._resting = True
            if self._whole is not None:
                self._whole.close()
            if self._membership is not None:
                await self._membership.leave("the consumer is being closed")
            self._fetcher.states = {}
            self._fetcher.close_sessions(self._background)
            for suffix in ("", "-join"):
                self._cluster.release(self._purpose + suffix)
