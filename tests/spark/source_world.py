"""Writing what a source has to read right, and reading it by the source's own classes, without a JVM."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition

from fencepost.protocol.topics import IsolationLevel, TopicPartition
from fencepost.spark_connector.data_source import FencepostDataSource
from fencepost.spark_connector.network.cluster import Cluster
from fencepost.spark_connector.offsets import LATEST, OffsetTree, Position, tree_of
from fencepost.spark_connector.source.limited_stream import StreamReader
from fencepost.spark_connector.source.options import parse_options
from tests.kit.waiting import until
from tests.spark.sql_filters import meeting

DEADLINE_SECONDS = 100

Row = dict[str, Any]


class Seen(NamedTuple):
    """A record as a test looks at it."""

    partition: int
    offset: int
    value: bytes | None


@dataclass
class World:
    """One broker of a kind, with producers that are used again and again."""

    bootstrap: str
    options: Mapping[str, str] = field(default_factory=dict)
    """Of every query."""
    _idle: list[Any] = field(default_factory=list)

    @cached_property
    def admin(self) -> Any:
        """An AdminClient, kept: it ends its requests when it goes."""
        module = pytest.importorskip("confluent_kafka.admin")
        return module.AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def topic(self, partitions: int = 2, name: str | None = None, **config: str) -> "Topic":
        """A topic that is there for every request from now on; settings with _ for the dots."""
        module = pytest.importorskip("confluent_kafka.admin")
        name = name or f"source-{os.urandom(4).hex()}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        new = module.NewTopic(name, partitions, 1, config=settings)
        self.admin.create_topics([new])[name].result(DEADLINE_SECONDS)
        found = Topic(self, name)
        until(lambda: found.partitions() == list(range(partitions)), what=f"topic {name}")
        return found

    def producer(self) -> Any:
        """A transactional producer with no transaction under way; give it back by `done`."""
        if self._idle:
            return self._idle.pop()
        confluent = pytest.importorskip("confluent_kafka")
        settings = {"transactional.id": f"source-{os.urandom(4).hex()}", "linger.ms": 0, "log_level": 0}
        settings["transaction.timeout.ms"] = 300_000  # none ends because this process was slow
        producer = confluent.Producer({"bootstrap.servers": self.bootstrap, **settings})
        producer.init_transactions(DEADLINE_SECONDS)
        return producer

    def done(self, producer: Any) -> None:
        self._idle.append(producer)

    def forget_producers(self) -> None:
        """Those that come next know of partitions added by now."""
        self._idle.clear()


class OpenTransaction:
    """Records that are written and not decided yet."""

    def __init__(self, world: World, producer: Any) -> None:
        self._world, self._producer = world, producer

    def write(self, topic: str, partition: int, value: bytes) -> None:
        """Add a record."""
        self._producer.produce(topic, value, partition=partition)
        self._producer.flush(DEADLINE_SECONDS)

    def commit(self) -> None:
        self._producer.commit_transaction(DEADLINE_SECONDS)
        self._world.done(self._producer)

    def abort(self) -> None:
        self._producer.abort_transaction(DEADLINE_SECONDS)
        self._world.done(self._producer)


class Topic:
    """Writes transactions into one topic and reads it through the source."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name

    # -- writing

    def open(self, records: Sequence[tuple[int, bytes | None]], **more: Any) -> OpenTransaction:
        """`records` are (partition, value)."""
        producer = self.world.producer()
        producer.begin_transaction()
        for partition, value in records:
            producer.produce(self.name, value, partition=partition, **more)
        producer.flush(DEADLINE_SECONDS)
        return OpenTransaction(self.world, producer)

    def commit(self, records: Sequence[tuple[int, bytes | None]], **more: Any) -> None:
        self.open(records, **more).commit()

    def abort(self, records: Sequence[tuple[int, bytes | None]]) -> None:
        self.open(records).abort()

    def abort_keyed(self, value: bytes) -> None:
        """One record of partition 0 that is not to be seen, whose key is its first word."""
        self.open([(0, value)], key=value.split(b" ")[0]).abort()

    def plain(self, records: Sequence[tuple[int, bytes | None]], *, keyed: bool = False, **settings: Any) -> None:
        """Without a transaction, in one batch for each partition where they fit; `keyed` by their first word."""
        confluent = pytest.importorskip("confluent_kafka")
        producer = confluent.Producer(
            {"bootstrap.servers": self.world.bootstrap, "linger.ms": 100, "log_level": 0, **settings}
        )
        for partition, value in records:
            producer.produce(self.name, value, (value or b"").split(b" ")[0] if keyed else None, partition=partition)
        assert producer.flush(DEADLINE_SECONDS) == 0

    def settled(self, **open_at: int) -> "Topic":
        """Wait until everything is decided, but for partitions such as p0=3 whose oldest open record that is.

        A real Kafka says that a transaction is committed before its markers are written.
        """
        stable = {int(partition[1:]): offset for partition, offset in open_at.items()}

        def holds() -> bool:
            ends, stables = self.ends(IsolationLevel.READ_UNCOMMITTED), self.ends(IsolationLevel.READ_COMMITTED)
            return all(stables[p] == stable.get(p, end) for p, end in ends.items())

        until(holds, what=f"the last stable offsets of {self.name}")
        return self

    # -- looking

    def partitions(self) -> list[int]:
        return self._asked(lambda cluster: list(cluster.topics([self.name]).get(self.name, ())))

    def ends(self, isolation: IsolationLevel) -> dict[int, int]:
        asked = {TopicPartition(self.name, partition): LATEST for partition in self.partitions()}
        found = self._asked(lambda cluster: cluster.list_offsets(asked, isolation))
        return {tp.partition: offset for tp, offset in found.items()}

    def _asked(self, question: Callable[[Cluster], Any]) -> Any:
        cluster = Cluster(parse_options(self.options()).connection)
        try:
            return question(cluster)
        finally:
            cluster.close()

    # -- reading

    def options(self, **options: str) -> dict[str, str]:
        given = {"kafka.bootstrap.servers": self.world.bootstrap, **self.world.options, **options}
        if not {"assign", "subscribePattern"} & given.keys():
            given.setdefault("subscribe", self.name)
        return given

    def source(self, **options: str) -> FencepostDataSource:
        return FencepostDataSource(CaseInsensitiveDict(self.options(**options)))

    def batch(self, **options: str) -> list[Seen]:
        return seen(self.rows(**options))

    def rows(self, **options: str) -> list[Row]:
        """All columns of a batch query."""
        source = self.source(**options)
        reader = source.reader(source.schema())
        return [row for rows in tasks(reader, reader.partitions()) for row in rows]

    def filtered(self, filters: Sequence[Any], **options: str) -> list[Row]:
        """The rows of a batch query whose filters are pushed down. Those that the reader leaves are evaluated here."""
        source = self.source(pushFilters="true", **options)
        reader: Any = source.reader(source.schema())
        left = list(reader.pushFilters(list(filters)))
        return meeting([row for rows in tasks(reader, reader.partitions()) for row in rows], left)

    def stream(self, **options: str) -> "Stream":
        return Stream(self, **{"startingOffsets": "earliest", **options})

    def range_json(self, **offsets: int) -> str:
        """p0=3, p1=-1 as the options for offsets take it."""
        inner = ", ".join(f'"{partition[1:]}": {offset}' for partition, offset in offsets.items())
        return f'{{"{self.name}": {{{inner}}}}}'


