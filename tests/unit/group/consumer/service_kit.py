"""A group service over memory with members of both protocols, and what classic ones say."""

from typing import Any

from fencepost.coordinator.group.commands import JoinReply
from fencepost.coordinator.group.config import GroupConfig
from fencepost.coordinator.group.consumer import embedded
from fencepost.coordinator.group.consumer.group import ConsumerGroup
from fencepost.coordinator.group.consumer.requests import Heartbeat, HeartbeatReply
from fencepost.protocol.errors import ErrorCode
from tests.unit.group import kit

NONE = ErrorCode.NONE
CONFIG = GroupConfig(group_consumer_session_timeout_ms=10_000)


def subscription(*topics: str, owned: tuple[int, ...] = (), generation: int = -1) -> bytes:
    """What a classic consumer says in its Join, in version 2."""
    has = [embedded.TopicPartition(topic="t", partitions=list(owned))] if owned else []
    said = embedded.ConsumerProtocolSubscription(topics=list(topics), owned_partitions=has, generation_id=generation)
    return b"\0\2" + embedded.ConsumerProtocolSubscription.encode(said, 2)


def given(*partitions: int, user_data: bytes | None = None) -> bytes:
    """What a classic leader hands out."""
    topics = [embedded.TopicPartition(topic="t", partitions=list(partitions))]
    return b"\0\1" + embedded.ConsumerProtocolAssignment.encode(
        embedded.ConsumerProtocolAssignment(assigned_partitions=topics, user_data=user_data), 1
    )


WANTS_T = (("range", subscription("t")),)


class World(kit.World):
    """A service with members of the consumer protocol."""

    def __init__(self, config: GroupConfig = CONFIG, *more: Any) -> None:
        super().__init__(config, *more)

    async def again(self) -> "World":
        world = World(self.config, self.logs, self.topics)
        await world.service.start()
        return world

    async def beat(self, member_id: str, epoch: int, **fields: Any) -> HeartbeatReply:
        if epoch == 0:
            fields = {"rebalance_timeout_ms": 5000, "topics": ("t",), "reported": ()} | fields
        request = Heartbeat(group_id="g", member_id=member_id, member_epoch=epoch, **fields)
        return await self.service.consumers.heartbeat(request)

    def beat_of(self, reply: JoinReply) -> ErrorCode:
        """A classic member's heartbeat."""
        return self.service.classic.heartbeat("g", reply.member_id, None, reply.generation)

    @property
    def consumers(self) -> ConsumerGroup:
        found = self.service._shards.consumer_group("g")
        assert found is not None
        return found

    async def classic(self, *given_to_leader: int, **more: Any) -> JoinReply:
        """A stable classic group of one, which has these partitions."""
        reply = await self.join(protocols=WANTS_T, member_id_required=False, **more)
        handed = ((reply.member_id, given(*given_to_leader)),)
        assert (await self.sync(reply.member_id, reply.generation, assignments=handed)).error is NONE
        return reply
