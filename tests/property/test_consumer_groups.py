"""Members of a consumer group that join, leave, freeze, lose answers and come back; topics come and grow (G4, G5).

The oracle: no partition is read by two members at once, a zombie's commit is refused, the log alone gives the same
group back, and once all is quiet everybody has what it is to have and nothing is left over.
"""

import random
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from fencepost.coordinator.decision import Decision
from fencepost.coordinator.group.commands import Join, JoinReply, MemberName, Sync, SyncReply
from fencepost.coordinator.group.commit import Commit
from fencepost.coordinator.group.config import GroupConfig
from fencepost.coordinator.group.consumer import embedded, heartbeat, requests
from fencepost.coordinator.group.consumer.context import GroupContext, View
from fencepost.coordinator.group.consumer.group import ConsumerGroup
from fencepost.coordinator.group.consumer.requests import Heartbeat, HeartbeatReply
from fencepost.coordinator.group.decision import GroupChange
from fencepost.coordinator.group.offsets import OffsetCommitItem
from fencepost.coordinator.group.service import GroupService
from fencepost.coordinator.group.shard_state import GroupRecords, GroupShardState
from fencepost.coordinator.group.state import Dead
from fencepost.coordinator.group.timers import SetTimer, TimerKey, TimerKind
from fencepost.coordinator.metadata.image import MetadataImage, PartitionImage, TopicImage
from fencepost.coordinator.share.group_config import ShareGroupConfig
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from tests.kit.clocks import StillClock
from tests.kit.memory_log import CoordinatorLogs
from tests.kit.share_states import MemoryStates

SEEDS = [*range(25), 10_894, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(25, 80))]
"""The last one found that a group which became classic gave away what its members still read."""
STEPS = 120
ResultT = TypeVar("ResultT")


reply_if_unchanged = heartbeat.reply_if_unchanged


def checked_fast_path(group: ConsumerGroup | None, request: Heartbeat, view: View) -> HeartbeatReply | None:
    """Where the fast path answers, the slow path gives the same answer and decides nothing but the session."""
    reply = reply_if_unchanged(group, request, view)
    if reply is not None:
        assert group is not None
        requests.check(request, view.config.group_consumer_assignors)
        context = GroupContext(group, view)
        assert heartbeat.heartbeat(context, request, request.member_id) == reply
        session = SetTimer(TimerKind.SESSION, view.config.group_consumer_session_timeout_ms, request.member_id)
        assert context.decided(reply) == Decision(reply, (), (GroupChange(timers=(session,)),))
        fast_replies.append(reply)
    return reply


fast_replies: list[HeartbeatReply] = []
"""The answers of the fast path, in all worlds."""


