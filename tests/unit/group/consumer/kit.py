"""A consumer group on paper: topics, members, and decisions whose records are applied at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fencepost.coordinator.group.config import GroupConfig
from fencepost.coordinator.group.consumer import heartbeat
from fencepost.coordinator.group.consumer.context import GroupContext, SetTimer, View
from fencepost.coordinator.group.consumer.group import ConsumerGroup
from fencepost.coordinator.group.consumer.member import ConsumerMember
from fencepost.coordinator.group.consumer.records import CONSUMER_RECORDS
from fencepost.coordinator.group.consumer.requests import Heartbeat, HeartbeatReply
from fencepost.coordinator.group.timers import TimerKind
from fencepost.coordinator.metadata.image import MetadataImage, PartitionImage, TopicImage

NOW = 1_700_000_000_000


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


def image(**sizes: int) -> MetadataImage:
    """A cluster with topics of so many partitions."""
    one = PartitionImage((1,), (1,), leader=1)
    topics = {name: TopicImage(name, topic_id(name), (one,) * size) for name, size in sizes.items()}
    return MetadataImage(len(topics), topics, {topic.topic_id: topic for topic in topics.values()})


def owned(epoch: int, **partitions: Sequence[int]) -> dict[bytes, dict[int, int]]:
    """Partitions by topic name, given in `epoch`."""
    return {topic_id(name): dict.fromkeys(all_, epoch) for name, all_ in partitions.items()}


def assignment(**partitions: Sequence[int]) -> dict[bytes, frozenset[int]]:
    return {topic_id(name): frozenset(all_) for name, all_ in partitions.items()}


def reported(**partitions: Sequence[int]) -> tuple[tuple[bytes, tuple[int, ...]], ...]:
    """What a member says it has."""
    return tuple((topic_id(name), tuple(all_)) for name, all_ in partitions.items())


@dataclass
class Paper:
    """A group whose decisions are applied as soon as they are made; `context` is the last one."""

    image: MetadataImage = field(default_factory=lambda: image(t=4))
    config: GroupConfig = field(default_factory=GroupConfig)
    now_ms: int = NOW
    group: ConsumerGroup = field(default_factory=lambda: ConsumerGroup("g"))
    context: GroupContext = field(init=False)

    def open(self) -> GroupContext:
        """A new decision."""
        self.context = GroupContext(self.group, View(self.image, 0, self.config, self.now_ms))
        return self.context

    def close(self) -> None:
        """The decision is made."""
        for record in self.context.log:
            if isinstance(record, CONSUMER_RECORDS):
                self.group.apply(record)
        if self.context.refresh is not None:
            self.group.refresh_at_ms, self.group.refresh_epoch = self.context.refresh

    def beat(self, member_id: str, epoch: int, **fields: Any) -> HeartbeatReply:
        """A heartbeat; joins say what they have to. Raises Refused."""
        if epoch == 0:
            fields = {"rebalance_timeout_ms": 60_000, "topics": ("t",), "reported": ()} | fields
        request = Heartbeat(group_id="g", member_id=member_id, member_epoch=epoch, **fields)
        context = self.open()
        reply = heartbeat.leave(context, request) if request.leaves else heartbeat.heartbeat(context, request, "made")
        self.close()
        return reply

    def member(self, member_id: str) -> ConsumerMember:
        return self.group.members[member_id]

    def timers(self, kind: TimerKind) -> list[SetTimer]:
        """What the last decision did to timers of a kind."""
        return [timer for timer in self.context.timers if timer.kind is kind]


def shares(target: Mapping[str, Mapping[bytes, frozenset[int]]]) -> dict[str, int]:
    """How many partitions each member is to have."""
    return {member_id: sum(map(len, topics.values())) for member_id, topics in target.items()}
