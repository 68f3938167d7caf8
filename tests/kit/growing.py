"""Logs of a cluster that grow: random appends, what readers see, and a broker's merges, for tests."""

import random
from collections.abc import Callable
from typing import Any

import trio

from fencepost.broker.cluster.growth.loops import Growth
from fencepost.broker.config.broker_config import BrokerConfig
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.partition import AppendOrigin, PartitionLog
from fencepost.broker.log.reading import read_batches
from fencepost.broker.log.storage.txn_index import AbortedTransaction
from fencepost.protocol.topics import TopicPartition
from tests.kit.shared_store import TOPIC_ID, StoreBroker
from tests.unit.log.kit import NOW_MS, TP, UNCOMMITTED, batch, joined


def opened(
    broker: StoreBroker, tp: TopicPartition = TP, topic_id: bytes = TOPIC_ID, config: LogConfig | None = None
) -> PartitionLog:
    """A log of a broker."""
    config = config or LogConfig(producer_id_expiration_ms=1 << 60)
    found = broker.open(str(tp), config, topic_id=topic_id)
    starts = broker.logs.start_targets
    log = PartitionLog(
        tp,
        topic_id,
        config,
        broker.logs.files(str(tp)),
        found,
        log_start_files=lambda: starts({str(tp): log.log_start_offset}),
    )
    return log


def growth_of(
    broker: StoreBroker, *logs: PartitionLog, now_ms: Callable[[], int] = lambda: NOW_MS, **settings: Any
) -> Growth:
    """What merges the rows of these logs."""
    chosen = {"cluster_merge_min_rows": 3, "cluster_inline_max_bytes": broker.rounds.limits.inline_bytes, **settings}
    config = BrokerConfig(storage="memory", **chosen)
    return Growth(config, broker.engine, broker.writer, broker.row_bytes, lambda: logs, now_ms=now_ms)


def compact(growth: Growth) -> None:
    """Merge and compact what is due."""
    trio.run(growth.merge)
    trio.run(growth.compactions.compact)


def merge(growth: Growth) -> None:
    """Merge until nothing is due."""
    trio.run(growth.merge)


def content(broker: StoreBroker, log: PartitionLog) -> bytes:
    """All bytes that a reader of uncommitted records gets; what is missing arrives at once."""
    found, offset = b"", log.log_start_offset
    while offset < log.high_watermark:
        read = read_batches(log, offset, 1 << 20, UNCOMMITTED)
        assert not read.error, read
        if read.missing is not None:
            broker.cold.arrive()
            continue
        assert read.size_bytes, f"nothing to read at {offset} below {log.high_watermark}"
        found += joined(read.parts)
        offset = log.segments.read(offset, log.high_watermark, 1 << 20, True).end_offset
    return found


def aborted(log: PartitionLog) -> list[AbortedTransaction]:
    """The aborted transactions that readers of committed records are sent."""
    return list(log.segments.aborted_between(log.log_start_offset, log.high_watermark))


class Writers:
    """Producers, with and without transactions, that write random batches to one log."""

    def __init__(self, random_: random.Random) -> None:
        self._random = random_
        self._sequences: dict[int, int] = {}
        self._open: set[int] = set()

    def step(self, log: PartitionLog) -> None:
        """One append."""
        count, value = self._random.randint(1, 4), self._random.randbytes(self._random.choice([1, 10, 300]))
        producer_id = self._random.randint(-1, 5)
        if producer_id < 0:
            log.append(batch(count, value=value), AppendOrigin.CLIENT, NOW_MS)
            return
        transactional = producer_id >= 3
        if producer_id in self._open and self._random.random() < 0.4:
            log.append_marker(producer_id, 0, self._random.random() < 0.5, 0, 1, NOW_MS)
            self._open.discard(producer_id)
            return
        sequence = self._sequences.get(producer_id, 0)
        data = batch(count, producer_id, 0, sequence, transactional=transactional, value=value)
        guard = log.verify(producer_id, 0, sequence, 1) if transactional else None
        ticket = log.append(data, AppendOrigin.CLIENT, NOW_MS, guard=guard)
        assert not ticket.error, ticket.message
        self._sequences[producer_id] = sequence + count
        if transactional:
            self._open.add(producer_id)
