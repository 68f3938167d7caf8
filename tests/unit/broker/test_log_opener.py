"""Logs that a start finds on disk: a thread opens them, while clients are told to ask again."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from fencepost.broker.config.broker_config import load_config
from fencepost.broker.log.durability.sync_threads import Failure, SyncThreads
from fencepost.broker.log.housekeeping import housekeep
from fencepost.broker.log.producer_state import AppendOrigin
from fencepost.broker.log.recovery.log_files import LogFiles
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.log.storage.store import SyncTask
from fencepost.broker.log.upkeep_failures import OPENING
from fencepost.broker.node import Node
from fencepost.coordinator.metadata.commands import ConfigEdit, ConfigEdits
from fencepost.coordinator.metadata.controller import NewTopic, TopicRef
from fencepost.protocol.admin_enums import ConfigOperation, ConfigResourceType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from tests.unit.log.kit import NOW_MS, batch, crashed

NAMES = ("a", "b", "c")
A, B, C = (TopicPartition(name, 0) for name in NAMES)


class Gate(SyncThreads):
    """Holds a thread back from some logs until the test sets `open`; notes the order in which logs are read."""

    def __init__(self, *held: TopicPartition) -> None:
        super().__init__(helpers_max=0)
        self.held = held
        self.open = trio.Event()
        self.read: list[TopicPartition] = []

    async def sync(self, sync_targets: Sequence[SyncTask]) -> list[Failure]:
        for target in sync_targets:
            if isinstance(target, LogFiles):
                if target.tp in self.held:
                    await self.open.wait()
                self.read.append(target.tp)
        return self.sync_inline(sync_targets)


@asynccontextmanager
async def started(store: MemoryStore, threads: Gate) -> AsyncIterator[Node]:
    node = Node(load_config(flags={"storage": "memory"}), store=store, threads=threads, listening=False)
    async with trio.open_nursery() as nursery:
        await nursery.start(node.run)
        yield node
        threads.open.set()
        node.stop()


async def killed() -> MemoryStore:
    """The files of a broker that was killed; it had one record in each of three topics."""
    store = MemoryStore()
    async with started(store, Gate()) as node:
        await node.metadata.create_topics([NewTopic(name, 1) for name in NAMES])
        for tp in (A, B, C):
            log = node.partition(tp)
            assert log is not None
            assert not log.append(bytes(batch()), AppendOrigin.CLIENT, NOW_MS).error
            await node.flusher.wait_all([log.newest_ticket()])
        return crashed(store)


async def test_a_start_waits_for_all_logs_that_open_at_once(autojump_clock: MockClock) -> None:
    async with started(await killed(), Gate()) as node:
        assert [tp for tp in (A, B, C) if node.logs.opened(tp) is None] == []


async def test_a_log_that_takes_long_to_read_keeps_no_other_waiting(autojump_clock: MockClock) -> None:
    """Kafka answers NOT_LEADER_OR_FOLLOWER before a replica is made the leader: clients ask again."""
    threads = Gate(A)
    async with started(await killed(), threads) as node:
        assert (node.partition(A), node.absence(A)) == (None, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert not node.is_offline(A)
        await housekeep(node.logs, NOW_MS)
        assert node.logs.opened(A) is None
        threads.open.set()
        await trio.sleep(1)
        log = node.partition(A)
        assert log is not None
        assert (log.log_end_offset, log.high_watermark) == (1, 1)


async def test_what_clients_wait_for_is_opened_first(autojump_clock: MockClock) -> None:
    threads = Gate(A)
    async with started(await killed(), threads) as node:
        assert node.partition(C) is None
        threads.open.set()
        await trio.sleep(1)
        assert threads.read == [A, C, B]


async def test_a_topic_that_is_deleted_and_made_again_while_its_log_is_read_is_empty(
    autojump_clock: MockClock,
) -> None:
    threads = Gate(A)
    async with started(await killed(), threads) as node:
        await node.metadata.delete_topics([TopicRef(name="a")])
        assert node.absence(A) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await node.metadata.create_topics([NewTopic("a", 1)])
        threads.open.set()
        await trio.sleep(1)
        log = node.partition(A)
        assert log is not None
        assert log.topic_id == node.metadata.image.topics_by_name["a"].topic_id
        assert (log.log_end_offset, log.append(bytes(batch()), AppendOrigin.CLIENT, NOW_MS).base_offset) == (0, 0)


@pytest.mark.parametrize("held", [(), (A,)])
async def test_a_damaged_log_is_offline_and_the_next_one_is_opened(
    autojump_clock: MockClock, held: tuple[TopicPartition, ...]
) -> None:
    store = await killed()
    store.child("a-0").replace("partition.metadata", b"damaged", durable=True)
    async with started(store, Gate(*held)) as node:
        await trio.sleep(2)
        assert (node.partition(A), node.absence(A)) == (None, ErrorCode.KAFKA_STORAGE_ERROR)
        assert node.is_offline(A)
        assert node.partition(B) is not None


async def test_a_defect_in_recovery_does_not_end_the_broker(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is counted as failed upkeep, the other logs are opened, and the next use of this one meets it again."""
    store, read = await killed(), LogFiles._read

    def read_others(files: LogFiles) -> None:
        if files.tp == A:
            raise ZeroDivisionError("a defect")
        read(files)

    monkeypatch.setattr(LogFiles, "_read", read_others)
    async with started(store, Gate()) as node:
        assert [node.logs.opened(tp) is not None for tp in (A, B, C)] == [False, True, True]
        assert node.logs.upkeep.counts[OPENING] == 1
        assert "the opening of a log failed" in caplog.text
        assert "partition=a-0 cause=ZeroDivisionError" in caplog.text
        with pytest.raises(ZeroDivisionError):
            node.partition(A)


async def set_max_bytes(node: Node, resource: ConfigResourceType, name: str, setting: str) -> None:
    edit = ConfigEdit(setting, ConfigOperation.SET, "1000")
    [outcome] = await node.metadata.alter_configs([ConfigEdits(resource, name, (edit,))])
    assert outcome.code is ErrorCode.NONE, outcome.message


@pytest.mark.parametrize("held", [(), (A,)], ids=["opened", "opening"])
@pytest.mark.parametrize(
    ("resource", "name", "setting"),
    [(ConfigResourceType.TOPIC, "a", "max.message.bytes"), (ConfigResourceType.BROKER, "1", "message.max.bytes")],
    ids=["topic", "broker"],
)
async def test_a_setting_that_changes_before_the_first_use_of_a_log_holds_for_it(
    autojump_clock: MockClock,
    held: tuple[TopicPartition, ...],
    resource: ConfigResourceType,
    name: str,
    setting: str,
) -> None:
    """Kafka: DynamicTopicConfig updates every log that the log manager has (TopicConfigHandler)."""
    threads = Gate(*held)
    async with started(await killed(), threads) as node:
        await set_max_bytes(node, resource, name, setting)
        threads.open.set()
        await trio.sleep(1)
        opened = node.logs.opened(A)
        assert opened is not None
        assert opened.config.max_message_bytes == 1000, "retention and compaction use it, too"
        log = node.partition(A)
        assert log is opened
        assert log.config.max_message_bytes == 1000
        assert log.append(bytes(batch(value=bytes(2000))), AppendOrigin.CLIENT, NOW_MS).error
