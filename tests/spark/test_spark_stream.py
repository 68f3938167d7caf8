"""`spark.readStream.format("fencepost")` in a real Spark: micro-batches of committed records, once each."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.broker_process import BrokerProcess
from tests.spark.conftest import WAIT_SECONDS, Transact, new_producer, new_topic, transactions_of
from tests.spark.killed import patiently

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]
Run = Callable[..., Any]


class Running:
    """A query that goes on until it is stopped."""

    def __init__(self, start: Callable[[], Any]) -> None:
        self._start = start
        self.query = start()

    def processed(self) -> None:
        """All that is there now has been through it."""

        def process() -> None:
            if not self.query.isActive:
                self.query = self._start()
            self.query.processAllAvailable()

        patiently(process)


class Table:
    """A query into a table in memory, with a checkpoint of its own."""

    def __init__(self, spark: Any, bootstrap: str, topic: str, checkpoint: Path) -> None:
        self.spark, self.bootstrap, self.topic, self.checkpoint = spark, bootstrap, topic, checkpoint
        self.rows: list[tuple[int, int, bytes]] = []
        self.batches: list[int] = []

    def start(self, available_now: bool = True, **options: str) -> Any:
        source = self.spark.readStream.format("fencepost").options(
            **{
                "kafka.bootstrap.servers": self.bootstrap,
                "subscribe": self.topic,
                "startingOffsets": "earliest",
                **options,
            }
        )

        def take(frame: Any, batch_id: int) -> None:
            found = [(row.partition, row.offset, bytes(row.value)) for row in frame.collect()]
            self.rows += found
            self.batches.append(len(found))

        writer = source.load().writeStream.foreachBatch(take).option("checkpointLocation", str(self.checkpoint))
        return (
            writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime="0 seconds")
        ).start()

    def run(self, **options: str) -> list[bytes]:
        """Read all that is available now; the values of all runs so far."""
        assert patiently(lambda: self.start(**options).awaitTermination(200))
        return self.values()

    def values(self) -> list[bytes]:
        offsets = [(partition, offset) for partition, offset, _ in self.rows]
        assert len(offsets) == len(set(offsets)), "a record was read twice"
        return sorted(value for _, _, value in self.rows)


@pytest.fixture
def table(spark: Any, bootstrap: str, topic: str, tmp_path: Path) -> Table:
    return Table(spark, bootstrap, topic, tmp_path / "checkpoint")


def test_available_now_reads_what_is_committed_and_a_restart_goes_on_from_the_checkpoint(
    table: Table, transact: Transact, bootstrap: str, topic: str
) -> None:
    transact([(0, b"a"), (1, b"b")])
    transact([(0, b"x"), (2, b"x")], commit=False)
    open_one = new_producer(bootstrap)
    open_one.begin_transaction()
    open_one.produce(topic, b"d", partition=0)
    open_one.flush(WAIT_SECONDS)
    transact([(0, b"behind the open one"), (1, b"c")])
    assert table.run() == [b"a", b"b", b"c"]

    open_one.commit_transaction(WAIT_SECONDS)
    assert table.run() == [b"a", b"b", b"behind the open one", b"c", b"d"]
    batches = len(table.batches)
    assert table.run() == [b"a", b"b", b"behind the open one", b"c", b"d"]
    assert len(table.batches) == batches, "nothing new, and yet a micro-batch"

    (last,) = [path for path in (table.checkpoint / "offsets").iterdir() if path.name == str(batches - 1)]
    offsets = json.loads(last.read_text().splitlines()[-1])
    topic_id = offsets.pop(f"{topic} (topic id)")
    assert len(bytes.fromhex(topic_id)) == 16
    assert offsets == {topic: {"0": 8, "1": 4, "2": 2}}


def test_a_limit_per_trigger_counts_visible_records_so_no_micro_batch_is_empty(
    table: Table, transact: Transact
) -> None:
    for number in range(6):
        transact([(0, b"x")] * 20, commit=False)
        transact([(0, b"%d-%d" % (number, i)) for i in range(10)])
    assert len(table.run(maxRecordsPerTrigger="15")) == 60
    assert max(table.batches) <= 15
    assert min(table.batches) > 0


def test_a_limit_of_offsets_counts_aborted_records_and_markers_too(table: Table, transact: Transact) -> None:
    """As with Spark's Kafka source: 19 aborted records and their marker are two micro-batches of 10 offsets."""
    transact([(0, b"x")] * 19, commit=False)
    transact([(0, b"%d" % number) for number in range(9)])
    assert len(table.run(maxOffsetsPerTrigger="10")) == 9
    assert table.batches == [0, 0, 9]


def test_a_topic_of_nothing_but_aborted_runs_is_read_in_one_go(table: Table, transact: Transact) -> None:
    for _ in range(5):
        transact([(0, b"x"), (1, b"x")] * 5, commit=False)
    assert table.run(maxRecordsPerTrigger="3") == []
    assert len(table.batches) <= 1


def test_a_running_query_sees_each_commit_and_no_abort(table: Table, transact: Transact) -> None:
    running = Running(lambda: table.start(available_now=False))
    try:
        for number in range(3):
            transact([(number, b"%d" % number)])
            transact([(number, b"x")], commit=False)
            running.processed()
            assert table.values() == [b"%d" % i for i in range(number + 1)]
        assert running.query.lastProgress is not None
    finally:
        running.query.stop()


def test_a_query_that_starts_at_latest_sees_only_what_comes_later(table: Table, transact: Transact) -> None:
    transact([(0, b"before")])
    running = Running(lambda: table.start(available_now=False, startingOffsets="latest"))
    try:
        running.processed()
        transact([(0, b"after")])
        running.processed()
        assert table.values() == [b"after"]
    finally:
        running.query.stop()


def test_a_query_outlives_a_killed_broker(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker is killed with -9 between two transactions and comes back on its files; the query goes on."""
    monkeypatch.delenv("FENCEPOST_INTEROP_BOOTSTRAP", raising=False)
    with BrokerProcess(tmp_path / "broker", data_dir=tmp_path / "data") as broker:
        topic = new_topic(broker.address, f"killed-{os.urandom(4).hex()}")
        table = Table(spark, broker.address, topic, tmp_path / "checkpoint")
        transactions_of(broker.address, topic)([(0, b"a"), (1, b"b")])
        running = Running(lambda: table.start(available_now=False))
        try:
            running.processed()
            broker.restart()
            transactions_of(broker.address, topic)([(0, b"c"), (2, b"d")])
            running.processed()
            assert table.values() == [b"a", b"b", b"c", b"d"]
        finally:
            running.query.stop()


def test_state_over_several_micro_batches_counts_every_committed_record_once(
    spark: Any, bootstrap: str, topic: str, transact: Transact, tmp_path: Path
) -> None:
    for number in range(6):
        transact([(i % 3, b"AA" if i % 2 else b"BB") for i in range(30)], commit=number % 3 != 2)
    counted: dict[str, int] = {}
    source = spark.readStream.format("fencepost").options(
        **{
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "50",
        }
    )
    counts = source.load().selectExpr("cast(value as string) as carrier").groupBy("carrier").count()
    writer = (
        counts.writeStream.outputMode("complete")
        .foreachBatch(lambda frame, _: counted.update({row.carrier: row["count"] for row in frame.collect()}))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    assert patiently(lambda: writer.start().awaitTermination(200))
    assert counted == {"AA": 60, "BB": 60}
