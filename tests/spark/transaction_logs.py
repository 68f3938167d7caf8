"""Logs of transactions in memory: producers that write, decide and mark in any order, as a broker allows it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from fencepost.protocol.batch_header import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from fencepost.protocol.topics import TopicPartition
from fencepost.spark_connector.offsets import Offsets
from fencepost.spark_pipelines.whole_batches import Bounds, Headers

Record = tuple[TopicPartition, int]


@dataclass
class Producer:
    """A transactional producer and what its coordinator knows."""

    producer_id: int
    epoch: int = 0
    transaction: int | None = None
    decided: bool | None = None
    """None: not yet; whether it commits."""
    decided_at_ms: int = 0
    unmarked: set[TopicPartition] = field(default_factory=set)


class Logs:
    """Each step is one thing that one producer or its coordinator does. A log is a list of batches and markers."""

    def __init__(self, seed: int, *, partitions: int = 3, producers: int = 3, version_2: bool = False) -> None:
        self.random = random.Random(seed)
        self.partitions = [TopicPartition("t", number) for number in range(partitions)]
        self.records: dict[int, set[Record]] = {}
        """By transaction."""
        self.committed: set[int] = set()
        self._logs: dict[TopicPartition, list[tuple[BatchHeader, bool]]] = {tp: [] for tp in self.partitions}
        self.producers = [Producer(1000 + number) for number in range(producers)]
        self._version_2 = version_2
        self._now = 0

    def steps(self, count: int) -> None:
        for _ in range(count):
            self._step(self.random.choice(self.producers))

    def end_all(self) -> None:
        """Decide and mark everything."""
        for producer in self.producers:
            while producer.transaction is not None:
                self._step(producer, ends=True)

    def high(self, tp: TopicPartition) -> int:
        return self._logs[tp][-1][0].next_offset if self._logs[tp] else 0

    def stable(self, tp: TopicPartition) -> int:
        first: dict[int, int] = {}
        for header, _ in self._logs[tp]:
            if header.is_control:
                first.pop(header.producer_id, None)
            elif header.is_transactional:
                first.setdefault(header.producer_id, header.base_offset)
        return min(first.values(), default=self.high(tp))

    def bounds(self, begin: Offsets) -> Bounds:
        """As brokers answer: one after the other, while the producers go on."""
        stable, high = {}, {}
        for answers, ask in ((stable, self.stable), (high, self.high)):
            for tp in self.partitions:
                answers[tp] = ask(tp)
                self.steps(self.random.randrange(3))
        return Bounds(begin, dict.fromkeys(self.partitions, 0), stable, high)

    def read(self, tp: TopicPartition, start: int, stop: int) -> Iterator[tuple[Headers, int]]:
        """Responses of one to three batches."""
        there = [one for one in self._logs[tp] if start < one[0].next_offset and one[0].base_offset < stop]
        while there:
            count = self.random.randrange(1, 4)
            part, there = there[:count], there[count:]
            yield part, part[-1][0].next_offset

    def seen(self, begin: Offsets, end: Offsets) -> dict[int, set[Record]]:
        """The committed records between the offsets, by transaction."""
        found: dict[int, set[Record]] = {}
        for transaction in self.committed:
            part = {(tp, offset) for tp, offset in self.records[transaction] if begin[tp] <= offset < end[tp]}
            if part:
                found[transaction] = part
        return found

    def still(self, begin: Offsets) -> Bounds:
        """As brokers answer while nothing is written."""
        stable, high = ({tp: ask(tp) for tp in self.partitions} for ask in (self.stable, self.high))
        return Bounds(begin, dict.fromkeys(self.partitions, 0), stable, high)

    def write(self, producer: Producer, tp: TopicPartition, count: int) -> None:
        """Add a batch to the producer's transaction; begin one if there is none."""
        if producer.transaction is None:
            producer.transaction = len(self.records)
            self.records[producer.transaction] = set()
        first = self._append(tp, producer, count, TRANSACTIONAL_BIT, self._now, False)
        producer.unmarked.add(tp)
        self.records[producer.transaction] |= {(tp, first + number) for number in range(count)}

    def decide(self, producer: Producer, *, commits: bool = True) -> None:
        """The coordinator has the decision; no marker is written."""
        assert producer.transaction is not None
        self._now += 1
        producer.decided, producer.decided_at_ms = commits, self._now
        if commits:
            self.committed.add(producer.transaction)
        producer.epoch += self._version_2

    def mark(self, producer: Producer, tp: TopicPartition) -> None:
        """Write the marker of one partition; after the last one the producer may begin again."""
        assert producer.decided is not None
        producer.unmarked.remove(tp)
        at = self._now if self._version_2 else producer.decided_at_ms
        self._append(tp, producer, 1, CONTROL_BIT | TRANSACTIONAL_BIT, at, producer.decided)
        if not producer.unmarked:
            producer.transaction = producer.decided = None

    def _step(self, producer: Producer, *, ends: bool = False) -> None:
        self._now += 1
        chance = self.random.random()
        if producer.decided is not None:
            self.mark(producer, self.random.choice(sorted(producer.unmarked)))
        elif producer.transaction is not None and (ends or chance < 0.3):
            self.decide(producer, commits=self.random.random() < 0.8)
        elif chance < 0.4:
            self._append(self.random.choice(self.partitions), Producer(-1), 2, 0, self._now, False)
        else:
            self.write(producer, self.random.choice(self.partitions), self.random.randrange(1, 4))

    def _append(
        self, tp: TopicPartition, producer: Producer, count: int, attributes: int, now_ms: int, commits: bool
    ) -> int:
        first = self.high(tp)
        header = BatchHeader(
            first, 0, 0, 2, 0, attributes, count - 1, now_ms, now_ms, producer.producer_id, producer.epoch, 0, count
        )
        self._logs[tp].append((header, commits))
        return first
