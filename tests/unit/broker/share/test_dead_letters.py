"""Writing dead letters: what is tried again, what is given up, and what is read of the source (G9, KIP-1191)."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from fencepost.broker.config.broker_config import load_config
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.producer_state import AppendOrigin
from fencepost.broker.log.reading import load, read_batches
from fencepost.broker.log.results import Ticket
from fencepost.broker.node import Node
from fencepost.broker.share.dead_letters import ATTEMPTS, DeadLetterWriter, look_at
from fencepost.broker.share.partitions import limits_of
from fencepost.broker.share.sessions import TopicIdPartition
from fencepost.broker.share.values import DeadCause, DeadLetters
from fencepost.coordinator.metadata.commands import ConfigEdit, ConfigEdits, NewTopic
from fencepost.coordinator.share.group_config import ShareGroupConfig
from fencepost.coordinator.share.values import DeliveryState, InitialState, ShareKey, StateBatch, StateUpdate
from fencepost.protocol.admin_enums import ConfigOperation, ConfigResourceType
from fencepost.protocol.batch_header import iter_headers
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.records import Record, decode_records
from fencepost.protocol.topics import IsolationLevel, TopicPartition
from tests.kit.clocks import VirtualClock

JOBS, LETTERS = TopicPartition("jobs", 3), TopicPartition("dlq.jobs", 1)
ENABLED = {"errors.deadletterqueue.group.enable": "true"}
COPY = {"errors.deadletterqueue.copy.record.enable": "true"}


def dead(first: int, last: int) -> DeadLetters:
    return DeadLetters(first, last, 1, DeadCause.REJECTED)


def batch(*values: bytes, **header: Any) -> bytearray:
    """One batch of records with keys."""
    return build_batch([(7, b"k", value, ()) for value in values], **header)


class Group:
    """A share group on a broker in memory; `begin` makes its topics."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.writer = DeadLetterWriter(node)

    async def begin(self, *, topic: bool = True, **configs: str) -> None:
        topics = [NewTopic("jobs", 4), *([NewTopic("dlq.jobs", 2, configs=ENABLED)] if topic else [])]
        await self.node.metadata.create_topics(topics)
        await self.configure(
            ConfigResourceType.GROUP, "g", {"errors.deadletterqueue.topic.name": "dlq.jobs", **configs}
        )

    async def configure(self, kind: ConfigResourceType, name: str, configs: dict[str, str]) -> None:
        edits = tuple(ConfigEdit(key, ConfigOperation.SET, value) for key, value in configs.items())
        [outcome] = await self.node.metadata.alter_configs([ConfigEdits(kind, name, edits)])
        assert outcome.code is ErrorCode.NONE, outcome

    def log(self, tp: TopicPartition = JOBS) -> PartitionLog:
        log = self.node.partition(tp)
        assert log is not None
        return log

    def append(self, data: bytearray) -> None:
        assert not self.log().append(data, AppendOrigin.COORDINATOR, 7).error

    async def write(self, *ranges: DeadLetters) -> None:
        await self.writer.write("g", self.log(), ranges)

    def letters(self) -> list[Record]:
        result = read_batches(self.log(LETTERS), 0, 1 << 20, IsolationLevel.READ_UNCOMMITTED)
        data = b"".join(map(load, result.parts))
        return [record for start, header in iter_headers(data) for record in decode_records(data, start, header)]

    def refuse(self, monkeypatch: pytest.MonkeyPatch, error: ErrorCode, times: int) -> list[float]:
        """Have the log of the letters refuse the first appends; when they came."""
        log, came = self.log(LETTERS), list[float]()
        append = log.append

        def refusing(*words: Any, **more: Any) -> Ticket:
            came.append(trio.current_time())
            return Ticket(log, 0, error=error) if len(came) <= times else append(*words, **more)

        monkeypatch.setattr(log, "append", refusing)
        return came


@pytest.fixture
async def group() -> AsyncIterator[Group]:
    config = load_config(assignments=["storage=memory", "listeners=PLAINTEXT://127.0.0.1:0"])
    node = Node(config, clock=VirtualClock(), listening=False)
    async with trio.open_nursery() as nursery:
        await nursery.start(node.run)
        yield Group(node)
        node.stop()
        await node.stopped.wait()


def offsets(records: list[Record]) -> list[int]:
    return [int(record.headers[2][1] or b"") for record in records]


async def test_they_go_to_the_partition_of_the_same_number(group: Group) -> None:
    """`populateDLQTopicData`: the source's partition modulo the number of partitions; nothing is copied by default."""
    await group.begin()
    group.append(batch(b"a", b"b", b"c"))
    await group.write(dead(0, 0), dead(2, 2))
    assert [(record.key, record.value) for record in group.letters()] == [(None, None)] * 2
    assert offsets(group.letters()) == [0, 2]
    assert (group.node.metrics.dead_letters, group.node.metrics.dead_letters_failed) == (2, 0)


async def test_a_compressed_batch_is_copied_record_by_record(group: Group) -> None:
    """ShareGroupDLQRecordFetcher.collectFromCompressedBatch; a record above max.message.bytes is not copied."""
    await group.begin(**COPY)
    await group.configure(ConfigResourceType.TOPIC, "dlq.jobs", {"max.message.bytes": "1000"})
    group.append(batch(b"a", b"x" * 1001, b"c", compression=Compression.ZSTD))
    group.append(batch(b"d"))
    await group.write(dead(1, 3))
    assert [record.value for record in group.letters()] == [None, b"c", b"d"]


