"""Our client's group machines against our coordinator's: time, freezes, lost answers, and who owns what meanwhile."""

import random
import uuid
from collections.abc import Callable, Sequence

import trio
import trio.lowlevel

from fencepost.client.core.assignors import strategies
from fencepost.client.core.classic_member import ClassicMember, Joined, JoinedMember
from fencepost.client.core.consumer_member import (
    ConsumerHeartbeat,
    ConsumerMember,
    DesiredSubscription,
    HeartbeatResult,
)
from fencepost.client.core.group_steps import Assign, CountPartitions, Fail, Join, Resolve, Revoke, Stay, Sync
from fencepost.coordinator.group import commands
from fencepost.coordinator.group.commands import MemberName
from fencepost.coordinator.group.config import GroupConfig
from fencepost.coordinator.group.consumer.requests import Heartbeat
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from tests.unit.group.kit import Topics, World

SESSION_MS = 10_000
REBALANCE_MS = 60_000
BEAT_S = 1.0


class Stage:
    """One group, its players, and the oracle. `seed` decides all that chance decides."""

    def __init__(self, seed: int, faults: bool = True) -> None:
        self.random = random.Random(seed)
        self.faults = faults
        self.topics = Topics("t", "u")
        config = GroupConfig(group_initial_rebalance_delay_ms=0, group_consumer_session_timeout_ms=SESSION_MS)
        self.world = World(config, topics=self.topics)
        self.service = self.world.service
        self.players: list[Player] = []
        self.moves: list[tuple[str, str, frozenset[TopicPartition]]] = []

    def check(self) -> None:
        """No partition is owned by two, apart from those that slept through the end of their session."""
        seen: dict[TopicPartition, str] = {}
        for player in self.players:
            if player.asleep:
                continue
            for partition in player.owned:
                assert partition not in seen, f"{partition} of {player.name} and {seen[partition]}: {self.moves[-12:]}"
                seen[partition] = player.name

    def owned(self) -> list[TopicPartition]:
        """All that anybody owns."""
        return sorted(partition for player in self.players for partition in player.owned)

    def wanted(self) -> list[TopicPartition]:
        """All that anybody wants."""
        names = {name for player in self.players for name in player.topics if name in self.topics.names}
        return sorted(TopicPartition(name, number) for name in names for number in range(3))


