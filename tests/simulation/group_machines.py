"""Members of simulated groups that are run by our client's machines, of the classic and of the consumer protocol."""

from random import Random
from typing import TYPE_CHECKING, Any

import trio

from fencepost.client.core.assignors import strategies
from fencepost.client.core.classic_member import ClassicMember, Joined, JoinedMember
from fencepost.client.core.consumer_member import (
    ConsumerHeartbeat,
    ConsumerMember,
    DesiredSubscription,
    HeartbeatResult,
)
from fencepost.client.core.group_steps import Assign, CountPartitions, Fail, Join, Resolve, Revoke, Stay, Step, Sync
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import api13_leave_group as m13
from fencepost.protocol.messages import api68_consumer_group_heartbeat as m68
from tests.kit.determinism import nap
from tests.simulation.group_base import AGAIN_S, BEAT_S, GROUP, REBALANCE_S
from tests.simulation.group_books import Reader
from tests.simulation.group_work import Worker

if TYPE_CHECKING:
    from tests.simulation.group_protocols import ProtocolWorld

SHUT_OUT = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)


class Machine:
    """One process: its machine says what comes next, and the network and the program do it."""

    def __init__(
        self, world: "ProtocolWorld", owner: Reader, random: Random, member: ClassicMember | ConsumerMember
    ) -> None:
        self.owner = owner
        self.failed: Fail | None = None
        self.worker = Worker(world, owner, random)
        self._world = world
        self._random = random
        self._machine = member
        self._line = self.worker.new_line("group")
        self._beat_line = self.worker.new_line("beat")
        self._wake = trio.Event()
        world.books.born(owner)

    @property
    def topics(self) -> frozenset[str]:
        """What it subscribes to."""
        raise NotImplementedError

    def _owes(self) -> bool:
        """Whether it still has something that it was told to give up."""
        return isinstance(self._machine.step(), Revoke)

    async def run(self) -> None:
        """Be a member until cancelled or shut out for good."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._beats)
                nursery.start_soon(self.worker.work)
                while self.failed is None:
                    await self._take_step(self._machine.step())
                nursery.cancel_scope.cancel()
            self._world.tell(f"{self.owner.name} ends: {self.failed}")
        finally:
            self._world.books.gave_up(self.owner)
            self.worker.close()

    async def _take_step(self, step: Step) -> None:
        match step:
            case Revoke(partitions, lost=True):
                self.worker.lost(partitions)
                self._machine.revoked(partitions, lost=True)
            case Revoke(partitions):
                if await self.worker.give_up(partitions, lambda: self._machine.step() == step):
                    self._machine.revoked(partitions)
            case Assign(partitions):
                self.worker.took(partitions)
                self._machine.assigned(partitions)
            case Fail():
                self.failed = step
            case Stay():
                with trio.move_on_after(5 * BEAT_S):
                    await self._wake.wait()
                self._wake = trio.Event()
            case _:
                await self._more(step)

    async def _more(self, step: Step) -> None:
        raise NotImplementedError

    async def _beats(self) -> None:
        while True:
            await nap(self._until_beat_s())
            self.worker.maybe_freeze()
            if self._machine.sends_heartbeats:
                await self._beat()

    def _until_beat_s(self) -> float:
        return self._random.uniform(0.3, 1.0) * BEAT_S

    async def _beat(self) -> None:
        raise NotImplementedError

    def _refused(self, code: ErrorCode, what: str, epoch: int) -> None:
        self._world.tell(f"{self.owner.name}: {what} in epoch {epoch} is {code.name}")
        if code in SHUT_OUT:
            self._world.books.out(self.owner)

    async def leave(self) -> None:
        """Go in order; the answer does not matter."""
        self.owner.leaves = True
        self._world.books.gave_up(self.owner)
        if bye := self._goodbye():
            await self.worker.ask(self._line, *bye)
        self.worker.close()

    def _goodbye(self) -> tuple[int, Any] | None:
        """The version and the request that say so, if anybody is to be told."""
        raise NotImplementedError

    def change_wish(self) -> None:
        """The program wants other topics; where it may."""


class ConsumerMachine(Machine):
    """A member of the consumer protocol (KIP-848)."""

    _machine: ConsumerMember

    def __init__(
        self, world: "ProtocolWorld", owner: Reader, random: Random, desired: DesiredSubscription, version: int
    ) -> None:
        member_id = f"{random.getrandbits(128):032x}" if version else ""
        super().__init__(world, owner, random, ConsumerMember(member_id, desired, owner.instance_id))
        self._version = version
        self._machine.named({topic_id: name for name, topic_id in world.ids.items()})

    @property
    def topics(self) -> frozenset[str]:
        return self._world.matched(self._machine.desired)

    async def _more(self, step: Step) -> None:
        assert isinstance(step, Resolve), step
        self._machine.named({topic_id: name for name, topic_id in self._world.ids.items()})
        await nap(AGAIN_S)

    def _until_beat_s(self) -> float:
        return 0.01 if self._machine.heartbeat_is_due else super()._until_beat_s()

    async def _beat(self) -> None:
        machine, books = self._machine, self._world.books
        await self.worker.awake()
        if not machine.sends_heartbeats:
            return
        sent, sent_at, newest = machine.heartbeat(), trio.current_time(), books.newest
        owes = self._owes()  # what is reported now is what it still had
        if sent.epoch == 0:
            books.joining(self.owner)
        answer = await self.worker.ask(self._beat_line, self._version, self._request(sent))
        if answer is None:
            machine.unanswered()
            return
        code, given = ErrorCode(answer.error_code), None
        if answer.assignment is not None:
            given = frozenset((one.topic_id, at) for one in answer.assignment.topic_partitions for at in one.partitions)
        machine.answered(sent, HeartbeatResult(code, answer.member_id, answer.member_epoch, given))
        self.worker.member_id, self.worker.epoch = machine.member_id, machine.epoch
        self._wake.set()
        if code is not ErrorCode.NONE:
            self._refused(code, "a heartbeat", sent.epoch)
            await nap(AGAIN_S)
            return
        if machine.epoch == answer.member_epoch:
            books.in_epoch(self.owner, machine.epoch, newest, sent_at)
        if not owes and not self._owes():
            books.in_touch(self.owner, sent_at)

    def _request(self, sent: ConsumerHeartbeat) -> Any:
        topics: dict[bytes, list[int]] = {}
        for topic_id, partition in sorted(sent.owned or ()):
            topics.setdefault(topic_id, []).append(partition)
        owned = [m68.TopicPartitions(topic_id=topic_id, partitions=all_) for topic_id, all_ in topics.items()]
        desired = sent.desired
        fields = {} if desired is None or self._version == 0 else {"subscribed_topic_regex": desired.pattern or ""}
        return m68.ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=sent.member_id,
            member_epoch=sent.epoch,
            instance_id=self.owner.instance_id,
            rebalance_timeout_ms=round(REBALANCE_S * 1000) if sent.is_full else -1,
            subscribed_topic_names=None if desired is None else list(desired.topics),
            server_assignor=None if desired is None else desired.assignor,
            topic_partitions=None if sent.owned is None else owned,
            **fields,
        )

    def _goodbye(self) -> tuple[int, Any] | None:
        bye = self._machine.leave_heartbeat()
        return None if bye is None else (self._version, self._request(bye))

    def change_wish(self) -> None:
        self._machine.subscribe(self._world.some_wish(self._random, self._version))
        self._world.tell(f"{self.owner.name} wants {self._machine.desired}")


class ClassicMachine(Machine):
    """A member of the classic protocol, with the embedded consumer protocol that the broker can read."""

    _machine: ClassicMember

    def __init__(self, world: "ProtocolWorld", owner: Reader, random: Random, offered: tuple[str, ...]) -> None:
        member = ClassicMember(strategies(offered), tuple(world.sizes), owner.instance_id)
        super().__init__(world, owner, random, member)

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(self._machine.topics)

    async def _more(self, step: Step) -> None:
        match step:
            case Join():
                await self._join(step)
            case CountPartitions(topics):
                self._machine.counted({name: self._world.sizes[name] for name in topics})
            case Sync():
                await self._sync(step)
            case _:
                raise AssertionError(step)

    async def _join(self, step: Join) -> None:
        self.worker.has_to_join = True
        await self.worker.awake()
        self._world.books.joining(self.owner)
        answer = await self.worker.join(self._line, 9, step.member_id, step.protocols, step.reason)
        if answer is None:
            return
        code = ErrorCode(answer.error_code)
        self._machine.joined(
            Joined(
                *(code, answer.member_id, answer.generation_id, answer.protocol_name or "", answer.leader),
                skip_assignment=answer.skip_assignment,
                members=[JoinedMember(one.member_id, one.group_instance_id, one.metadata) for one in answer.members],
            )
        )
        if code not in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self._refused(code, "a join", self._machine.generation)
            await nap(AGAIN_S)

    async def _sync(self, step: Sync) -> None:
        sent_at, newest = trio.current_time(), self._world.books.newest
        answer = await self.worker.sync(self._line, 5, step.member_id, step.generation, step.strategy, step.assignments)
        if answer is None:
            return
        code = ErrorCode(answer.error_code)
        self._machine.synced(step.generation, code, answer.assignment)
        if code is not ErrorCode.NONE:
            self._refused(code, "a sync", self._machine.generation)
            await nap(AGAIN_S)
            return
        self.worker.member_id, self.worker.epoch = self._machine.member_id, self._machine.generation
        self.worker.has_to_join = False
        self._world.books.in_epoch(self.owner, self._machine.generation, newest, sent_at)
        if not self._owes():
            self._world.books.in_touch(self.owner, sent_at)

    async def _beat(self) -> None:
        machine = self._machine
        generation, sent_at, owes = machine.generation, trio.current_time(), self._owes()
        answer = await self.worker.beat(self._beat_line, machine.member_id, generation)
        if answer is None:
            return
        code, is_late = ErrorCode(answer.error_code), machine.generation != generation
        machine.responded(generation, code)
        self._wake.set()
        if is_late:
            return  # it has joined again since it asked: what the answer says of the former generation is nothing new
        if code is not ErrorCode.NONE:
            self._refused(code, "a heartbeat", generation)
        elif not owes and not self._owes():
            self._world.books.in_touch(self.owner, sent_at)

    def _goodbye(self) -> tuple[int, Any] | None:
        name = m13.MemberIdentity(member_id=self._machine.member_id, group_instance_id=self.owner.instance_id)
        return (5, m13.LeaveGroupRequest(group_id=GROUP, members=[name])) if name.member_id else None
