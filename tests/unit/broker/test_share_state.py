"""The share coordinator of a whole broker: its topic on files, pruning, damage, and where there is none (KIP-932)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from fencepost.broker import periodic
from fencepost.broker.config.broker_config import load_config
from fencepost.broker.log.verify.report import Report
from fencepost.broker.node import Node
from fencepost.broker.verification import verify
from fencepost.coordinator.metadata.commands import NewTopic, TopicRef
from fencepost.coordinator.share.key_text import key_text
from fencepost.coordinator.share.values import InitialState, ShareKey, StateBatch, StateUpdate
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import SHARE_STATE_TOPIC, TopicPartition
from tests.kit.clocks import VirtualClock

GROUP, HOUR_MS = "gs", 3_600_000
INTERNAL = ("offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1")


@asynccontextmanager
async def running(*settings: str) -> AsyncIterator[Node]:
    config = load_config(assignments=["listeners=PLAINTEXT://127.0.0.1:0", *INTERNAL, *settings])
    node = Node(config, clock=VirtualClock(), listening=False)
    async with trio.open_nursery() as nursery:
        await nursery.start(node.run)
        yield node
        node.stop()


async def begin(node: Node) -> ShareKey:
    """The share partition of a new topic, with a state of its own."""
    await node.metadata.create_topics([NewTopic("t", 1)])
    key = ShareKey(GROUP, node.metadata.topic_id("t") or b"", 0)
    assert (await node.share_states.initialize({key: InitialState(1, 100)}))[key].error is ErrorCode.NONE
    changed = StateUpdate(1, 0, 100, 10, [StateBatch(100, 109, 2, 1)])
    assert [one.error for one in await node.share_states.write([(key, changed)])] == [ErrorCode.NONE]
    return key


def place(node: Node, key: ShareKey) -> TopicPartition:
    return TopicPartition(SHARE_STATE_TOPIC, node.share_states.runtime.partition_for(key_text(key)))


async def test_pruned_records_are_not_needed(tmp_path: Path) -> None:
    """ShareCoordinatorService.performRecordPruning: the records below the last snapshots go, and the state stays."""
    async with running(f"log.dirs={tmp_path}") as node:
        key = await begin(node)
        log = node.logs.get(place(node, key))
        assert log is not None
        await periodic.prune_share_states(node)
        assert log.log_start_offset == 0, "the share partition is not cold yet"
        node.clock.shift_ms += HOUR_MS  # type: ignore[attr-defined]
        await periodic.prune_share_states(node)
        assert (log.log_start_offset, log.log_end_offset) == (2, 3)
    async with running(f"log.dirs={tmp_path}") as node:
        log = node.logs.get(place(node, key))
        assert log is not None
        assert log.log_start_offset == 2
        found = await node.share_states.read(key, 0)
        assert (found.start_offset, found.batches) == (100, (StateBatch(100, 109, 2, 1),))
    report = Report()
    verify(tmp_path, report)
    assert report.findings == []


async def test_a_damaged_log_costs_its_own_share_partitions_only(tmp_path: Path) -> None:
    """COORDINATOR_NOT_AVAILABLE for them; nothing is guessed, nothing written."""
    async with running(f"log.dirs={tmp_path}") as node:
        key = await begin(node)
        other = next(
            one for number in range(50) if place(node, one := key._replace(group_id=f"g{number}")) != place(node, key)
        )
    path = tmp_path / str(place(node, key)) / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[90] ^= 1
    path.write_bytes(data)
    async with running(f"log.dirs={tmp_path}") as node:
        assert (await node.share_states.read(key, 0)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        outcomes = await node.share_states.initialize({key: InitialState(2, 0), other: InitialState(2, 0)})
        assert [one.error for one in outcomes.values()] == [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE]
    assert path.read_bytes() == data


async def test_a_broker_with_fewer_partitions_than_its_topic_starts_and_says_so(tmp_path: Path, caplog) -> None:
    """share.coordinator.state.topic.num.partitions must not change: nothing is read or written until it is back."""
    count = "share.coordinator.state.topic.num.partitions"
    async with running(f"log.dirs={tmp_path}") as node:
        key = await begin(node)
    async with running(f"log.dirs={tmp_path}", f"{count}=1") as node:
        found = await node.share_states.read(key, 0)
        assert found.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert f"has 50 partitions, and {count} is 1: set it to 50" in caplog.text
    async with running(f"log.dirs={tmp_path}") as node:
        assert (await node.share_states.read(key, 0)).start_offset == 100


async def test_a_deleted_topic_takes_its_share_state_with_it() -> None:
    """KIP-932: a topic of the same name has another id, so it never has the old state."""
    async with running("storage=memory") as node:
        key = await begin(node)
        await node.metadata.delete_topics([TopicRef("t")])
        assert len(node.share_states) == 0
        again = await begin(node)
        assert again != key
        assert (await node.share_states.read(again, 0)).start_offset == 100
        assert (await node.share_states.read(key, 0)).error is ErrorCode.INVALID_REQUEST


async def test_where_there_are_other_brokers_there_is_no_share_coordinator(monkeypatch) -> None:
    """Share groups work on a broker alone: elsewhere Kafka's answer of one whose coordinator is not active."""
    monkeypatch.setattr("fencepost.broker.place.Alone.has_share_groups", False)
    async with running("storage=memory") as node:
        key = ShareKey(GROUP, bytes(16), 0)
        assert (await node.share_states.read(key, 0)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert SHARE_STATE_TOPIC not in node.metadata.image.topics_by_name
