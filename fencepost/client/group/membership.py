"""Both group protocols: partitions change only between two batches, and a member whose program stops reading leaves.

A membership has three tasks. `run` carries out the machine's steps. `send_heartbeats` runs beside it, so that neither
a callback of the program nor a batch in its hand delays heartbeats. `watch` checks that the program keeps reading.
"""

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Generic, Protocol, TypeVar

import anyio

from fencepost.client.background import shielded
from fencepost.client.config import ConsumerConfig
from fencepost.client.core.group_steps import Assign, Fail, Revoke, Step
from fencepost.client.core.group_types import GroupMetadata
from fencepost.client.errors import FatalError, KafkaError, RetriableError, code_of, error_for
from fencepost.client.group.subscription import Subscription, wanted_topics
from fencepost.client.network.cluster import GROUP, Cluster, Request
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.schema import ResponseValue
from fencepost.protocol.topics import TopicPartition

logger = logging.getLogger(__name__)
T = TypeVar("T")
R = TypeVar("R", bound=ResponseValue)
LEAVE_GRACE_S = 2.0
_LOOKS_PER_INTERVAL = 10
_LOOK_S_MAX = 1.0
LONG_WAIT_S = 10.0
"""Partitions that others must revoke come within this time, unless a member is busy or has crashed."""


class Reader(Protocol):
    """What a membership needs of its consumer."""

    def at_rest(self) -> bool:
        """Whether no batch is in the program's hand, so that partitions may change."""

    def activity(self) -> object:
        """A value that changes whenever the program reads; None while it waits for records."""

    async def revoke_partitions(self, partitions: frozenset[TopicPartition], *, lost: bool) -> None:
        """Commit what is due (unless the partitions are lost), call the program's callback, stop reading."""

    async def assign_partitions(self, partitions: frozenset[TopicPartition]) -> None:
        """Call the program's callback, then read these partitions."""

    def fail(self, error: KafkaError) -> None:
        """The program's next call raises this."""


class Machine(Protocol):
    """The state machine of a member: `core.classic_member` or `core.consumer_member`."""

    @property
    def has_lost(self) -> bool: ...
    def step(self) -> Step: ...
    def revoked(self, partitions: frozenset[TopicPartition], *, lost: bool) -> None: ...
    def assigned(self, partitions: frozenset[TopicPartition]) -> None: ...


M = TypeVar("M", bound=Machine)


