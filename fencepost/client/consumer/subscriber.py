"""A consumer's subscription: its topics, its callbacks, and its reaction to assigned and revoked partitions."""

import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from re import Pattern
from typing import Any

import anyio

from fencepost.client.background import Background
from fencepost.client.config import ConsumerConfig
from fencepost.client.consumer.committer import Committer
from fencepost.client.consumer.fetcher import Fetcher
from fencepost.client.errors import KafkaError, RetriableError
from fencepost.client.group.classic import ClassicMembership
from fencepost.client.group.group_client import GroupClient
from fencepost.client.group.heartbeats import ConsumerMembership
from fencepost.client.group.membership import Membership
from fencepost.client.group.subscription import Subscription, Topics, subscription_to, wanted_topics
from fencepost.client.keywords import RebalanceCallback
from fencepost.client.network.cluster import Cluster, topic_error
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

_LOG = logging.getLogger(__name__)
CLOSE_COMMIT_MS = 5_000
_UNKNOWN_FOR_S = 1.0
"""How long a broker may not know a new topic."""


class Subscriber:
    """The part of a consumer that subscribes, alone or as a member of a group. Callbacks get `owner`."""

    def __init__(
        self,
        owner: object,
        cluster: Cluster,
        background: Background,
        config: ConsumerConfig,
        purpose: str,
        topics: tuple[Topics, ...],
        group: GroupClient,
        fetcher: Fetcher,
        committer: Committer,
    ) -> None:
        self._owner = owner
        self._cluster = cluster
        self._background = background
        self._config = config
        self._purpose = purpose
        self._group = group
        self._fetcher = fetcher
        self._committer = committer
        self._progress = committer.progress
        self.subscription = subscription_to(topics, None) if topics else None
        self.callbacks: dict[str, RebalanceCallback | None] = {
            "assigned": config.on_assigned,
            "revoked": config.on_revoked,
            "lost": config.on_lost,
        }
        self._progress.tracks_handled |= config.on_revoked is not None
        self._scopes: list[anyio.CancelScope] = []
        self._chosen = False  # by `assign`

    # -- for programs

    def subscribe(
        self,
        *topics: Topics,
        pattern: str | Pattern[str] | None = None,
        on_assigned: RebalanceCallback | None = None,
        on_revoked: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Read these topics, or all whose whole name matches `pattern`; replaces the former subscription.

        `subscribe("orders", "bills")`, `subscribe(["orders", "bills"])`, `subscribe(re.compile("orders-.*"))` and
        `subscribe(pattern="orders-.*")` all work.
        It takes effect in the background. Matching topics that are created later are read too: with KIP-848 when
        the broker sees them (the pattern is RE2's), else when they are found, every `metadata_max_age`.

        Callbacks are awaited with the consumer and the partitions; those not given stay as they were. `on_revoked`
        runs between two batches, and a commit in it still counts. `on_lost`: other members own these partitions
        already. An exception of a callback ends the client's block. Raises ConfigError for an invalid pattern,
        RuntimeError after `assign`.
        """
        subscription = subscription_to(topics, pattern)
        if self._chosen:
            raise RuntimeError("this consumer's partitions are assigned: unsubscribe first")
        for name, callback in (("assigned", on_assigned), ("revoked", on_revoked), ("lost", on_lost)):
            if callback is not None:
                self.callbacks[name] = callback
        self._progress.tracks_handled |= on_revoked is not None
        self.subscription = subscription
        if not self._progress.is_open:
            return
        if self._group.membership is not None:
            self._group.membership.subscribe(subscription)
            self._start(self._warn_of_unknown)
        else:
            self.end_tasks()
            self.begin_tasks()

    async def unsubscribe(self) -> None:
        """Stop reading and leave the group, as the end of the consumer's block does.

        With `enable_auto_commit`, processed records are committed first; then `on_revoked` is called. The batch in
        hand cannot be committed any more.
        """
        self.subscription = None
        self._chosen = False
        await self.end_membership()
        self._progress.lost = not self._progress.resting
        self._remove(frozenset(self._fetcher.states))
        membership, self._group.membership = self._group.membership, None
        if membership is not None:
            await membership.leave("the consumer has unsubscribed")

    async def end_membership(self) -> None:
        """End a membership: commit the records that the program has processed, and call `on_revoked`."""
        progress, membership = self._progress, self._group.membership
        if self._config.enable_auto_commit and self._group.group_id is not None:
            await self._committer.auto_commit(progress.done(), deadline_ms=CLOSE_COMMIT_MS)
        self.end_tasks()
        if membership is not None and membership.is_member:
            past = progress.asked_past()
            for partition, state in self._fetcher.states.items():
                if progress.resting or not progress.tracks_handled or state.position is None:
                    continue
                if partition in past:
                    state.position = past[partition].offset
                elif not state.back.unsaved:
                    state.position = state.back.point
            await self._call("revoked", frozenset(self._fetcher.states))

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read these partitions and no others, without rebalancing; commits still need a group.

        Raises RuntimeError while the consumer is subscribed.
        """
        if self.subscription is not None:
            raise RuntimeError("the group assigns this consumer's partitions: unsubscribe first")
        self._chosen = bool(partitions)
        self._committer.positions.assign(partitions)

    # -- tasks

    async def open(self) -> None:
        """Without a group: find the partitions of the topics. Raises KafkaError for a topic that does not exist."""
        if self._group.group_id is None and self.subscription is not None:
            for name in self.subscription.topics:
                await self._cluster.topic(name, create=False)
            look = partial(self._look_at, self.subscription)
            await self._cluster.policy.run(look, what="looking for the subscribed topics")

    def begin_tasks(self) -> None:
        """Start the subscription's tasks: a membership, or without a group a task that looks for new topics."""
        subscription = self.subscription
        if subscription is None:
            return
        if self._group.group_id is None:
            self._start(self._follow_topics)
            self._start(self._warn_of_unknown)
            return
        kind: type[Membership[Any]] = (
            ConsumerMembership if self._config.group_protocol == "consumer" else ClassicMembership
        )
        membership = self._group.membership = kind(self._cluster, self._config, subscription, self, self._purpose)
        for task in (membership.run, membership.send_heartbeats, membership.watch, self._warn_of_unknown):
            self._start(task)

    def _start(self, task: Callable[[], Awaitable[None]]) -> None:
        self._scopes.append(self._background.start_soon(task))

    def end_tasks(self) -> None:
        for scope in self._scopes:
            scope.cancel()
        self._scopes.clear()

    async def _warn_of_unknown(self) -> None:
        """Warn of topics that do not exist: the consumer waits for them without an error."""
        subscription = self.subscription
        await anyio.sleep(_UNKNOWN_FOR_S)
        if subscription is None or subscription is not self.subscription:
            return
        unknown = [name for name in subscription.topics if name not in self._cluster.topics]
        if not unknown:
            return
        retries = self._cluster.policy.loop(f"looking for topic {', '.join(map(repr, unknown))}")
        while True:
            try:
                rejected = await self._cluster.refresh(unknown)
                break
            except RetriableError as error:
                await retries.failed(error)
            except KafkaError as error:
                self.fail(error)
                return
        for name, code in rejected.items():
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                _LOG.warning(
                    "%s. This consumer has subscribed to it, and reads it once it exists", topic_error(name, code)
                )

    async def _follow_topics(self) -> None:
        """Without a group: read all partitions of the topics, also those created later."""
        subscription = self.subscription
        assert subscription is not None
        backoff = self._cluster.policy.backoff()
        while True:
            try:
                await self._look_at(subscription)
            except RetriableError:
                await backoff.pause()
                continue
            except KafkaError as error:
                self.fail(error)
                return
            backoff.reset()
            await anyio.sleep(self._cluster.config.metadata_max_age_ms / 1000)

    async def _look_at(self, subscription: Subscription) -> None:
        await self._cluster.refresh(subscription.topics if subscription.pattern is None else None)
        known = self._cluster.topics
        wanted = {
            TopicPartition(name, number)
            for name in wanted_topics(subscription, self._cluster)
            if name in known
            for number in range(len(known[name].partitions))
        }
        if new := wanted - self._fetcher.states.keys():
            self._committer.positions.assign([*self._fetcher.states, *sorted(new)])
        if gone := frozenset(partition for partition in self._fetcher.states if not subscription.fits(partition.topic)):
            self._remove(gone)

    # -- for the group's membership

    def at_rest(self) -> bool:
        return self._progress.resting

    def activity(self) -> object:
        progress = self._progress
        return None if progress.waits else (progress.requests, self._fetcher.metrics.records_consumed)

    async def revoke_partitions(self, partitions: frozenset[TopicPartition], *, lost: bool) -> None:
        if lost:
            self._progress.lost = not self._progress.resting
            self._committer.note_loss(partitions)
            self._remove(partitions)
            await self._call("lost", partitions)
            return
        for partition in partitions:
            self._fetcher.states[partition].withhold(True)
        if self._config.enable_auto_commit:
            due = {p: place for p, place in self._progress.uncommitted().items() if p in partitions}
            await self._committer.auto_commit(due)
        await self._call("revoked", partitions)
        self._committer.note_loss(partitions)
        self._remove(partitions)

    async def assign_partitions(self, partitions: frozenset[TopicPartition]) -> None:
        """Add the partitions, call `on_assigned`, which may seek, then read them."""
        new = {partition: self._fetcher.new_state(partition) for partition in sorted(partitions)}
        for state in new.values():
            state.withhold(True)
        self._fetcher.states = {**self._fetcher.states, **new}
        self._fetcher.metrics.rebalances += 1
        self._fetcher.wake()
        await self._call("assigned", partitions)
        for state in new.values():
            state.withhold(False)
        self._fetcher.wake()
        self._fetcher.announce()

    def fail(self, error: KafkaError) -> None:
        self._fetcher.fail(error)

    def _remove(self, partitions: frozenset[TopicPartition]) -> None:
        states = dict(self._fetcher.states)
        for partition in partitions:
            state = states.pop(partition, None)
            if state is not None:
                state.jump(None)
        self._fetcher.states = states
        self._fetcher.announce()  # tasks that wait for a position of these must check again

    async def _call(self, event: str, partitions: frozenset[TopicPartition]) -> None:
        callback = self.callbacks[event]
        if callback is not None and partitions:
            await callback(self._owner, partitions)
