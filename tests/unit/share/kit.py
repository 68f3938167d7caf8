"""A share coordinator over logs in memory, and the topics that it asks for."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fencepost.coordinator.metadata.commands import DONE, CreatedTopic, NewTopic, Outcome
from fencepost.coordinator.metadata.image import EMPTY_IMAGE, MetadataImage, PartitionImage, TopicImage
from fencepost.coordinator.share.config import ShareStateConfig
from fencepost.coordinator.share.service import ShareStates
from fencepost.coordinator.share.values import InitialState, ShareKey, StateBatch, StateUpdate
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from tests.kit.clocks import StillClock
from tests.kit.memory_log import CoordinatorLogs

TOPIC_ID, OTHER_ID = bytes(range(1, 17)), bytes(range(2, 18))
KEY = ShareKey("gs", TOPIC_ID, 0)
OTHER = ShareKey("gs", OTHER_ID, 0)


def update(start: int = 100, *batches: tuple[int, int, int, int], complete: int = 0, **epochs: int) -> StateUpdate:
    """What a leader of epoch 0 stores, of a share partition of state epoch 1."""
    whole = {"state_epoch": 1, "leader_epoch": 0, **epochs}
    return StateUpdate(
        whole["state_epoch"], whole["leader_epoch"], start, complete, [StateBatch(*one) for one in batches]
    )


@dataclass
class Topics:
    """Topics of three partitions, to be deleted and created."""

    image: MetadataImage = field(default_factory=lambda: EMPTY_IMAGE)
    refuses: bool = False
    created: list[NewTopic] = field(default_factory=list)

    def add(self, name: str, topic_id: bytes, partitions: int = 3) -> None:
        topic = TopicImage(name, topic_id, (PartitionImage((0,), (0,)),) * partitions)
        self.image = MetadataImage(
            topics_by_name={**self.image.topics_by_name, name: topic},
            topics_by_id={**self.image.topics_by_id, topic_id: topic},
        )

    def remove(self, topic_id: bytes) -> None:
        left = [topic for topic in self.image.topics_by_id.values() if topic.topic_id != topic_id]
        self.image = MetadataImage(
            topics_by_name={topic.name: topic for topic in left}, topics_by_id={topic.topic_id: topic for topic in left}
        )

    def exists(self, partition: TopicPartition) -> bool:
        return partition.topic in self.image.topics_by_name

    def topic_name(self, topic_id: bytes) -> str | None:
        topic = self.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def topic_id(self, topic: str) -> bytes | None:
        found = self.image.topics_by_name.get(topic)
        return None if found is None else found.topic_id

    async def create_topics(self, topics: Sequence[NewTopic]) -> list[CreatedTopic]:
        if self.refuses:
            return [CreatedTopic(topic.name, Outcome(ErrorCode.NOT_CONTROLLER, "no")) for topic in topics]
        for topic in topics:
            self.created.append(topic)
            self.add(topic.name, bytes([len(self.created)]) * 16, topic.partitions)
        return [CreatedTopic(topic.name, DONE) for topic in topics]


class World:
    """One share coordinator, which can be stopped dead and started again on what was durable."""

    def __init__(
        self, config: ShareStateConfig | None = None, partitions: int = 50, *, has_guests: bool = False
    ) -> None:
        self.has_guests = has_guests
        self.config = config or ShareStateConfig()
        self.logs = CoordinatorLogs(partitions)
        self.topics = Topics()
        self.topics.add("t", TOPIC_ID)
        self.topics.add("u", OTHER_ID)
        self.clock = StillClock()
        self.service = self._new()

    def _new(self) -> ShareStates:
        return ShareStates(self.config, self.logs, self.topics, self.clock, has_guests=self.has_guests)

    async def start(self, *, forget_deleted_topics: bool = False) -> ShareStates:
        await self.service.start(forget_deleted_topics=forget_deleted_topics)
        return self.service

    async def crash(self, *, forget_deleted_topics: bool = False) -> ShareStates:
        self.logs = self.logs.survivors()
        self.service = self._new()
        return await self.start(forget_deleted_topics=forget_deleted_topics)

    async def begin(self, *keys: ShareKey, state_epoch: int = 1) -> None:
        """Initialize share partitions at offset 100."""
        outcomes = await self.service.initialize({key: InitialState(state_epoch, 100) for key in keys})
        assert {outcome.error for outcome in outcomes.values()} == {ErrorCode.NONE}

    async def write(self, key: ShareKey, what: StateUpdate) -> ErrorCode:
        [outcome] = await self.service.write([(key, what)])
        return outcome.error
