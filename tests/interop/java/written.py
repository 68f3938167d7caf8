"""The data directory that Kafka's tools are shown: written by real clients to a real broker, counted while written."""

import asyncio
import shutil
import time
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiokafka
import trio
from confluent_kafka import Producer, TopicPartition

import fencepost
from fencepost.protocol.batch_header import iter_headers
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import build_batch
from tests.interop.confluent_steps import WAIT_SECONDS, consumer_of, poll_records, transactional_producer
from tests.kit.broker_process import BrokerProcess
from tests.kit.wire import NOW_MS, Wire, batch_of, records_in

DESCRIBE_PRODUCERS, TV2_PRODUCE, TV2_END = 61, 12, 5
SMALL = {"internal_segment_bytes": "4000", "index_interval_bytes": "500"}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "log.cleaner.backoff.ms": "100"}
COMPACTED, TOMBSTONE = "compacted", ""
GROUP, COPIER = "readers", "copies"
OPEN_TIMEOUT_MS = 600_000
Place = tuple[str, int]


@dataclass(slots=True)
class Wrote:
    """What was written to one partition, and what the broker says of it."""

    records: int = 0
    commits: int = 0
    aborts: int = 0
    batches: int | None = 0
    """None where the client chose the batches."""
    end_offset: int = -1
    last_stable_offset: int = -1
    producers: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """DescribeProducers: producer id -> epoch, last sequence, start of the open transaction or -1."""
    aborted: list[tuple[int, int]] = field(default_factory=list)
    """What Fetch tells a read_committed reader of the whole partition: producer id, first offset."""

    def add(self, records: int, *, batches: int | None = None) -> None:
        """Count data."""
        self.records += records
        self.batches = None if batches is None or self.batches is None else self.batches + batches

    def end(self, commit: bool) -> None:
        """Count a marker."""
        if commit:
            self.commits += 1
        else:
            self.aborts += 1
        if self.batches is not None:
            self.batches += 1


