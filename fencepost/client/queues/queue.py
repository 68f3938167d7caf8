"""The queue: the records of topics as messages, each for one member of a share group (KIP-932)."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from types import TracebackType
from typing import Generic, Self

import anyio

from fencepost.client.background import Background, shielded
from fencepost.client.config import QueueConfig
from fencepost.client.core.numbers import whole_number
from fencepost.client.errors import FatalError
from fencepost.client.group.subscription import subscription_to
from fencepost.client.key_value import K, V
from fencepost.client.network.cluster import Cluster
from fencepost.client.queues.exchange import Exchange
from fencepost.client.queues.hand import Hand
from fencepost.client.queues.membership import NEEDS, ShareMembership
from fencepost.client.queues.message import Message
from fencepost.client.queues.metrics import QueueMetrics
from fencepost.client.queues.share_requests import SINCE
from fencepost.protocol.api_keys import ApiKey

_LOG = logging.getLogger(__name__)
_GRACE_S = 2.0
"""How long a block that ends with an exception waits for its acknowledgements, and for the response to its leaving."""


class Queue(Generic[K, V]):
    """Messages for this member; open it with `async with kafka.queue("orders", group="workers")`.

    Several tasks may iterate over it. The end of the block waits for the messages that other tasks process, sends the
    acknowledgements, releases the messages that are undecided, and leaves the group. The next call raises an error of
    the background.
    """

    def __init__(
        self,
        cluster: Cluster,
        background: Background,
        topics: tuple[str | Iterable[str], ...],
        config: QueueConfig,
        purpose: str,
    ) -> None:
        self.topics = subscription_to(topics, None).topics
        self.group_id = config.group_id
        self._cluster = cluster
        self._background = background
        self._config = config
        self._purpose = purpose
        self._hand = Hand(cluster, config)
        self._membership = ShareMembership(cluster, config, self.topics, self._hand, purpose)
        self._exchange = Exchange(cluster, config, self.topics, self._hand, self._membership, purpose)
        self._scopes: list[anyio.CancelScope] = []

    def __repr__(self) -> str:
        held = f"{self._hand.held.in_flight} messages in flight"
        return f"<Queue of {', '.join(self.topics)}: group {self.group_id!r}, {held}>"

    async def __aenter__(self) -> Self:
        """Raises FatalError if the broker has no share groups."""
        connection = await self._cluster.policy.run(self._cluster.any_connection, what="opening a queue")
        if connection.session.versions.get(ApiKey.SHARE_FETCH, (0, -1))[1] < SINCE:
            raise FatalError(f"this broker has no share groups: {NEEDS}", api="ShareFetch", node=connection.node)
        self._scopes.append(self._background.start_soon(self._membership.run))
        self._scopes.append(self._background.start_soon(self._exchange.run))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        hand = self._hand
        self.stop()
        try:
            if error is None:
                await hand.wait_until(lambda: not hand.has_open_blocks)
        finally:
            grace_s = self._cluster.config.default_api_timeout_ms / 1000 if error is None else _GRACE_S
            cancelled = await shielded(grace_s, self._settle)
            for scope in self._scopes:
                scope.cancel()
            hand.give_up()
            cancelled = await shielded(_GRACE_S, self._membership.leave) or cancelled
            self._exchange.release()
            self._cluster.release(self._purpose)
            if cancelled is not None and error is None:
                raise cancelled

    async def _settle(self) -> None:
        """Send all acknowledgements, and end the sessions."""
        self._hand.release_all()
        await self._exchange.is_over.wait()

    def stop(self) -> None:
        """Take no more messages: iterations end, and `run` returns when its handlers have ended.

        Messages that wait for the program are released. For signal handlers, and other tasks.
        """
        self._hand.is_stopping = True
        for message in self._hand.buffer:
            self._hand.held.release_now(message._record)
        self._hand.buffer.clear()
        self._hand.notify()

    @property
    def lost(self) -> int:
        """How many messages lost their locks, or their acknowledgements, so far; these may be delivered again."""
        return self._hand.lost

    def metrics(self) -> QueueMetrics:
        """This queue's metrics now, under the names of Kafka's share consumer."""
        return self._exchange.metrics.snapshot(len(self._membership.machine.assignment), self._hand.held.in_flight)

    def __aiter__(self) -> AsyncIterator[Message[K, V]]:
        """One message at a time. Ends after `stop`; raises the error of the background."""
        return _Messages(self._hand)

    async def run(self, handler: Callable[[Message[K, V]], Awaitable[object]], *, workers: int = 1) -> None:
        """Call `await handler(message)` for each message in its block, in up to `workers` tasks, until `stop`.

        An exception of the handler is logged with its traceback, and releases the message; the worker continues.
        Raises the error of the background once all handlers have ended.
        """
        count = whole_number("workers", workers, 1)
        failures: list[Exception] = []

        async def work() -> None:
            while (message := await self._hand.next()) is not None:
                try:
                    async with message:
                        await handler(message)
                except Exception:  # noqa: BLE001 - it is logged
                    _LOG.exception("queue of %s: the handler failed, %r is released", self.group_id, message)

        async def work_or_fail() -> None:
            try:
                await work()
            except Exception as error:  # noqa: BLE001 - raised below, once the others have ended
                failures.append(error)

        async with anyio.create_task_group() as group:
            for _ in range(count):
                group.start_soon(work_or_fail)
        if failures:
            raise failures[0]


class _Messages(AsyncIterator[Message[K, V]]):
    """The messages of a queue, for one loop."""

    def __init__(self, hand: Hand) -> None:
        self._hand = hand

    async def __anext__(self) -> Message[K, V]:
        message = await self._hand.next()
        if message is None:
            raise StopAsyncIteration
        return message