class Membership(ABC, Generic[M]):
    """One member of one group, from its tasks' start to `leave`."""

    _machine: M

    def __init__(
        self, cluster: Cluster, config: ConsumerConfig, subscription: Subscription, reader: Reader, purpose: str
    ) -> None:
        assert config.group_id is not None
        self._cluster = cluster
        self._config = config
        self._subscription = subscription
        self._reader = reader
        self._purpose = purpose
        self.group_id = config.group_id
        self._metadata = GroupMetadata(self.group_id, instance_id=config.group_instance_id)
        self._wake = anyio.Event()
        self._moved = anyio.Event()
        self._revoking = False
        self._away = False
        self._failed = False
        self._ended = False
        self._run_scope = anyio.CancelScope()
        self._waiting_since: float | None = None
        self._has_warned = False
        self._backoff = cluster.policy.loop(f"being a member of group {config.group_id!r}")

    # -- for the consumer

    @property
    def metadata(self) -> GroupMetadata:
        """Group, generation (or epoch) and member for offset commits (KIP-447); one object per generation."""
        generation, member_id = self._identity()
        known = self._metadata
        if known.generation != generation or known.member_id != member_id:
            instance_id = self._config.group_instance_id
            known = self._metadata = GroupMetadata(self.group_id, generation, member_id, instance_id)
        return known

    @property
    def is_member(self) -> bool:
        """Whether this is a member of the group now, as far as it knows."""
        return self._identity()[0] >= 0

    @property
    def is_rejoining(self) -> bool:
        """Whether a join with the same member id is under way: its response shows whether the member still exists."""
        return False

    def resting(self) -> None:
        """The program is done with its batch: a waiting revocation may continue."""
        if self._revoking or self._away:
            self._notify()

    async def wait_for_revocation(self) -> None:
        """Wait, without a batch in hand, while the group revokes partitions; return at once if it revokes none."""
        while (self._revoking or self._machine.has_lost) and not self._ended:
            await self._moved.wait()

    def subscribe(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._subscribed()
        self._notify()

    @abstractmethod
    def commit_rejected(self, group: GroupMetadata, code: ErrorCode) -> None:
        """A commit as the member in `group` was rejected with `code`: update the membership."""

    @abstractmethod
    async def send_heartbeats(self) -> None:
        """Send heartbeats until cancelled, or until the group rejects this member."""

    # -- for each protocol

    @abstractmethod
    def _identity(self) -> tuple[int, str]:
        """Generation and member id; (-1, "") outside of the group."""

    @property
    @abstractmethod
    def _awaits_partitions(self) -> bool:
        """Whether the group has not assigned partitions to this member, as far as it knows."""

    @abstractmethod
    async def _do(self, step: Step) -> None:
        """Carry out a step that only this protocol has; without one, sleep."""

    @abstractmethod
    def _subscribed(self) -> None: ...

    @abstractmethod
    async def _leave_group(self, reason: str) -> None:
        """Send the request to leave, if the member must send one."""

    @abstractmethod
    def _expel(self, reason: str) -> None:
        """Put the machine outside of the group; its partitions are lost."""

    # -- tasks

    async def run(self) -> None:
        """Be a member until cancelled, or until the group rejects this member: then the reader fails."""
        try:
            while True:
                with anyio.CancelScope() as self._run_scope:
                    while await self._advance(self._machine.step()):
                        pass
                    return
                await self._leave_until_next_read()
        finally:
            self._ended = True
            self._revocation_done()

    async def _advance(self, step: Step) -> bool:
        match step:
            case Revoke():
                await self._revoke(step)
            case Assign():
                await self._reader.assign_partitions(step.partitions)
                self._machine.assigned(step.partitions)
                self._notify()
            case Fail(code, api):
                self._reader.fail(error_for(code, f"group {self.group_id!r} rejected this member", api=api))
                return False
            case _:
                await self._do(step)
                return not self._failed
        return True

    async def _revoke(self, step: Revoke) -> None:
        self._revoking = True
        try:
            while not step.lost and not self._reader.at_rest():
                await self._sleep()
                if self._machine.step() != step:
                    return  # lost meanwhile, or another step is due
            await self._reader.revoke_partitions(step.partitions, lost=step.lost)
            self._machine.revoked(step.partitions, lost=step.lost)
            self._notify()
        finally:
            self._revocation_done()

    def _revocation_done(self) -> None:
        self._revoking = False
        self._moved.set()
        self._moved = anyio.Event()

    async def _sleep(self, seconds: float | None = None) -> None:
        with anyio.move_on_after(math.inf if seconds is None else seconds):
            await self._wake.wait()

    def _notify(self) -> None:
        self._wake.set()
        self._wake = anyio.Event()

    async def watch(self) -> None:
        """Check that the program reads within `max_poll_interval`; leave the group if it does not."""
        limit_s = self._config.max_poll_interval_ms / 1000
        sign, seen = self._reader.activity(), anyio.current_time()
        while True:
            await anyio.sleep(min(limit_s / _LOOKS_PER_INTERVAL, _LOOK_S_MAX))
            await self._warn_of_wait()
            new = self._reader.activity()
            if new is None or new != sign:
                sign, seen = new, anyio.current_time()
            elif anyio.current_time() - seen > limit_s and not self._away:
                self._away = True
                self._run_scope.cancel()

    async def _warn_of_wait(self) -> None:
        """Warn once why a member without partitions waits; other warnings report brokers that do not answer."""
        if not self._awaits_partitions or self._away or self._backoff.failing:
            self._waiting_since, self._has_warned = None, False
        elif self._waiting_since is None:
            self._waiting_since = anyio.current_time()
        elif not self._has_warned and anyio.current_time() - self._waiting_since > LONG_WAIT_S:
            self._has_warned = True
            waited_s = anyio.current_time() - self._waiting_since
            reason = await self._reason_of_wait()
            logger.warning(
                "group %s: this member has waited %.0f s for partitions. %s", self.group_id, waited_s, reason
            )

    async def _reason_of_wait(self) -> str:
        wanted = self._subscription
        try:
            await self._cluster.refresh(wanted.topics if wanted.pattern is None else None)
        except KafkaError as error:
            return f"Whether its topics exist is not known now: {error}"
        if wanted_topics(wanted, self._cluster).isdisjoint(self._cluster.topics):
            return f"The broker has no topic of its subscription ({wanted}), or its user may not see it"
        return (
            "Other members may have them all. One that crashed keeps its own until its session ends (session_timeout,"
            f" {self._config.session_timeout_ms / 1000:g} s here), unless its successor has its group_instance_id"
        )

    async def _leave_until_next_read(self) -> None:
        """The program does not read: leave, so that other members get the partitions, and join again when it reads."""
        reason = f"the program has not asked for records for {self._config.max_poll_interval_ms} ms"
        logger.warning(
            "group %s: this member leaves, because %s (max_poll_interval). It joins again at the next read",
            self.group_id,
            reason,
        )
        sign = self._reader.activity()
        await self._leave_group(reason)
        self._expel(reason)
        step = self._machine.step()
        if isinstance(step, Revoke):
            await self._reader.revoke_partitions(step.partitions, lost=True)
            self._machine.revoked(step.partitions, lost=step.lost)
            self._notify()
        self._revocation_done()
        while self._reader.activity() == sign:
            await self._sleep(_LOOK_S_MAX)
        self._away = False

    async def leave(self, reason: str) -> None:
        """Leave the group at once, within two seconds; a static member stays for its successor (KIP-345)."""
        cancelled = await shielded(LEAVE_GRACE_S, lambda: self._leave_group(reason))
        self._expel(reason)
        if cancelled is not None:
            raise cancelled

    # -- requests

    async def _ask(self, request: Request[R], **more: Any) -> R:
        return await self._cluster.ask_coordinator(GROUP, self.group_id, request, _code_in, **more)

    async def _attempt(self, call: Callable[[], Awaitable[T]]) -> T | None:
        """One call; None, after a pause, if a retry may succeed. The reader fails with any other error."""
        try:
            response = await call()
        except RetriableError as error:
            await self._backoff.failed(error)
            return None
        except KafkaError as error:
            self._fail(error)
            return None
        self._backoff.reset()
        return response

    def _fail(self, error: KafkaError) -> None:
        """The group rejects this member: raise that in the program, and end."""
        self._reader.fail(error)
        self._failed = True

    async def _send_leave(self, request: Request[Any]) -> None:
        """Send a request whose response does not matter."""
        try:
            response = await self._ask(request, purpose=self._purpose)
        except (RetriableError, FatalError) as error:
            logger.debug(
                "group %s: leaving failed; the broker removes this member when its session ends: %s",
                self.group_id,
                error,
            )
            return
        if response.error_code:
            logger.debug(
                "group %s: the broker answered the request to leave with %s",
                self.group_id,
                code_of(response.error_code).name,
            )


def _code_in(response: Any) -> int:
    return int(response.error_code)