def run(act: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Run what never has to wait here: the log is durable at once."""
    try:
        act.send(None)
    except StopIteration as end:
        result: ResultT = end.value
        return result
    act.close()
    raise AssertionError("the service waits for something")


class Topics:
    """Topics by name with a number of partitions."""

    def __init__(self) -> None:
        self.sizes = {"a": 4, "b": 3}
        self.version = 1

    @property
    def image(self) -> MetadataImage:
        one = PartitionImage((1,), (1,), leader=1)
        by_name = {name: TopicImage(name, self.id(name), (one,) * size) for name, size in self.sizes.items()}
        return MetadataImage(self.version, by_name, {topic.topic_id: topic for topic in by_name.values()})

    def id(self, name: str) -> bytes:
        return name.encode().ljust(16, b"\0")

    def exists(self, partition: TopicPartition) -> bool:
        return partition.partition < self.sizes.get(partition.topic, 0)

    def topic_name(self, topic_id: bytes) -> str | None:
        return topic_id.rstrip(b"\0").decode()

    def topic_id(self, topic: str) -> bytes | None:
        return self.id(topic) if topic in self.sizes else None


class Member:
    """A client: what it believes, and the partitions it reads."""

    def __init__(self, member_id: str, topics: tuple[str, ...], regex: str | None, instance_id: str | None) -> None:
        self.member_id, self.topics, self.regex, self.instance_id = member_id, topics, regex, instance_id
        self.epoch = 0
        self.reads: set[tuple[bytes, int]] = set()
        self.changed = True
        self.assignor: str | None = None
        self.classic = False
        self.alive = True

    def reported(self) -> tuple[tuple[bytes, tuple[int, ...]], ...]:
        by_topic: dict[bytes, list[int]] = {}
        for topic_id, partition in sorted(self.reads):
            by_topic.setdefault(topic_id, []).append(partition)
        return tuple((topic_id, tuple(partitions)) for topic_id, partitions in by_topic.items())


class World:
    """One group, its members, and chance."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock, self.topics, self.logs = StillClock(), Topics(), CoordinatorLogs(1)
        interval_ms = self.random.choice([0, 0, 500])
        self.config = GroupConfig(group_consumer_assignment_interval_ms=interval_ms)
        self.service = GroupService(
            self.config, self.logs, self.topics, self.clock, MemoryStates(), ShareGroupConfig(), self._new_id
        )
        self.members: list[Member] = []
        self.zombies: list[Member] = []
        self._ids = 0

    def _new_id(self) -> str:
        self._ids += 1
        return f"m{self._ids}"

    @property
    def group(self) -> ConsumerGroup | None:
        return self.service._shards.consumer_group("g")

    # ---- what members do

    def newcomer(self) -> None:
        static = self.random.random() < 0.3
        instance_id = self.random.choice(["i", "j"]) if static else None
        if instance_id in [member.instance_id for member in self.members if member.instance_id]:
            instance_id = None
        topics = tuple(name for name in ("a", "b", "c") if self.random.random() < 0.6)
        regex = self.random.choice([None, None, "[ab]", "c|a", ".*"])
        member = Member(self._new_id(), topics, regex, instance_id)
        member.assignor = self.random.choice([None, None, "range", "uniform"])
        member.classic = instance_id is None and bool(topics) and self.random.random() < 0.3
        self.members.append(member)
        self.beat(member)

    def beat(self, member: Member) -> None:
        if member.classic:
            self._classic_round(member)
            return
        first = member.epoch == 0
        say_all = first or member.changed or self.random.random() < 0.2
        reply = run(
            self.service.consumers.heartbeat(
                Heartbeat(
                    group_id="g",
                    member_id=member.member_id,
                    member_epoch=member.epoch,
                    instance_id=member.instance_id,
                    rebalance_timeout_ms=60_000 if say_all else -1,
                    topics=member.topics if say_all else None,
                    regex=(member.regex or "") if say_all else None,
                    assignor=member.assignor if say_all else None,
                    reported=() if first else member.reported() if say_all or self.random.random() < 0.8 else None,
                )
            )
        )
        if not first and self.random.random() < 0.15:
            member.changed = True  # the answer is lost: it says everything again
            return
        member.changed = False
        self._take(member, reply)

    def _take(self, member: Member, reply: HeartbeatReply) -> None:
        refusals = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
        if reply.error in refusals:
            member.reads.clear()
            member.epoch = 0
            return
        if reply.error is ErrorCode.UNRELEASED_INSTANCE_ID:
            # Fenced in a place that it holds itself, it comes in again when its own session is over: as in Kafka.
            self.members.remove(member)
            if self.group is not None and member.member_id in self.group.members:
                self.expire(TimerKey(TimerKind.SESSION, "g", member.member_id))
            return
        assert reply.error is ErrorCode.NONE, reply
        member.epoch = reply.member_epoch
        if reply.assignment is not None:
            member.reads = {(topic_id, partition) for topic_id, all_ in reply.assignment.items() for partition in all_}

    def _classic_round(self, member: Member) -> None:
        """A classic member heartbeats, and joins and syncs where it is told to."""
        if member.epoch:
            error = self.service.classic.heartbeat("g", member.member_id, None, member.epoch)
            if error is ErrorCode.NONE:
                return
            if error is not ErrorCode.REBALANCE_IN_PROGRESS:
                member.reads.clear()
                member.epoch = 0
        if self.group is None or not self.group.members:
            # It became a classic group, which has models of its own: the member comes back by the new protocol.
            run(self.service.classic.leave("g", [MemberName(member.member_id)]))
            member.classic, member.changed = False, True
            member.reads.clear()
            return
        owned = [
            embedded.TopicPartition(topic=topic_id.rstrip(b"\0").decode(), partitions=list(partitions))
            for topic_id, partitions in member.reported()
        ]
        data = embedded.ConsumerProtocolSubscription(topics=list(member.topics), owned_partitions=owned)
        wanted = b"\0\1" + embedded.ConsumerProtocolSubscription.encode(data, 1)
        reply: JoinReply = run(
            self.service.classic.join(
                Join(
                    *("g", member.member_id, None, "c", "/h", 10_000, 60_000, "consumer"),
                    protocols=(("range", wanted),),
                    member_id_required=True,
                    can_skip_assignment=True,
                )
            )
        )
        assert reply.error is ErrorCode.NONE, reply
        member.epoch = reply.generation
        synced: SyncReply = run(self.service.classic.sync(Sync("g", member.member_id, None, reply.generation)))
        assert synced.error in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS), synced
        if synced.error is ErrorCode.NONE:
            found = embedded.read_assignment(synced.assignment).partitions
            member.reads = {(self.topics.id(name), one) for name, all_ in found.items() for one in all_}

    def leave(self, member: Member) -> None:
        self.members.remove(member)
        if member.classic:
            if member.epoch:
                run(self.service.classic.leave("g", [MemberName(member.member_id)]))
            return
        epoch = -2 if member.instance_id is not None and self.random.random() < 0.5 else -1
        self._bye(member, epoch)

    def _bye(self, member: Member, epoch: int) -> None:
        bye = Heartbeat(group_id="g", member_id=member.member_id, member_epoch=epoch, instance_id=member.instance_id)
        run(self.service.consumers.heartbeat(bye))

    def freeze(self, member: Member) -> None:
        """Its session ends, and it reads on."""
        self.members.remove(member)
        self.zombies.append(member)
        self.expire(TimerKey(TimerKind.SESSION, "g", member.member_id))

    def expire(self, key: TimerKey) -> None:
        run(self.service.expire(key))

    def change(self, member: Member) -> None:
        if not member.classic:
            member.topics = tuple(name for name in ("a", "b", "c") if self.random.random() < 0.6)
            member.changed = True

    def grow(self) -> None:
        name = self.random.choice(["a", "b", "c"])
        created = name not in self.topics.sizes
        self.topics.sizes[name] = min(self.topics.sizes.get(name, 0) + 2, 9)
        self.topics.version += 1
        self.service.topics_changed([name], created=created)

    # ---- what must hold

    def check(self) -> None:
        if self.group is None:
            return
        seen: dict[tuple[bytes, int], str] = {}
        for member in self.members:
            for partition in member.reads:
                assert partition not in seen, (partition, member.member_id, seen[partition])
                seen[partition] = member.member_id
        for zombie in self.zombies:
            if zombie.epoch > 0 and zombie.member_id not in self.group.members and self.group.members:
                errors = run(self.service.positions.commit(self._commit(zombie)))
                assert ErrorCode.NONE not in errors, zombie.member_id

    def _commit(self, member: Member) -> Commit:
        items = (OffsetCommitItem(TopicPartition("a", 0), 1),)
        unknown = ErrorCode.GROUP_ID_NOT_FOUND
        return Commit("g", items, member.member_id, member.instance_id, member.epoch, unknown_group=unknown)

    def check_replay(self) -> None:
        again = GroupShardState()
        for batch in self.logs.log(0).replay():
            GroupRecords().replay(again, batch)
        assert (self.group is None) == ("g" not in again.consumers)
        if self.group is None:
            assert isinstance(again.group("g"), Dead) == isinstance(self.service._shards.group("g"), Dead)
            return
        quiet = {"refresh_at_ms", "refresh_epoch"}
        theirs = {key: value for key, value in vars(again.consumers["g"]).items() if key not in quiet}
        ours = {key: value for key, value in vars(self.group).items() if key not in quiet}
        assert theirs == ours

    def step(self) -> None:
        self.clock.ms += self.random.choice([1, 50, 700, 11_000])
        act = self.random.random()
        if act < 0.12 and len(self.members) < 7:
            self.newcomer()
        elif act < 0.18 and self.members:
            self.leave(self.random.choice(self.members))
        elif act < 0.22 and self.members:
            self.freeze(self.random.choice(self.members))
        elif act < 0.26 and self.members:
            self.change(self.random.choice(self.members))
        elif act < 0.30:
            self.grow()
        elif self.members:
            self.beat(self.random.choice(self.members))

    def settle(self) -> None:
        """Everybody goes on for a while, and nothing new happens."""
        for instance_id in ("i", "j"):
            group = self.group
            away = None if group is None else group.static_member(instance_id)
            if away is not None and away.member_id not in [member.member_id for member in self.members]:
                self.expire(TimerKey(TimerKind.SESSION, "g", away.member_id))
        for _ in range(40):
            self.clock.ms += 11_000
            for member in list(self.members):
                self.beat(member)
            self.check()

    def check_settled(self) -> None:
        group = self.group
        if group is None or not group.members:
            return
        assert group.state == "Stable", (group.state, group.members)
        for member in self.members:
            target = group.target.get(member.member_id, {})
            assert member.reads == {(topic_id, one) for topic_id, all_ in target.items() for one in all_}
        wanted = {
            (self.topics.id(name), partition)
            for name in group.topics
            for partition in range(self.topics.sizes.get(name, 0))
        }
        assert {partition for member in self.members for partition in member.reads} == wanted


@pytest.mark.parametrize("seed", SEEDS)
def test_no_partition_has_two_readers_and_all_comes_to_rest_g4_g5(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "reply_if_unchanged", checked_fast_path)
    world = World(seed)
    for _ in range(STEPS):
        world.step()
        world.check()
    world.check_replay()
    world.settle()
    world.check_settled()
    world.check_replay()


def test_the_short_way_of_a_heartbeat_is_gone_in_some_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is compared with the long one wherever it is gone, see above: that has to be somewhere."""
    monkeypatch.setattr(heartbeat, "reply_if_unchanged", checked_fast_path)
    fast_replies.clear()
    for seed in range(12):
        world = World(seed)
        for _ in range(STEPS):
            world.step()
    assert len(fast_replies) > 12