def tasks(reader: Any, partitions: Sequence[InputPartition]) -> list[list[Row]]:
    """The rows of each task, which gets reader and partition by pickle."""
    copied = cloudpickle.loads(cloudpickle.dumps(reader))
    work = cloudpickle.loads(cloudpickle.dumps(list(partitions)))
    return [[row for batch in copied.read(one) for row in batch.to_pylist()] for one in work]


def seen(rows: Sequence[Row]) -> list[Seen]:
    return sorted(Seen(row["partition"], row["offset"], row["value"]) for row in rows)


class Stream:
    """A streaming query as Spark leads it, one micro-batch after another."""

    def __init__(self, topic: Topic, **options: str) -> None:
        source = topic.source(**options)
        self.reader: StreamReader = source.streamReader(source.schema())  # type: ignore[assignment]
        self.position = self.reader.initialOffset()
        self.sizes: list[int] = []

    @property
    def offsets(self) -> OffsetTree:
        return tree_of(Position.of(self.position).offsets)

    def available_now(self) -> "Stream":
        self.reader.prepareForTriggerAvailableNow()
        return self

    def step(self) -> list[Seen] | None:
        """One micro-batch; None where Spark would find that there is nothing new."""
        end = self.reader.latestOffset(self.position, self.reader.getDefaultReadLimit())
        if end == self.position:
            return None
        work = self.reader.partitions(self.position, end)
        found = seen([row for rows in tasks(self.reader, work) for row in rows])
        self.position = end
        self.sizes.append(len(found))
        return found

    def all(self) -> list[Seen]:
        """Micro-batches until nothing is new."""
        return sorted(found for batch in iter(self.step, None) for found in batch)

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.stop()


def numbered(partition: int, *numbers: int) -> list[tuple[int, bytes]]:
    """Records of one partition that tell their numbers."""
    return [(partition, b"%d" % number) for number in numbers]


def x(partition: int, count: int) -> list[tuple[int, bytes]]:
    """Records that nobody may ever see."""
    return [(partition, b"x")] * count


def values(found: Sequence[Seen]) -> Iterator[bytes | None]:
    return (one.value for one in found)
