"""A group service over memory with members of share groups."""

from typing import Any

from fencepost.coordinator.group.consumer.requests import HeartbeatReply
from fencepost.coordinator.group.share.group import ShareGroup
from fencepost.coordinator.group.share.requests import ShareHeartbeat
from fencepost.coordinator.metadata.image import MetadataImage, PartitionImage, TopicImage
from fencepost.coordinator.share.group_config import ShareGroupConfig
from fencepost.coordinator.share.values import ShareKey
from fencepost.protocol.errors import ErrorCode
from tests.unit.group import kit

NONE = ErrorCode.NONE
CONFIG = ShareGroupConfig(group_share_session_timeout_ms=10_000, group_share_assignment_interval_ms=0)


class Topics(kit.Topics):
    """A cluster whose topics have as many partitions as a test says; a topic that is created again gets another id."""

    def __init__(self, **sizes: int) -> None:
        super().__init__(*sizes)
        self.sizes = sizes
        self.ids = {name: topic_id(name) for name in sizes}
        self._image = MetadataImage()

    @property
    def image(self) -> MetadataImage:
        """Its topics are the same object until one of them changes, as those of a broker."""
        one = PartitionImage((1,), (1,), leader=1)
        topics = [TopicImage(name, self.ids[name], (one,) * size) for name, size in sorted(self.sizes.items())]
        if topics != list(self._image.topics_by_name.values()):
            by_name = {topic.name: topic for topic in topics}
            self._image = MetadataImage(1, by_name, {topic.topic_id: topic for topic in topics})
        return self._image


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


def key(partition: int, topic: str = "t", group_id: str = "g") -> ShareKey:
    return ShareKey(group_id, topic_id(topic), partition)


class World(kit.World):
    """A service with members of share groups."""

    topics: Topics

    def __init__(
        self, config: ShareGroupConfig = CONFIG, topics: Topics | None = None, before: "World | None" = None
    ) -> None:
        logs, states = (None, None) if before is None else (before.logs, before.states)
        super().__init__(None, logs, topics or Topics(t=3, u=2), states, config)

    async def again(self) -> "World":
        """What a restart of the broker would leave."""
        world = World(self.share_config, self.topics, self)
        await world.service.start()
        return world

    async def beat(self, member_id: str, epoch: int, *topics: str, **fields: Any) -> HeartbeatReply:
        """A heartbeat of a member of group g; one that joins subscribes to t unless the test says otherwise."""
        if epoch == 0 and not topics:
            topics = ("t",)
        fields = {"group_id": "g", "topics": topics or None} | fields
        return await self.service.shares.heartbeat(ShareHeartbeat(member_id=member_id, member_epoch=epoch, **fields))

    async def refused(self, member_id: str, epoch: int, *topics: str, **fields: Any) -> ErrorCode:
        return (await self.beat(member_id, epoch, *topics, **fields)).error

    async def has(self, member_id: str, topic: str = "t") -> list[int]:
        """The partitions that a member has after its next heartbeat."""
        member = self.share.members[member_id]
        assert (await self.refused(member_id, member.epoch)) is NONE
        return sorted(self.share.members[member_id].assigned.get(topic_id(topic), ()))

    @property
    def share(self) -> ShareGroup:
        """Group g."""
        shard = self.service._shards.find("g")
        assert shard is not None
        return shard.state.shares["g"]
