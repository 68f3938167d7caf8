"""A small, realistic data directory made by a real node, and everything that clients can read of one."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import trio

from fencepost.broker.config.broker_config import load_config
from fencepost.broker.log.partition import AppendOrigin, PartitionLog
from fencepost.broker.log.reading import load, read_batches
from fencepost.broker.node import Node
from fencepost.coordinator.group.commit import Commit
from fencepost.coordinator.group.offsets import OffsetCommitItem
from fencepost.coordinator.metadata.commands import NewTopic
from fencepost.coordinator.txn.commands import EndTxn, resolve
from fencepost.protocol.batch_header import CorruptBatch, check_crc, iter_headers
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.records import decode_records
from fencepost.protocol.topics import IsolationLevel, TopicPartition

TOPIC = "orders"
PARTITIONS = 3
GROUPS = ("readers", "writers")
IDS = ("tx-a", "tx-b", "tx-open")
_SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "durability": "os",
}


def node_over(directory: Path) -> Node:
    """A node on a directory, not yet running."""
    settings = {**_SETTINGS, "log.dirs": str(directory)}
    return Node(load_config(environ={}, assignments=[f"{name}={value}" for name, value in settings.items()]))


async def make(directory: Path, crashed: Path) -> None:
    """Fill `directory` and close it in order; `crashed` gets what a kill -9 shortly before would have left."""
    async with trio.open_nursery() as nursery:
        node = node_over(directory)
        await nursery.start(node.run)
        await _fill(node)
        shutil.copytree(directory, crashed)
        node.stop()


async def _fill(node: Node) -> None:
    created = await node.metadata.create_topics([NewTopic(TOPIC, PARTITIONS)])
    assert not created[0].outcome.code, created
    for number in range(PARTITIONS):
        await _write(node, TopicPartition(TOPIC, number))
    for group in GROUPS:
        items = tuple(OffsetCommitItem(TopicPartition(TOPIC, n), 10 + n, metadata="here") for n in range(PARTITIONS))
        errors = await node.groups.positions.commit(Commit(group, items))
        assert not any(errors), errors
    await node.metadata.create_topics([NewTopic("late", 1)])


async def _write(node: Node, tp: TopicPartition) -> None:
    """Transactions that commit, abort and stay open, between plain batches, over several segments."""
    log = node.partition(tp)
    assert log is not None
    for round_ in range(4):
        for name, commit in (("tx-a", round_ % 2 == 0), ("tx-b", round_ % 2 == 1)):
            answer = await node.transactions.init_producer_id(name, 60_000)
            added = await node.transactions.add_partitions(name, answer.producer_id, answer.epoch, [tp])
            assert not any(added.values()), added
            for sequence in range(2):
                _append(node, log, f"{name}-{round_}-{sequence}", answer.producer_id, answer.epoch, sequence)
            _append(node, log, f"plain-{round_}-{name}")
            ended = await resolve(
                node.transactions.submit(name, EndTxn(answer.producer_id, answer.epoch, commit), None)
            )
            assert not ended.error, ended
    if tp.partition == 0:
        answer = await node.transactions.init_producer_id("tx-open", 600_000)
        await node.transactions.add_partitions("tx-open", answer.producer_id, answer.epoch, [tp])
        _append(node, log, "open", answer.producer_id, answer.epoch, 0)
        _append(node, log, "behind the open one")
    await node.flusher.wait_all([log.newest_ticket()])


def _append(
    node: Node, log: PartitionLog, text: str, producer_id: int = -1, epoch: int = -1, sequence: int = -1
) -> None:
    log.config = replace(log.config, segment_bytes=1100, index_interval_bytes=120)
    data = build_batch(
        [(node.clock.now_ms(), f"{text}-{n}".encode(), b"value", ()) for n in range(2)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence if sequence < 0 else sequence * 2,
        transactional=producer_id >= 0,
    )
    info = log.append(data, AppendOrigin.CLIENT, node.clock.now_ms())
    assert not info.error, info


@dataclass
class Seen:
    """What clients can see of a directory, by partition, group and transactional id; None stands for an error."""

    uncommitted: dict[str, list[tuple[int, bytes | None]] | None] = field(default_factory=dict)
    committed: dict[str, list[tuple[int, bytes | None]] | None] = field(default_factory=dict)
    positions: dict[str, Any] = field(default_factory=dict)
    transactions: dict[str, Any] = field(default_factory=dict)
    topics: dict[str, bytes] = field(default_factory=dict)
    next_producer_id: int = 0
    cluster_id: str = ""


async def look(directory: Path) -> Seen:
    """Start a node on the directory, ask for everything, and close it in order."""
    node = node_over(directory)
    seen = Seen(cluster_id=node.metadata.facts.cluster_id)
    async with trio.open_nursery() as nursery:
        await nursery.start(node.run)
        image = node.metadata.image
        seen.topics = {name: topic.topic_id for name, topic in image.topics_by_name.items()}
        seen.next_producer_id = image.next_producer_id
        for number in range(PARTITIONS):
            tp = TopicPartition(TOPIC, number)
            log = node.partition(tp)
            seen.uncommitted[str(tp)] = None if log is None else read(log, IsolationLevel.READ_UNCOMMITTED)
            seen.committed[str(tp)] = None if log is None else read(log, IsolationLevel.READ_COMMITTED)
        for group in GROUPS:
            found = await node.groups.positions.fetch(
                group, [TopicPartition(TOPIC, n) for n in range(PARTITIONS)], True
            )
            lost = node.groups.refusal(group)
            seen.positions[group] = None if lost else [(one.offset, one.metadata, one.error) for one in found]
        for name in IDS:
            told = await node.transactions.describe(name)
            unavailable = told.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
            seen.transactions[name] = (
                None if unavailable else (told.error, told.state, told.producer_id, told.partitions)
            )
        node.stop()
    return seen


def read(log: PartitionLog, isolation: IsolationLevel) -> list[tuple[int, bytes | None]] | None:
    """Everything a careful client gets: it checks each batch and leaves out what is aborted. None for any error."""
    found: list[tuple[int, bytes | None]] = []
    offset = log.log_start_offset
    while True:
        result = read_batches(log, offset, 600, isolation)
        if result.error:
            return None
        if not result.size_bytes:
            return found
        data = b"".join(load(part) for part in result.parts)
        aborted = sorted(result.aborted or (), key=lambda entry: entry[1])
        before = offset
        try:
            for key_offset, key, next_offset in _records(data, aborted):
                if key_offset >= offset:
                    found.append((key_offset, key))
                offset = max(offset, next_offset)
            offset = max(offset, max(header.next_offset for _, header in iter_headers(data)))
        except (CorruptBatch, ValueError):
            return None
        if offset == before:
            return None


def _records(data: bytes, aborted: list[tuple[int, int]]) -> Iterator[tuple[int, bytes | None, int]]:
    """As a consumer filters (row C4): a producer's records are dropped from its abort's first offset to its marker."""
    dropped: set[int] = set()
    for position, header in iter_headers(data):
        if not check_crc(data, position, header):
            raise CorruptBatch("a client finds the checksum wrong")
        while aborted and aborted[0][1] <= header.last_offset:
            dropped.add(aborted.pop(0)[0])
        if header.is_control:
            dropped.discard(header.producer_id)
            continue
        if header.is_transactional and header.producer_id in dropped:
            continue
        for record in decode_records(data, position, header):
            yield record.offset, record.key, header.next_offset
