"""Dead letters for a topic that another broker leads: what is asked of it, and of the controller (KIP-1191)."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio

from fencepost.broker.config.broker_config import load_config
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.producer_state import AppendOrigin
from fencepost.broker.node import Node
from fencepost.broker.peers.peer import PeerUnavailable
from fencepost.broker.peers.remote_dead_letters import RemoteDeadLetters
from fencepost.broker.place import Alone, LeaderAndEpoch
from fencepost.broker.ports import Broker
from fencepost.broker.share.dead_letters import ATTEMPTS, FIRST_PAUSE_S, DeadLetterWriter
from fencepost.broker.share.values import DeadCause, DeadLetters
from fencepost.coordinator.metadata.commands import ConfigEdit, ConfigEdits, NewTopic
from fencepost.protocol.admin_enums import ConfigOperation, ConfigResourceType
from fencepost.protocol.batch_header import iter_headers
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api00_produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from fencepost.protocol.messages.api19_create_topics import CreatableTopicResult, CreateTopicsResponse
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.records import decode_records
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.topics import TopicPartition
from tests.kit.clocks import VirtualClock

OTHER = 2
JOBS = TopicPartition("jobs", 3)
ENABLED = {"errors.deadletterqueue.group.enable": "true"}
DEAD = DeadLetters(0, 1, 1, DeadCause.REJECTED)


class Elsewhere(Alone):
    """Another broker leads each topic whose name begins with "dlq", and is the controller if `controls` says so."""

    def __init__(self) -> None:
        super().__init__(
            load_config(
                assignments=[
                    "storage=memory",
                    "listeners=PLAINTEXT://127.0.0.1:0",
                    "errors.deadletterqueue.auto.create.topics.enable=true",
                    "errors.deadletterqueue.topic.name.prefix=dlq",
                ]
            )
        )
        self.links = self
        self.node: Node
        self.controls = False
        self.asked: list[Any] = []
        self.answers: list[ErrorCode | PeerUnavailable] = []
        """What the next Produce requests are answered; NONE if there are no more."""
        self.leader_now: int | None = OTHER
        self.positions = 0

    @property
    def is_controller(self) -> bool:
        return not self.controls

    @property
    def controller_id(self) -> int | None:
        return OTHER if self.controls else self.node_id

    def _is_elsewhere(self, topic_id: bytes) -> bool:
        topic = self.node.metadata.image.topics_by_id.get(topic_id)
        return topic is not None and topic.name.startswith("dlq")

    def leads_partition(self, topic_id: bytes, partition: int) -> bool:
        return not self._is_elsewhere(topic_id)

    def leader(self, topic_id: bytes, partition: int) -> LeaderAndEpoch:
        return LeaderAndEpoch(self.leader_now if self._is_elsewhere(topic_id) else self.node_id, 1)

    def dead_letters(self, node: Broker) -> RemoteDeadLetters:
        return RemoteDeadLetters(self, trio.lowlevel.checkpoint)

    async def note_position(self) -> None:
        self.positions += 1

    async def ask(self, broker: int, request: Any, version: int) -> Any:
        assert broker == OTHER
        api = API_BY_KEY[request.api_key]
        asked = api.request.decode(api.request.encode(request, version), version)
        self.asked.append(asked)
        if not isinstance(asked, ProduceRequest):
            self.controls = False
            [topic] = asked.topics
            configs = {one.name: one.value for one in topic.configs}
            [created] = await self.node.metadata.create_topics([NewTopic(topic.name, configs=configs)])
            return CreateTopicsResponse(topics=[CreatableTopicResult(error_code=created.outcome.code)])
        error = self.answers.pop(0) if self.answers else ErrorCode.NONE
        if isinstance(error, PeerUnavailable):
            raise error
        parts = [PartitionProduceResponse(error_code=error)]
        return ProduceResponse(responses=[TopicProduceResponse(name="dlq", partition_responses=parts)])


class Group:
    """A share group whose letters another broker keeps."""

    def __init__(self, place: Elsewhere) -> None:
        self.place, self.node = place, place.node
        self.writer = DeadLetterWriter(self.node)

    async def begin(self, *, topic: bool = True) -> None:
        topics = [NewTopic("jobs", 4), *([NewTopic("dlq", 2, configs=ENABLED)] if topic else [])]
        await self.node.metadata.create_topics(topics)
        names = {"errors.deadletterqueue.topic.name": "dlq", "errors.deadletterqueue.copy.record.enable": "true"}
        edits = tuple(ConfigEdit(name, ConfigOperation.SET, value) for name, value in names.items())
        await self.node.metadata.alter_configs([ConfigEdits(ConfigResourceType.GROUP, "g", edits)])
        now_ms = self.node.clock.now_ms()
        batch = build_batch([(now_ms, b"k", b"0", ()), (now_ms, b"k", b"1", ())])
        assert not self.log.append(batch, AppendOrigin.CLIENT, now_ms).error

    @property
    def log(self) -> PartitionLog:
        log = self.node.partition(JOBS)
        assert log is not None
        return log

    async def write(self) -> None:
        await self.writer.write("g", self.log, [DEAD])

    @property
    def produced(self) -> list[tuple[str, int, list[bytes | None]]]:
        """Topic, partition and the values of each Produce request."""
        found = []
        for request in self.place.asked:
            if isinstance(request, ProduceRequest):
                [topic] = request.topic_data
                [part] = topic.partition_data
                data = bytes(part.records or b"")
                [(start, header)] = iter_headers(data)
                values = [one.value for one in decode_records(data, start, header)]
                assert (request.acks, request.transactional_id) == (-1, None)
                found.append((topic.name, part.index, values))
        return found


@pytest.fixture
async def group() -> AsyncIterator[Group]:
    place = Elsewhere()
    place.node = node = Node(place._config, clock=VirtualClock(), listening=False, place=place)
    async with trio.open_nursery() as nursery:
        await nursery.start(node.run)
        yield Group(place)
        node.stop()
        await node.stopped.wait()


async def test_the_leader_of_the_topic_is_asked_to_append_them(group: Group) -> None:
    """ProduceRequestHandler: acks=-1, to the leader; the records are read from this broker's log."""
    await group.begin()
    await group.write()
    assert group.produced == [("dlq", 1, [b"0", b"1"])]
    assert (group.node.metrics.dead_letters, group.node.metrics.dead_letters_failed) == (2, 0)
    assert group.place.positions == 1, "what the other broker answered rests on a commit of the database"