class Player:
    """A member: it runs its machine, and now and then a response is lost or it sleeps."""

    machine: ClassicMember | ConsumerMember

    def __init__(self, stage: Stage, name: str, topics: Sequence[str], instance_id: str | None = None) -> None:
        self.stage, self.name, self.topics, self.instance_id = stage, name, tuple(topics), instance_id
        self.owned: set[TopicPartition] = set()
        self.asleep = False
        """It slept, and has not heard since whether its session is over."""
        self._sleeps_until = 0.0
        self.failed: Fail | None = None
        self.scope = trio.CancelScope()
        self.wake = trio.Event()

    async def run(self) -> None:
        """Play until cancelled, then be gone."""
        with self.scope:
            await self.play()
        self.owned.clear()
        self.stage.players.remove(self)

    async def play(self) -> None:
        """Be a member."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.beat)
            while self.failed is None:
                await self._step()
            nursery.cancel_scope.cancel()

    async def beat(self) -> None:
        """Heartbeats, for ever."""
        raise NotImplementedError

    async def do(self, step: Join | CountPartitions | Sync | Resolve) -> None:
        """What only members of this protocol do."""
        raise NotImplementedError

    async def _step(self) -> None:
        machine = self.machine
        await self.awake()
        match machine.step():
            case Revoke() as step:
                await trio.sleep(self.stage.random.choice([0.0, 0.1, 2.0]))
                await self.awake()
                if machine.step() == step:  # meanwhile it may have been lost
                    self.put_down(step)
                    machine.revoked(step.partitions, lost=step.lost)
            case Assign() as step:
                self.take(step)
                machine.assigned(step.partitions)
            case Fail() as step:
                self.failed = step
            case Stay():
                await self.until_woken(1_000)
            case step:
                await self.do(step)

    def put_down(self, step: Revoke) -> None:
        """What the machine says goes."""
        assert step.partitions <= self.owned
        self.owned -= step.partitions
        self.asleep = self.asleep and not step.lost
        self.stage.moves.append((self.name, "lost" if step.lost else "gave up", step.partitions))

    def take(self, step: Assign) -> None:
        """What the machine says comes."""
        assert not step.partitions & self.owned
        self.owned |= step.partitions
        self.stage.moves.append((self.name, "took", step.partitions))
        self.stage.check()

    def loses(self) -> bool:
        """Whether this response is lost on its way."""
        return self.stage.faults and self.stage.random.random() < 0.1

    async def perhaps_sleep(self) -> None:
        """Now and then, longer than the session."""
        if self.stage.faults and self.stage.random.random() < 0.03:
            self.asleep = True
            self._sleeps_until = trio.current_time() + self.stage.random.choice([2.0, 15.0, 80.0])
            await self.awake()

    async def awake(self) -> None:
        """A frozen process does nothing at all, neither heartbeats nor what the program would do."""
        await trio.sleep_until(self._sleeps_until)

    def heard_of(self, sent_at: float, code: ErrorCode) -> None:
        """A response to what it sent after it woke up tells that the group still knows it."""
        if code is ErrorCode.NONE and sent_at >= self._sleeps_until:
            self.asleep = False

    async def until_woken(self, seconds: float) -> bool:
        """Whether something came up before the time was over."""
        with trio.move_on_after(seconds):
            await self.wake.wait()
            self.wake = trio.Event()
            return True
        return False


class ClassicPlayer(Player):
    """One of the classic protocol."""

    def __init__(
        self, stage: Stage, name: str, topics: Sequence[str], offered: Sequence[str], instance_id: str | None = None
    ) -> None:
        super().__init__(stage, name, topics, instance_id)
        self.machine: ClassicMember = ClassicMember(strategies(offered), topics, instance_id)

    async def do(self, step: Join | CountPartitions | Sync | Resolve) -> None:
        match step:
            case Join():
                await self._join(step)
            case CountPartitions(topics):
                self.machine.counted({name: 3 for name in topics if name in self.stage.topics.names})
            case Sync():
                await self._sync(step)
            case unexpected:
                raise AssertionError(unexpected)

    async def _join(self, step: Join) -> None:
        command = commands.Join(
            *("g", step.member_id, self.instance_id, self.name, "/h", SESSION_MS, REBALANCE_MS, "consumer"),
            protocols=step.protocols,
            member_id_required=True,
            can_skip_assignment=True,
            reason=step.reason,
        )
        sent_at = trio.current_time()
        reply = await self.stage.service.classic.join(command)
        await self.awake()
        if self.loses():
            await trio.sleep(0.1)
            return
        members = [JoinedMember(*member) for member in reply.members]
        self.machine.joined(
            Joined(
                *(reply.error, reply.member_id, reply.generation, reply.protocol or "", reply.leader),
                skip_assignment=reply.skip_assignment,
                members=members,
            )
        )
        self.heard_of(sent_at, reply.error)
        if reply.error not in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            await trio.sleep(0.05)

    async def _sync(self, step: Sync) -> None:
        command = commands.Sync(
            *("g", step.member_id, self.instance_id, step.generation, "consumer", step.strategy),
            assignments=step.assignments,
        )
        sent_at = trio.current_time()
        reply = await self.stage.service.classic.sync(command)
        await self.awake()
        if self.loses():
            await trio.sleep(0.1)
            return
        self.heard_of(sent_at, reply.error)
        self.machine.synced(step.generation, reply.error, reply.assignment)

    async def beat(self) -> None:
        while True:
            await trio.sleep(BEAT_S)
            machine = self.machine
            await self.awake()
            if not machine.sends_heartbeats:
                continue
            await self.perhaps_sleep()
            generation = machine.generation
            code = self.stage.service.classic.heartbeat("g", machine.member_id, self.instance_id, generation)
            if not self.loses():
                machine.responded(generation, code)
                if code not in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
                    self.asleep = False
                self.wake.set()
            if not machine.owned:
                self.asleep = False

    def subscribe(self, topics: Sequence[str]) -> None:
        """Want something else from now on."""
        self.topics = tuple(topics)
        self.machine.subscribe(topics)
        self.wake.set()

    async def leave(self) -> None:
        """Go in order."""
        self.scope.cancel()
        if self.machine.member_id and self.instance_id is None:
            await self.stage.service.classic.leave("g", [MemberName(self.machine.member_id, None, "enough")])


class ConsumerPlayer(Player):
    """One of the consumer protocol (KIP-848)."""

    def __init__(self, stage: Stage, name: str, desired: DesiredSubscription, instance_id: str | None = None) -> None:
        super().__init__(stage, name, desired.topics if desired.pattern is None else ("t", "u"), instance_id)
        self.machine: ConsumerMember = ConsumerMember(
            uuid.UUID(int=stage.random.getrandbits(128)).hex, desired, instance_id
        )

    async def do(self, step: Join | CountPartitions | Sync | Resolve) -> None:
        assert isinstance(step, Resolve), step
        self.machine.named({one: one.rstrip(b"\0").decode() for one in step.topic_ids})

    async def _step(self) -> None:
        await super()._step()
        assert self.machine.owned == self.owned

    async def beat(self) -> None:
        machine = self.machine
        while True:
            if not machine.heartbeat_is_due:
                await trio.sleep(BEAT_S)
            await trio.sleep(0.01)
            if not machine.sends_heartbeats:
                continue
            await self.perhaps_sleep()
            if not machine.sends_heartbeats:
                continue
            sent = machine.heartbeat()
            reply = await self.stage.service.consumers.heartbeat(self._request(sent))
            if self.loses():
                machine.unanswered()
                continue
            assigned = None
            if reply.assignment is not None:
                assigned = frozenset((topic_id, one) for topic_id, all_ in reply.assignment.items() for one in all_)
            fenced = reply.error is not ErrorCode.NONE
            machine.answered(sent, HeartbeatResult(reply.error, reply.member_id, reply.member_epoch, assigned))
            self.asleep = self.asleep and fenced and bool(self.owned)
            self.wake.set()

    def _request(self, sent: ConsumerHeartbeat) -> Heartbeat:
        reported = None
        if sent.owned is not None:
            by_topic: dict[bytes, list[int]] = {}
            for topic_id, number in sorted(sent.owned):
                by_topic.setdefault(topic_id, []).append(number)
            reported = tuple((topic_id, tuple(numbers)) for topic_id, numbers in by_topic.items())
        desired = sent.desired
        return Heartbeat(
            group_id="g",
            member_id=sent.member_id,
            member_epoch=sent.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if sent.is_full else -1,
            topics=None if desired is None else desired.topics,
            regex=None if desired is None else desired.pattern or "",
            assignor=None if desired is None else desired.assignor,
            reported=reported,
        )

    async def leave(self) -> None:
        """Go in order."""
        self.scope.cancel()
        bye = self.machine.leave_heartbeat()
        if bye is not None:
            await self.stage.service.consumers.heartbeat(self._request(bye))


Make = Callable[[Stage, str], Player]
