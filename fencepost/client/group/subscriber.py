"""A consumer's subscription: what it wants, how it is told of what it gets, and what it does when partitions go."""

from collections.abc import Awaitable, Callable, Collection
from re import Pattern
from typing import Any

import trio

from fencepost.client.background import Background
from fencepost.client.config import ConsumerConfig
from fencepost.client.consumer.consumed import K, V
from fencepost.client.consumer.reading import Reading
from fencepost.client.core.group_types import CommittedOffset
from fencepost.client.errors import KafkaError, RetriableError
from fencepost.client.group.classic import ClassicMembership
from fencepost.client.group.heartbeats import ConsumerMembership
from fencepost.client.group.interest import Interest, interest_in
from fencepost.client.group.membership import Membership
from fencepost.client.network.cluster import Cluster
from fencepost.protocol.topics import TopicPartition

Told = Callable[[Any, frozenset[TopicPartition]], Awaitable[None]]
"""A callback: `await on_revoked(consumer, partitions)`."""
CLOSE_COMMIT_MS = 5_000


class Subscriber(Reading[K, V]):
    """The part of a consumer that subscribes, alone or as a member of a group."""

    def __init__(
        self, cluster: Cluster, background: Background, topics: tuple[str, ...], config: ConsumerConfig, purpose: str
    ) -> None:
        super().__init__(cluster, config, purpose)
        self._background = background
        self._interest = Interest(topics) if topics else None
        self._callbacks: dict[str, Told | None] = {
            "assigned": config.on_assigned,
            "revoked": config.on_revoked,
            "lost": config.on_lost,
        }
        self._minds_hand |= config.on_revoked is not None
        self._group_scopes: list[trio.CancelScope] = []
        self._chosen = False  # by `assign`

    # -- what the program wants

    @property
    def subscription(self) -> Interest | None:
        """The topics or the pattern that are subscribed to; None with `assign`, or without any."""
        return self._interest

    def subscribe(
        self,
        *topics: str,
        pattern: str | Pattern[str] | None = None,
        on_assigned: Told | None = None,
        on_revoked: Told | None = None,
        on_lost: Told | None = None,
    ) -> None:
        """Read these topics, or all whose whole name fits `pattern`, in the place of what was subscribed to before.

        It takes effect in the background. Topics that come later and fit are read too: with the KIP-848 protocol when
        the broker sees them (the pattern is RE2's), else when they are found, every `metadata_max_age_ms`.

        Callbacks are awaited with the consumer and the partitions; those not given stay as they were. `on_revoked`:
        these go, between two batches; a commit still counts. `on_lost`: they are somebody else's already. What a
        callback raises ends the client's block. Raises ConfigError for a pattern that is none, RuntimeError after
        `assign`.
        """
        interest = interest_in(topics, pattern)
        if self._chosen:
            raise RuntimeError("this consumer's partitions are assigned: unsubscribe first")
        for name, told in (("assigned", on_assigned), ("revoked", on_revoked), ("lost", on_lost)):
            if told is not None:
                self._callbacks[name] = told
        self._minds_hand |= on_revoked is not None
        self._interest = interest
        if not self._open:
            return
        if self._membership is not None:
            self._membership.subscribe(interest)
        else:
            self._end_group_tasks()
            self._begin_group_tasks()

    async def unsubscribe(self) -> None:
        """Read nothing any more, and leave the group, as the end of the consumer's block does.

        What the program has asked past is committed first, if `enable_auto_commit`; then `on_revoked` is told. What is
        in hand can not be committed any more.
        """
        self._interest = None
        self._chosen = False
        await self._hand_back()
        self._lost_in_hand = not self._resting
        self._put_down(frozenset(self._fetcher.states))
        membership, self._membership = self._membership, None
        if membership is not None:
            await membership.leave("the consumer has unsubscribed")

    async def _hand_back(self) -> None:
        """The end of a membership in good order: commit what is done with, and tell the program that all goes."""
        if self._config.enable_auto_commit and self.group_id is not None:
            await self._auto_commit(self._done(), deadline_ms=CLOSE_COMMIT_MS)
        self._end_group_tasks()
        if self._membership is not None and self._membership.is_member:
            past = self._asked_past()
            for partition, state in self._fetcher.states.items():
                if self._resting or not self._minds_hand or state.position is None:
                    continue
                if partition in past:
                    state.position = past[partition].offset
                elif not state.back.unsaved:
                    state.position = state.back.point
            await self._tell("revoked", frozenset(self._fetcher.states))

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read these partitions and no others, without a group's rebalancing; committing needs a group name still.

        Raises RuntimeError while the consumer is subscribed.
        """
        if self._interest is not None:
            raise RuntimeError("the group assigns this consumer's partitions: unsubscribe first")
        self._chosen = bool(partitions)
        self._assign(partitions)

    # -- tasks

    def _begin_group_tasks(self) -> None:
        """Be what the subscription makes of us."""
        interest = self._interest
        if interest is None:
            return
        if self.group_id is None:
            self._start(self._follow_topics)
            return
        kind: type[Membership] = ConsumerMembership if self._config.group_protocol == "consumer" else ClassicMembership
        membership = self._membership = kind(self._cluster, self._config, interest, self, self._purpose)
        for task in (membership.run, membership.beat, membership.watch):
            self._start(task)

    def _start(self, task: Callable[[], Awaitable[None]]) -> None:
        self._group_scopes.append(self._background.start_soon(task))

    def _end_group_tasks(self) -> None:
        for scope in self._group_scopes:
            scope.cancel()
        self._group_scopes.clear()

    async def _follow_topics(self) -> None:
        """Without a group: all partitions of the topics, also those that come later."""
        interest = self._interest
        assert interest is not None
        backoff = self._cluster.policy.backoff()
        while True:
            try:
                await self._look_at(interest)
            except RetriableError:
                await backoff.pause()
                continue
            except KafkaError as error:
                self.fail(error)
                return
            backoff.reset()
            await trio.sleep(self._cluster.config.metadata_max_age_ms / 1000)

    async def _look_at(self, interest: Interest) -> None:
        await self._cluster.refresh(interest.topics if interest.pattern is None else None)
        known = self._cluster.topics
        wanted = {
            TopicPartition(name, number)
            for name in interest.among(self._cluster)
            if name in known
            for number in range(len(known[name].partitions))
        }
        if new := wanted - self._fetcher.states.keys():
            self._assign([*self._fetcher.states, *sorted(new)])
        if gone := frozenset(partition for partition in self._fetcher.states if not interest.fits(partition.topic)):
            self._put_down(gone)

    async def _commit_now_and_then(self) -> None:
        """With `enable_auto_commit`: what is done with is committed also while the program waits for more."""
        interval_s = self._config.auto_commit_interval_ms / 1000
        while True:
            await trio.sleep(max(self._committed_at + interval_s - trio.current_time(), interval_s / 2))
            if self._resting and trio.current_time() - self._committed_at >= interval_s:
                self._committed_at = trio.current_time()
                await self._auto_commit(self._positions())

    # -- what the group does

    def sign_of_life(self) -> object:
        """Another value whenever the program has asked for something; None while it waits for records."""
        return None if self._waits else (self._asked, self._fetcher.metrics.records_consumed)

    async def give_up(self, partitions: frozenset[TopicPartition], *, lost: bool) -> None:
        """These partitions go: commit what is due (unless they are lost), tell the program, stop reading."""
        if lost:
            self._lost_in_hand = not self._resting
            self._note_loss(partitions)
            self._put_down(partitions)
            await self._tell("lost", partitions)
            return
        for partition in partitions:
            self._fetcher.states[partition].withhold(True)
        if self._config.enable_auto_commit:
            await self._auto_commit({p: place for p, place in self._positions().items() if p in partitions})
        await self._tell("revoked", partitions)
        self._note_loss(partitions)
        self._put_down(partitions)

    async def take(self, partitions: frozenset[TopicPartition]) -> None:
        """These partitions come: tell the program, which may seek, and read them."""
        new = {partition: self._fetcher.new_state(partition) for partition in sorted(partitions)}
        for state in new.values():
            state.withhold(True)
        self._fetcher.states = {**self._fetcher.states, **new}
        self._fetcher.metrics.rebalances += 1
        self._fetcher.wake()
        await self._tell("assigned", partitions)
        for state in new.values():
            state.withhold(False)
        self._fetcher.wake()
        self._fetcher.announce()

    def fail(self, error: KafkaError) -> None:
        """The program's next call raises this."""
        self._fetcher.fail(error)

    def _put_down(self, partitions: frozenset[TopicPartition]) -> None:
        states = dict(self._fetcher.states)
        for partition in partitions:
            state = states.pop(partition, None)
            if state is not None:
                state.jump(None)
        self._fetcher.states = states
        self._fetcher.announce()  # who waits for a position of these will get none

    async def _tell(self, what: str, partitions: frozenset[TopicPartition]) -> None:
        told = self._callbacks[what]
        if told is not None and partitions:
            await told(self, partitions)

    def _done(self) -> dict[TopicPartition, CommittedOffset]:
        """What the program is done with and has not committed: all it has asked past, and nothing that is in hand."""
        if self._resting:
            return self._positions()
        states = self._fetcher.states
        return {p: place for p, place in self._asked_past().items() if place.offset != states[p].committed}

    def _asked_past(self) -> dict[TopicPartition, CommittedOffset]:
        """How far the program is done, by its asking for more, its commits and its seeks; while a batch is in hand."""
        states = self._fetcher.states
        done = {partition: place for partition, place in self._handled.items() if partition in states}
        state = self._current
        if state is not None and states.get(state.partition) is state and self._gave_one:
            offset = state.last_given()
            known = done.get(state.partition)
            if offset is not None and (known is None or known.offset < offset):
                done[state.partition] = CommittedOffset(offset, state.leader_epoch)
        return done