async def test_what_retention_took_away_has_headers_only(group: Group) -> None:
    """`resolveRound`: a failed read is no failed dead letter."""
    await group.begin(**COPY)
    group.append(batch(b"a"))
    group.append(batch(b"b"))
    group.log().raise_log_start(1)
    await group.write(dead(0, 1), dead(5, 6))
    assert [(record.key, record.value) for record in group.letters()] == [
        (None, None),
        (b"k", b"b"),
        *[(None, None)] * 2,
    ]


async def test_the_broker_creates_the_topic_when_it_may(group: Group) -> None:
    """`createTopicBuilder`: with the permission, and timestamps of the broker's own clock."""
    await group.begin(topic=False)
    group.append(batch(b"a"))
    await group.configure(ConfigResourceType.BROKER, "", {"errors.deadletterqueue.auto.create.topics.enable": "true"})
    await group.write(dead(0, 0))
    configs = dict(group.node.metadata.image.topic_config("dlq.jobs"))
    assert configs == {**ENABLED, "message.timestamp.type": "CreateTime"}
    assert group.node.metrics.dead_letters == 1


async def test_a_write_is_tried_again(group: Group, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> None:
    """ExponentialBackoffManager: five attempts, after 2, 4, 8 and 16 s."""
    await group.begin()
    group.append(batch(b"a", b"b"))
    came = group.refuse(monkeypatch, ErrorCode.NOT_LEADER_OR_FOLLOWER, 4)
    await group.write(dead(0, 1))
    assert [round(after - came[0]) for after in came] == [0, 2, 6, 14, 30]
    assert offsets(group.letters()) == [0, 1]


async def test_a_full_disk_is_waited_for_and_then_they_are_given_up(
    group: Group, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    """Ours: Kafka gives up at once. Either way the records are archived, and an error names them."""
    await group.begin()
    group.append(batch(b"a", b"b"))
    came = group.refuse(monkeypatch, ErrorCode.KAFKA_STORAGE_ERROR, 99)
    await group.write(dead(0, 1))
    assert len(came) == ATTEMPTS
    assert group.node.metrics.dead_letters_failed == 2
    assert "archived without a dead letter group=g partition=jobs-3 offsets=0-1 cause=dlq.jobs-1 refused" in caplog.text


async def test_another_error_is_final_and_harms_no_other(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """`handleProduceResponse`: every other error of Produce completes the future exceptionally."""
    await group.begin()
    group.append(batch(b"a", b"b"))
    came = group.refuse(monkeypatch, ErrorCode.INVALID_RECORD, 1)
    await group.write(dead(0, 0), dead(1, 1))
    assert len(came) == 2
    assert offsets(group.letters()) == [1]


async def test_an_unexpected_error_stops_no_share_partition(
    group: Group, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """DefaultShareGroupDLQManager.enqueue catches all."""
    await group.begin()
    monkeypatch.setattr(group.writer, "_append", None)
    await group.write(dead(0, 0))
    assert "dead letters cannot be written group=g partition=jobs-3" in caplog.text
    assert group.node.metrics.dead_letters_failed == 1


def test_a_damaged_batch_has_no_copies() -> None:
    """ShareGroupDLQRecordFetcher: what cannot be read is resolved without a record."""
    data = batch(b"a")
    data[-1] ^= 1
    chunk = look_at(bytes(data), 0, 5, 1000, 1000)
    assert chunk == (1, {}, frozenset())


async def test_what_stands_as_archiving_is_written_by_the_next_leader(group: Group) -> None:
    """SharePartition.maybeResumeDlqArchiving: then it is archived, with no member there."""
    await group.begin()
    group.append(batch(b"a", b"b", b"c"))
    node, topic_id = group.node, group.log().topic_id
    key = ShareKey("g", topic_id, JOBS.partition)
    await node.share_states.initialize({key: InitialState(1, 0)})
    stored = [StateBatch(0, 0, DeliveryState.ACKNOWLEDGED, 1), StateBatch(1, 1, DeliveryState.ARCHIVING, 5)]
    await node.share_states.write([(key, StateUpdate(1, 0, 0, 1, stored))])
    node.shares.begin("g", TopicIdPartition(topic_id, JOBS.partition), JOBS)
    await wait_all_tasks_blocked(0.05)
    assert (await node.share_states.read(key, 0)).batches == (StateBatch(1, 1, DeliveryState.ARCHIVED, 5),)
    assert offsets(group.letters()) == [1]
    assert group.letters()[0].headers[5][1] == DeadCause.LIMIT.encode()
    assert node.shares.led() == [], "its group has no session here"


@pytest.mark.parametrize(
    ("share_version", "topic", "writes"), [(1, "dlq.a", False), (2, "dlq.a", True), (2, "", False)]
)
def test_only_share_version_2_has_dead_letters(share_version: int, topic: str, writes: bool) -> None:
    """ShareVersion.supportsShareGroupDLQ, SharePartition.isDLQEnabledForGroup."""
    settings = ShareGroupConfig().of_group({"errors.deadletterqueue.topic.name": topic})
    assert limits_of(settings, share_version).dead_letters is writes
