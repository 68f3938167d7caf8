"""Two scripted brokers that share their logs and their memory of producers, and do to requests what networks do.

Partitions change their leader, requests and answers are lost or late, refused before the append or after it, metadata
is wrong for a while. What may be appended is decided by the broker's own rules (`ProducerStates`).
"""

from random import Random
from typing import Any

import trio

from fencepost.broker.log.producer_entries import BatchMetadata
from fencepost.broker.log.producer_state import AppendOrigin, ProducerStates, Refusal
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api00_produce import (
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from fencepost.protocol.messages.api22_init_producer_id import InitProducerIdResponse
from tests.kit.answers import Leader, metadata_told, partitions_told
from tests.kit.scripted_broker import HANG_UP, SILENCE, ScriptedBroker, SentBatch

BEFORE = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_RECORD,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
AFTER = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
LATE_S = (0.01, 0.3, 3, 20)


class MovingWorld:
    """What the brokers share. `level` is how often something goes wrong, until all is `calm`."""

    def __init__(self, random: Random, partitions: int) -> None:
        self.random = random
        self.partitions = partitions
        self.logs: list[list[bytes]] = [[] for _ in range(partitions)]
        self.states = [ProducerStates() for _ in range(partitions)]
        self.leaders = [random.choice((1, 2)) for _ in range(partitions)]
        self.epochs = [0] * partitions
        self.level = random.choice((0.05, 0.2, 0.5))
        self.calm = False
        self.last_producer = 7
        self.brokers = {node: MovingBroker(self, node) for node in (1, 2)}

    def happens(self, share: float) -> bool:
        """Whether what happens that often, as a share of all that goes wrong, happens now."""
        return not self.calm and self.random.random() < self.level * share

    async def move(self) -> None:
        """Leaders change now and then, until all is calm."""
        while not self.calm:
            await trio.sleep(self.random.choice((0.1, 2, 15)))
            if self.happens(1):
                at = self.random.randrange(self.partitions)
                self.leaders[at], self.epochs[at] = 3 - self.leaders[at], self.epochs[at] + 1


class MovingBroker(ScriptedBroker):
    """One of the two."""

    def __init__(self, world: MovingWorld, node: int) -> None:
        super().__init__(partitions=world.partitions)
        self._world = world
        self._node = node

    def nodes(self) -> dict[int, int]:
        return {node: broker.port for node, broker in self._world.brokers.items()}

    def leaders(self) -> dict[int, Leader]:
        return dict(enumerate(zip(self._world.leaders, self._world.epochs, strict=True)))

    def on_Metadata(self, request: Any, version: int) -> Any:
        world = self._world
        if world.happens(0.25):
            return world.random.choice((HANG_UP, SILENCE))
        topics = {self.topic: partitions_told(self.leaders(), self.nodes())}
        if world.happens(0.3):
            topics = {}
        return metadata_told(self.nodes(), [self.topic] if request.topics else [], topics, self.topic_id)

    def on_InitProducerId(self, request: Any, version: int) -> Any:
        self._world.last_producer += 1
        return InitProducerIdResponse(producer_id=self._world.last_producer, producer_epoch=0)

    async def on_Produce(self, request: Any, version: int) -> Any:
        world = self._world
        if world.happens(0.5):
            await trio.sleep(world.random.choice(LATE_S))
        if world.happens(0.15):
            return world.random.choice((HANG_UP, SILENCE))
        topics = [
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[self._part(p) for p in topic.partition_data],
            )
            for topic in request.topic_data
        ]
        if world.happens(0.3):
            return world.random.choice((HANG_UP, SILENCE))
        if world.happens(0.3):
            await trio.sleep(world.random.choice(LATE_S))
        return ProduceResponse(responses=topics, throttle_time_ms=500 if world.happens(0.1) else 0)

    def _part(self, part: Any) -> Any:
        world, at = self._world, part.index
        code, base = self._append(part)
        said = PartitionProduceResponse(index=at, error_code=code, base_offset=base)
        if world.leaders[at] != self._node and world.random.random() < 0.5:
            said.current_leader = LeaderIdAndEpoch(leader_id=world.leaders[at], leader_epoch=world.epochs[at])
        return said

    def _append(self, part: Any) -> tuple[ErrorCode, int]:
        world, at = self._world, part.index
        if world.leaders[at] != self._node:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        if world.happens(0.2):
            return world.random.choice(BEFORE), -1
        sent, log = SentBatch(at, part.records), world.logs[at]
        admitted = world.states[at].admit(sent.header, len(log), AppendOrigin.CLIENT)
        if isinstance(admitted, Refusal):
            return admitted.code, -1
        if isinstance(admitted, BatchMetadata):
            return ErrorCode.NONE, admitted.first_offset
        world.states[at].commit_data(admitted)
        log += [value for value in sent.values if value is not None]
        if world.happens(0.15):
            return world.random.choice(AFTER), -1
        return ErrorCode.NONE, len(log) - len(sent.values)