@pytest.mark.parametrize(
    "trouble",
    [
        PeerUnavailable("broken"),
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
async def test_a_leader_that_moves_or_does_not_answer_is_tried_again(
    autojump_clock: trio.abc.Clock, group: Group, trouble: ErrorCode | PeerUnavailable
) -> None:
    """ProduceRequestHandler.handleProduceResponse; a batch whose answer was lost may be there twice."""
    await group.begin()
    group.place.answers = [trouble]
    began = trio.current_time()
    await group.write()
    assert group.produced == [("dlq", 1, [b"0", b"1"])] * 2
    assert trio.current_time() - began >= FIRST_PAUSE_S
    assert (group.node.metrics.dead_letters, group.node.metrics.dead_letters_failed) == (2, 0)


async def test_it_is_looked_up_for_each_attempt(autojump_clock: trio.abc.Clock, group: Group) -> None:
    """While no broker leads the partition, nothing is asked; five attempts (MAX_REQUEST_ATTEMPTS)."""
    await group.begin()
    group.place.leader_now = None
    await group.write()
    assert group.produced == []
    assert group.node.metrics.dead_letters_failed == 2


async def test_what_the_leader_refuses_for_good_is_given_up(group: Group) -> None:
    """No other attempt would help."""
    await group.begin()
    group.place.answers = [ErrorCode.MESSAGE_TOO_LARGE] * ATTEMPTS
    await group.write()
    assert len(group.produced) == 1
    assert (group.node.metrics.dead_letters, group.node.metrics.dead_letters_failed) == (0, 2)


async def test_the_controller_creates_the_topic(group: Group) -> None:
    """ShareGroupDLQStateManager.createTopic: CreateTopics, with the settings of a dead-letter topic."""
    await group.begin(topic=False)
    group.place.controls = True
    await group.write()
    [wanted] = group.place.asked[0].topics
    configs = {one.name: one.value for one in wanted.configs}
    assert (wanted.name, configs) == ("dlq", {**ENABLED, "message.timestamp.type": "CreateTime"})
    assert group.produced == [("dlq", 0, [b"0", b"1"])]


async def test_without_a_controller_the_topic_is_asked_for_again(autojump_clock: trio.abc.Clock, group: Group) -> None:
    """NOT_CONTROLLER: a standby takes over soon."""
    await group.begin(topic=False)
    group.place.controls, fail = True, PeerUnavailable("gone")
    ask: Callable[..., Any] = group.place.ask

    async def failing(broker: int, request: Any, version: int) -> Any:
        group.place.ask = ask  # type: ignore[method-assign]
        raise fail

    group.place.ask = failing  # type: ignore[method-assign]
    await group.write()
    assert group.produced == [("dlq", 0, [b"0", b"1"])]
