"""A world in memory for the group coordinator: logs, topics, a clock, and members that speak plainly."""

from itertools import count

import trio
import trio.lowlevel
import trio.testing

from fencepost.coordinator.group.commands import Join, JoinReply, Sync, SyncReply
from fencepost.coordinator.group.commit import Commit
from fencepost.coordinator.group.config import GroupConfig
from fencepost.coordinator.group.offsets import OffsetCommitItem
from fencepost.coordinator.group.service import GroupService
from fencepost.coordinator.group.state import Group
from fencepost.coordinator.metadata.image import MetadataImage, PartitionImage, TopicImage
from fencepost.coordinator.share.group_config import ShareGroupConfig
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from tests.kit.clocks import VirtualClock
from tests.kit.memory_log import CoordinatorLog, CoordinatorLogs
from tests.kit.share_states import MemoryStates

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


class Topics:
    """A cluster with the topics `names`, three partitions each."""

    def __init__(self, *names: str) -> None:
        self.names = set(names)

    @property
    def image(self) -> MetadataImage:
        partition = PartitionImage((1,), (1,), leader=1)
        topics = [TopicImage(name, self._id(name), (partition,) * 3) for name in sorted(self.names)]
        by_name = {topic.name: topic for topic in topics}
        return MetadataImage(len(topics), by_name, {topic.topic_id: topic for topic in topics})

    @staticmethod
    def _id(name: str) -> bytes:
        return name.encode().ljust(16, b"\0")

    def exists(self, partition: TopicPartition) -> bool:
        return partition.topic in self.names and 0 <= partition.partition < 3

    def topic_name(self, topic_id: bytes) -> str | None:
        name = topic_id.rstrip(b"\0").decode()
        return name if name in self.names else None

    def topic_id(self, topic: str) -> bytes | None:
        return topic.encode().ljust(16, b"\0") if topic in self.names else None


class World:
    """A group service over memory; `restart` is what a restart of the broker would leave."""

    def __init__(
        self,
        config: GroupConfig | None = None,
        logs: CoordinatorLogs | None = None,
        topics: Topics | None = None,
        states: MemoryStates | None = None,
        share_config: ShareGroupConfig | None = None,
    ) -> None:
        self.config = config or GroupConfig(group_initial_rebalance_delay_ms=3000)
        self.logs = logs or CoordinatorLogs()
        self.topics = topics or Topics("t", "u")
        self.states = states or MemoryStates()
        self.share_config = share_config or ShareGroupConfig()
        ids = count(1)
        self.service = GroupService(
            self.config, self.logs, self.topics, VirtualClock(), self.states, self.share_config, lambda: str(next(ids))
        )

    async def restart(self) -> "World":
        world = World(self.config, self.logs, self.topics)
        await world.service.start()
        return world

    def log_of(self, group_id: str = "g") -> CoordinatorLog:
        return self.logs.log(self.service.group_partition(group_id))

    async def join(self, member_id: str = "", **changes: object) -> JoinReply:
        return await self.service.classic.join(join(member_id, **changes))

    async def sync(self, member_id: str, generation: int, **changes: object) -> SyncReply:
        return await self.service.classic.sync(sync(member_id, generation, **changes))

    async def settle(self, *instance_ids: str | None, **changes: object) -> list[JoinReply]:
        """Bring as many new members as there are names (None: a dynamic one) into one stable generation, in order."""
        replies: dict[int, JoinReply] = {}

        async def one(index: int, instance_id: str | None) -> None:
            reply = await self.join(group_instance_id=instance_id, **changes)
            if reply.error is ErrorCode.MEMBER_ID_REQUIRED:
                reply = await self.join(reply.member_id, **changes)
            assert reply.error is ErrorCode.NONE
            assert (await self.sync_as(reply)).error is ErrorCode.NONE
            replies[index] = reply

        async with trio.open_nursery() as nursery:
            for index, instance_id in enumerate(instance_ids):
                nursery.start_soon(one, index, instance_id)
                await trio.testing.wait_all_tasks_blocked()
        return [replies[index] for index in sorted(replies)]

    async def sync_as(self, reply: JoinReply) -> SyncReply:
        """The Sync that follows a Join; a leader gives everybody its own id."""
        return await self.sync(reply.member_id, reply.generation, assignments=assignments(reply))

    def beat(self, reply: JoinReply) -> ErrorCode:
        """A heartbeat of the member that had this answer."""
        return self.service.classic.heartbeat("g", reply.member_id, None, reply.generation)

    def state(self) -> str:
        """The phase of group g."""
        return type(self.group()).__name__

    def group(self) -> Group:
        """Group g."""
        return self.service._shards.group("g")

    async def commit(self, offset: int, **changes: object) -> ErrorCode:
        [error] = await self.service.positions.commit(commit(offset, **changes))
        return error

    async def offset(self, partition: TopicPartition = T0, require_stable: bool = False) -> int | ErrorCode:
        [found] = await self.service.positions.fetch("g", [partition], require_stable)
        return found.error or found.offset

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """The marker is durable, and the node says so."""
        self.log_of().append_marker(producer_id, commit)
        self.service.complete_transaction(self.service.group_partition("g"), producer_id, commit)


def assignments(reply: JoinReply) -> tuple[tuple[str, bytes], ...]:
    """What a leader hands out: to each its own id."""
    return tuple((member.member_id, member.member_id.encode()) for member in reply.members)


def join(member_id: str = "", **changes: object) -> Join:
    """A v9 Join of group g by a consumer with one assignor."""
    fields: dict[str, object] = {
        "group_id": "g",
        "group_instance_id": None,
        "client_id": "c",
        "client_host": "/127.0.0.1",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": (("range", b"m"),),
        "member_id_required": True,
        "can_skip_assignment": True,
    }
    return Join(**{**fields, "member_id": member_id, **changes})  # type: ignore[arg-type]


def sync(member_id: str, generation: int, **changes: object) -> Sync:
    """A Sync of group g."""
    return Sync("g", member_id, None, generation, **changes)  # type: ignore[arg-type]


def commit(offset: int, partition: TopicPartition = T0, group_id: str = "g", **changes: object) -> Commit:
    """A commit of one position."""
    item = OffsetCommitItem(partition, offset, metadata="note")
    return Commit(group_id, (item,), **changes)  # type: ignore[arg-type]