class Writing:
    """Steps that write; `wrote` says what stands in each partition of the user's topics."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.wrote: dict[Place, Wrote] = {}
        self.wire = Wire(broker.connect())
        self.compacted = Wrote()
        self.newest: dict[str, str] = {}
        """Key -> the value that compaction must leave, in the topic COMPACTED."""

    def topic(self, name: str, partitions: int = 1, **configs: str) -> list[Wrote]:
        """A topic of small segments."""
        self.wire.create_topic(name, partitions, **{**SMALL, **configs})
        made = [Wrote() for _ in range(partitions)]
        self.wrote |= {(name, number): one for number, one in enumerate(made)}
        return made

    def reconnect(self) -> None:
        """After a restart."""
        self.wire.close()
        self.wire = Wire(self.broker.connect())

    def everything(self) -> None:
        """All kinds of batches, by all kinds of clients."""
        self.plain()
        self.codecs()
        self.idempotent()
        self.confluent_transactions()
        trio.run(self.own_transactions)
        self.interleaved()
        self.offsets()
        self.compact()

    def plain(self) -> None:
        """Without producer ids, keys and tombstones and headers among them; and stamped by the broker."""
        (plain,) = self.topic("plain")
        producer = Producer({"bootstrap.servers": self.broker.address, "enable.idempotence": False, "linger.ms": 0})
        for number in range(200):
            value = None if number % 7 == 0 else b"value-%d" % number
            producer.produce("plain", value, b"key-%d" % number, partition=0, headers=[("n", b"%d" % number)])
            producer.poll(0)
            if number % 20 == 0:
                producer.flush(WAIT_SECONDS)
        assert not producer.flush(WAIT_SECONDS)
        plain.add(200)
        (stamped,) = self.topic("stamped", message_timestamp_type="LogAppendTime")
        (restless,) = self.topic("restless")
        for number in range(60):
            for name, wrote in (("stamped", stamped), ("restless", restless)):
                batch = batch_of(b"x" * 50, b"y", timestamp_ms=NOW_MS + (number * 7919) % 1000)
                assert self.wire.produce(name, batch).error_code == ErrorCode.NONE
                wrote.add(2, batches=1)

    def codecs(self) -> None:
        """Every codec, by librdkafka; and by a client in Python."""
        (wrote,) = self.topic("codecs", internal_segment_bytes="20000")
        for codec in CODECS:
            settings = {"bootstrap.servers": self.broker.address, "compression.type": codec, "linger.ms": 5}
            producer = Producer(settings)
            for number in range(100):
                producer.produce("codecs", b"the same words again and again %d" % number, partition=0)
            assert not producer.flush(WAIT_SECONDS)
            wrote.add(100)
        asyncio.run(self._by_aiokafka())
        wrote.add(50)

    async def _by_aiokafka(self) -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self.broker.address, enable_idempotence=True, compression_type="gzip"
        )
        await producer.start()
        try:
            for told in [await producer.send("codecs", b"gzip %d" % n, partition=0) for n in range(50)]:
                await told
        finally:
            await producer.stop()

    def idempotent(self) -> None:
        """Eight batches of each of three producers: more than the five that are remembered, and a new epoch."""
        (wrote,) = self.topic("idempotent")
        producers = [self.wire.init_producer_id() for _ in range(3)]
        for number in range(8):
            for producer_id, epoch in producers:
                batch = batch_of(b"a", b"b", producer_id=producer_id, producer_epoch=epoch, base_sequence=2 * number)
                assert self.wire.produce("idempotent", batch).error_code == ErrorCode.NONE
                wrote.add(2, batches=1)
        batch = batch_of(b"c", producer_id=producers[0][0], producer_epoch=1, base_sequence=0)
        assert self.wire.produce("idempotent", batch).error_code == ErrorCode.NONE
        wrote.add(1, batches=1)

    def confluent_transactions(self) -> None:
        """TV1: committed and aborted, over two partitions."""
        both = self.topic("tv1", partitions=2)
        producer = transactional_producer(self.broker.address, "tv1")
        for number in range(10):
            producer.begin_transaction()
            for partition, wrote in enumerate(both):
                producer.produce("tv1", b"v" * 100, partition=partition)
                wrote.add(1)
            producer.flush(WAIT_SECONDS)
            commit = number % 3 != 1
            (producer.commit_transaction if commit else producer.abort_transaction)(WAIT_SECONDS)
            for wrote in both:
                wrote.end(commit)

    async def own_transactions(self) -> None:
        """TV2, by the project's own client: a new epoch for each transaction."""
        both = self.topic("tv2", partitions=2)
        async with fencepost.Client(self.broker.address) as kafka, kafka.transactional_producer("tv2") as producer:
            for _ in range(10):
                async with producer.transaction() as txn:
                    for partition in (0, 1):
                        await txn.send("tv2", b"v" * 100, partition=partition)
                for wrote in both:
                    wrote.add(1, batches=1)
                    wrote.end(True)

    def interleaved(self) -> None:
        """Transactions that overlap in one partition and end in another order than they began, over many segments."""
        (wrote,) = self.topic("mixed", internal_segment_bytes="1500")
        for round_ in range(6):
            producers = {name: self._begin(f"mixed-{name}") for name in "abc"}
            for number in range(4):
                for name, producer in producers.items():
                    self._write("mixed", f"mixed-{name}", producer, number)
                    wrote.add(1, batches=1)
                self.wire.produce("mixed", batch_of(b"loose"))
                wrote.add(1, batches=1)
            for number, name in enumerate("cab"):
                commit = (round_ + number) % 2 == 0
                assert (
                    self.wire.end_txn(f"mixed-{name}", producers[name], commit=commit, version=TV2_END).error_code
                    == ErrorCode.NONE
                )
                wrote.end(commit)

    def left_open(self) -> None:
        """One more transaction, which nobody ends; more that ends follows it."""
        wrote = self.wrote["mixed", 0]
        undecided = self._begin("mixed-a", OPEN_TIMEOUT_MS)
        self._write("mixed", "mixed-a", undecided, 0)
        for commit in (True, False):
            producer = self._begin("mixed-b")
            self._write("mixed", "mixed-b", producer, 0)
            answer = self.wire.end_txn("mixed-b", producer, commit=commit, version=TV2_END)
            assert answer.error_code == ErrorCode.NONE
            wrote.end(commit)
        # The end of the last one may not be written yet. After a kill its marker would come a second time, as in Kafka;
        # this answer waits until it is durable.
        self._begin("mixed-b")
        wrote.add(3, batches=3)

    def offsets(self) -> None:
        """A group's members and offsets; offsets of a committed transaction and of an aborted one."""
        consumer = consumer_of(self.broker.address, GROUP)
        consumer.subscribe(["plain"])
        poll_records(consumer, 200)
        consumer.commit(asynchronous=False)
        producer = transactional_producer(self.broker.address, COPIER)
        for offset, commit in ((7, True), (9, False)):
            producer.begin_transaction()
            position = [TopicPartition("plain", 0, offset)]
            producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), WAIT_SECONDS)
            (producer.commit_transaction if commit else producer.abort_transaction)(WAIT_SECONDS)
        consumer.close()

    def compact(self) -> None:
        """A compacted topic: keys written again and again in all codecs, tombstones, committed and aborted keys."""
        quickly = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}
        self.wire.create_topic(COMPACTED, 1, internal_segment_bytes="2000", index_interval_bytes="300", **quickly)
        for number in range(90):
            kind = number % 3  # without a producer, committed, aborted
            values = {f"key-{(number + n) % 12}": None if number % 5 == 4 else f"value-{number}" for n in range(4)}
            records = [(NOW_MS, key.encode(), value and value.encode(), ()) for key, value in values.items()]
            name = None if kind == 0 else f"compact-{kind}"
            producer = (-1, -1) if name is None else self._begin(name)
            batch = build_batch(
                records,
                compression=list(Compression)[number % len(CODECS)],
                producer_id=producer[0],
                producer_epoch=producer[1],
                base_sequence=-1 if name is None else 0,
                transactional=name is not None,
            )
            answer = self.wire.produce(COMPACTED, batch, version=TV2_PRODUCE, transactional_id=name)
            assert answer.error_code == ErrorCode.NONE, answer
            self.compacted.records += 4
            if name is not None:
                ended = self.wire.end_txn(name, producer, commit=kind == 1, version=TV2_END)
                assert ended.error_code == ErrorCode.NONE
            if kind < 2:
                self.newest |= {key: value or TOMBSTONE for key, value in values.items()}
        self._await_compaction()

    def _await_compaction(self) -> None:
        deadline, before = time.monotonic() + WAIT_SECONDS, -1
        while True:
            now = len(records_in(self.wire.fetch(COMPACTED)))
            if now == before < self.compacted.records // 2:
                return
            before = now
            assert time.monotonic() < deadline, f"{now} of {self.compacted.records} records are still there"
            time.sleep(0.3)

    def ask(self) -> None:
        """Note what the broker says of every partition; a partition that nobody used since the start is opened."""
        self._note(COMPACTED, 0, self.compacted, self.wire.fetch(COMPACTED))
        for (topic, partition), wrote in self.wrote.items():
            answer = self._with_all_markers(topic, partition, wrote)
            found = len(records_in(answer))
            assert found == wrote.records, f"{topic}-{partition}: {found} records instead of {wrote.records}"
            self._note(topic, partition, wrote, answer)

    def _note(self, topic: str, partition: int, wrote: Wrote, answer: Any) -> None:
        wrote.end_offset, wrote.last_stable_offset = answer.high_watermark, answer.last_stable_offset
        committed = self.wire.fetch(topic, partition=partition, isolation=1)
        wrote.aborted = [(one.producer_id, one.first_offset) for one in committed.aborted_transactions or ()]
        [described] = self.wire.producers(topic, partition)
        wrote.producers = {
            one.producer_id: (one.producer_epoch, one.last_sequence, one.current_txn_start_offset)
            for one in described.active_producers
        }

    def _with_all_markers(self, topic: str, partition: int, wrote: Wrote) -> Any:
        """The whole partition; EndTxn is answered before the markers stand (section 0, row 13)."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            answer = self.wire.fetch(topic, partition=partition, isolation=0)
            markers = sum(header.is_control for _, header in iter_headers(bytes(answer.records or b"")))
            if markers == wrote.commits + wrote.aborts:
                return answer
            assert time.monotonic() < deadline, f"{topic}-{partition}: {markers} markers"
            time.sleep(0.02)

    def _begin(self, transactional_id: str, timeout_ms: int = 60_000) -> tuple[int, int]:
        return self.wire.init_producer_id(transactional_id, timeout_ms)

    def _write(self, topic: str, transactional_id: str, producer: tuple[int, int], sequence: int) -> None:
        batch = batch_of(
            b"w" * 60,
            transactional=True,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
        )
        answer = self.wire.produce(topic, batch, version=TV2_PRODUCE, transactional_id=transactional_id)
        assert answer.error_code == ErrorCode.NONE, answer


@dataclass(frozen=True)
class Shown:
    """A data directory as Kafka's tools find it, and what is in it."""

    state: str
    data_dir: Path
    wrote: dict[Place, Wrote]
    compacted: Wrote
    newest: dict[str, str]

    def partition(self, place: Place) -> Path:
        """A partition's directory."""
        return self.data_dir / f"{place[0]}-{place[1]}"

    def files(self, *suffixes: str) -> list[Path]:
        """All files of the user's topics with these suffixes."""
        found = [path for place in self.wrote for path in sorted(self.partition(place).iterdir())]
        return [path for path in found if path.suffix in suffixes]


def shown_directories(work_dir: Path) -> Iterator[Shown]:
    """The directory after a stop in order, after kill -9, and after the start that follows a kill -9."""
    with BrokerProcess(work_dir, data_dir=work_dir / "data", settings=SETTINGS) as broker:
        writing = Writing(broker)

        def shown(state: str) -> Shown:
            copy = work_dir / state
            shutil.copytree(work_dir / "data", copy)
            return Shown(state, copy, deepcopy(writing.wrote), deepcopy(writing.compacted), dict(writing.newest))

        writing.everything()
        writing.ask()
        assert broker.stop() == 0
        yield shown("stopped")
        broker.start()
        writing.reconnect()
        writing.left_open()
        writing.ask()
        broker.kill()
        yield shown("killed")
        broker.settings["log.cleaner.enable"] = "false"  # while it runs its files are copied
        broker.start()
        writing.reconnect()
        writing.ask()
        yield shown("recovered")
        writing.wire.close()
