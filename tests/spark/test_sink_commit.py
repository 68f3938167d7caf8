"""The end of a micro-batch against a broker, without a JVM: what is written once, and who is shut out.

Each case on our broker and on a real Kafka; twoPhase on ours.
"""

import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")
pytest.importorskip("pyarrow")

import pyarrow as pa

from fencepost.client.errors import FencedError
from fencepost.spark_connector.sink import lanes as sink_lanes
from fencepost.spark_connector.sink.commit import commit_batch, connect, main_producer, partitions_of, read_marker
from fencepost.spark_connector.sink.commit_marker import BatchId
from fencepost.spark_connector.sink.encode import SinkError
from fencepost.spark_connector.sink.options import parse_sink_options
from fencepost.spark_connector.sink.task import Task
from tests.interop.conftest import started
from tests.interop.java.real_kafka import RealKafka
from tests.kit.broker_process import BrokerProcess
from tests.spark.conftest import ROOT, new_topic
from tests.spark.sink_kills import TWO_PHASE, committed
from tests.spark.sink_points import LANE_POINTS, POINTS
from tests.spark.sink_tasks import COLUMNS, Context, Sink

pytestmark = pytest.mark.timeout(600)
AT_ONCE_SECONDS = 30
"""Half of the time for which a client tries again."""


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A fencepost with two-phase commit."""
    where = tmp_path_factory.mktemp("sink")
    with BrokerProcess(where, data_dir=where / "data", settings=TWO_PHASE) as broker:
        yield broker.address


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Kafka; skipped where it cannot be had."""
    with started(RealKafka(tmp_path_factory.mktemp("sink-kafka"))) as kafka:
        yield kafka.address


@pytest.fixture(params=["ours", "kafka"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


def test_a_batch_is_written_once_however_often_it_is_committed(bootstrap: str) -> None:
    sink = Sink(bootstrap)
    first, second = BatchId("q", 0), BatchId("q", 1)
    assert sink.write(range(100), first) is True
    assert sink.write(range(100), first) is False
    assert sink.write(range(100, 200), second) is True
    assert sink.write(range(100, 200), second) is False
    assert sink.numbers() == list(range(200))
    with connect(sink.options()) as client:
        marker = read_marker(client, sink.options())
    assert marker is not None
    assert (marker.query_id, marker.batch_id) == ("q", 1)


def test_an_empty_batch_leaves_a_mark_as_well(bootstrap: str) -> None:
    sink = Sink(bootstrap)
    assert sink.write(range(0), BatchId("q", 0)) is True
    assert sink.write(range(0), BatchId("q", 0)) is False
    assert sink.write(range(5), BatchId("q", 1)) is True
    assert sink.numbers() == list(range(5))


def test_rows_that_name_their_topics_leave_one_mark_even_where_there_are_none(bootstrap: str) -> None:
    sink = Sink(bootstrap)
    other = new_topic(bootstrap, f"{sink.name}-b", partitions=1)

    def write(topics: list[str], batch: BatchId) -> bool:
        named = {"kafka.transactional.id": sink.name, "queryId": batch.query_id, "batchId": str(batch.batch_id)}
        options = parse_sink_options({"kafka.bootstrap.servers": bootstrap, **named}, streaming=False)
        rows = pa.RecordBatch.from_pydict(
            {"topic": pa.array(topics, pa.string()), "value": pa.array(topics, pa.string())}
        )
        parts = Task(options, {"topic": 0, "value": 1}, None, Context()).run([rows]).parts
        return commit_batch(options, parts, batch)

    assert write([], BatchId("q", 0)) is True
    assert write([sink.topic, other], BatchId("q", 1)) is True
    assert write([sink.topic, other], BatchId("q", 1)) is False
    assert committed(bootstrap, other, 1) == [other.encode()]
    assert committed(bootstrap, sink.topic, 2) == [sink.topic.encode()]


def test_a_deleted_checkpoint_and_a_lost_mark_fail_loudly_and_say_what_to_do(bootstrap: str) -> None:
    sink = Sink(bootstrap)
    sink.write(range(10), BatchId("q", 0))
    with pytest.raises(SinkError, match=f"delete the group '{sink.name}'"):
        sink.write(range(10), BatchId("after", 0))
    with connect(sink.options()) as client, client.admin() as admin:
        admin.delete_groups(sink.name)
    with pytest.raises(SinkError, match="firstBatch = 1"):
        sink.write(range(10, 20), BatchId("q", 1))
    assert sink.write(range(10, 20), BatchId("q", 1), firstBatch="1") is True
    assert sink.numbers() == list(range(20))


def test_two_drivers_at_once_write_a_batch_once(bootstrap: str) -> None:
    sink = Sink(bootstrap)
    told: Counter[str] = Counter()
    together = threading.Barrier(2)

    def until_known(batch: BatchId) -> str:
        """As a driver whom the other has shut out is started again."""
        while True:
            try:
                return str(sink.write(range(batch.batch_id * 50, batch.batch_id * 50 + 50), batch))
            except SinkError as error:
                told[str(error).partition(" writes as ")[0]] += 1

    def drive() -> None:
        for number in range(4):
            together.wait(150)
            told[until_known(BatchId("q", number))] += 1

    drivers = [threading.Thread(target=drive) for _ in range(2)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join(150)
    assert (told["True"], told["False"]) == (4, 4)
    assert set(told) <= {"True", "False", "another driver"}
    assert sink.numbers() == list(range(200))


def test_a_driver_that_was_shut_out_in_its_transaction_writes_nothing(bootstrap: str) -> None:
    sink = Sink(bootstrap)
    options = sink.options(BatchId("q", 0))
    part = sink.task(range(10), None).parts[0]

    def overtaken() -> None:
        with connect(options) as zombie, main_producer(zombie, options) as producer, producer.transaction() as txn:
            txn.send_batches(part.topic, part.partition, part.unpacked())
            producer.flush()
            assert sink.write(range(10), BatchId("q", 0)) is True

    with pytest.raises(FencedError):
        overtaken()
    assert sink.numbers() == list(range(10))


def test_a_batch_write_without_a_number_is_one_transaction(bootstrap: str) -> None:
    sink = Sink(bootstrap)
    assert sink.write(range(10), None) is True
    assert sink.write(range(10, 20), None) is True
    assert sink.numbers() == list(range(20))


def test_what_can_not_be_written_is_told_before_anything_is(ours: str) -> None:
    sink = Sink(ours, maxTransactionBytes="2000")
    with pytest.raises(SinkError, match=r"maxTransactionBytes is 2000.*twoPhase = true"):
        sink.task(range(1000), None)
    parts = [part for n in range(20) for part in sink.task(range(20), None).parts]
    with pytest.raises(SinkError, match="maxTransactionBytes is 2000"):
        commit_batch(sink.options(), parts, None)
    with pytest.raises(SinkError, match=r"spark\.speculation is on"):
        sink.task(range(5), None, spark_speculation="true")


def test_a_missing_topic_is_created_by_a_broker_that_creates_topics(bootstrap: str) -> None:
    """As for Kafka's producers: auto.create.topics.enable is its default, as in Kafka."""
    sink = Sink(bootstrap)
    sink.topic = f"{sink.name}-made"
    assert sink.write(range(10), BatchId("q", 0)) is True
    with connect(sink.options()) as client:
        count = partitions_of(client, sink.options(), sink.topic)
    assert sorted(map(int, committed(bootstrap, sink.topic, count))) == list(range(10))


def test_a_topic_that_is_not_created_is_named_soon_also_by_a_batch_without_rows(tmp_path: Path) -> None:
    """The client looks for a topic for a minute, since topics come into being; a sink has one to begin with."""
    with BrokerProcess(tmp_path, settings={"auto.create.topics.enable": "false", **TWO_PHASE}) as broker:
        sink = Sink(broker.address)
        sink.topic = "nowhere"
        command = f"fencepost topic create nowhere --bootstrap {broker.address}"
        says = re.escape(f"topic nowhere does not exist, and the broker did not create it: create it by `{command}`")
        began = time.monotonic()
        with pytest.raises(SinkError, match=says):
            sink.task(range(5), None)
        with pytest.raises(SinkError, match=says):
            sink.write(range(0), BatchId("q", 0))
        with pytest.raises(SinkError, match=says):
            sink.claim()
        assert time.monotonic() - began < AT_ONCE_SECONDS


def test_a_record_that_the_topic_does_not_take_ends_the_batch_with_the_reason(ours: str) -> None:
    sink = Sink(ours)
    with connect(sink.options()) as client, client.admin() as admin:
        admin.incremental_alter_configs({"max.message.bytes": "200"}, topic=sink.topic)
    rows = pa.RecordBatch.from_pydict(
        {"key": [None], "value": ["x" * 500]}, pa.schema([("key", pa.string()), ("value", pa.string())])
    )
    parts = Task(sink.options(), COLUMNS, None, Context()).run([rows]).parts
    with pytest.raises(SinkError, match="MESSAGE_TOO_LARGE"):
        commit_batch(sink.options(), parts, None)
    assert sink.numbers() == []


def test_a_kafka_that_cannot_keep_prepared_transactions_is_told_apart(kafka: str) -> None:
    with pytest.raises(SinkError, match="Apache Kafka cannot keep prepared transactions"):
        Sink(kafka).claim()


@pytest.mark.parametrize("settings", [{}, {"unstable.api.versions.enable": "true"}], ids=["neither", "one"])
def test_a_fencepost_without_the_settings_of_two_phase_commit_is_told_both(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    with BrokerProcess(tmp_path, settings=settings) as broker, pytest.raises(SinkError) as refused:
        Sink(broker.address).claim()
    assert "--set unstable.api.versions.enable=true --set transaction.two.phase.commit.enable=true" in str(
        refused.value
    )
    assert "0..5" not in str(refused.value)


def test_prepared_tasks_are_seen_together_once_they_are_decided(ours: str) -> None:
    """T22: whatever was prepared waits for the decision, and is then all there."""
    sink = Sink(ours, twoPhase="true")
    batch = BatchId("q", 0)
    claim = sink.claim(batch)
    written = [sink.task(range(n * 50, n * 50 + 50), batch, claim, partition=n) for n in range(4)]
    written.append(sink.task(range(0), batch, claim, partition=4))
    assert written[-1].lane is None
    assert sink.decide(written, claim, batch) is True
    assert sink.numbers() == list(range(200))
    again = sink.claim(batch)
    repeated = sink.task(range(50), batch, again)
    assert repeated.lane is None, "the claim tells the task that its batch is done"
    assert sink.decide([repeated], again, batch) is False
    assert sink.numbers() == list(range(200))


def test_attempts_that_were_given_up_are_aborted_by_the_next_claim_and_do_not_disturb(ours: str) -> None:
    sink = Sink(ours, twoPhase="true")
    batch = BatchId("q", 0)
    claim = sink.claim(batch)
    lost = sink.task(range(50), batch, claim)
    kept = sink.task(range(50), batch, claim)  # as after a lost stage: the same attempt number again
    assert lost.lane is not None
    assert kept.lane is not None
    assert lost.lane.name != kept.lane.name
    assert sink.decide([kept], claim, batch) is True
    with connect(sink.options()) as client:
        assert sink_lanes.open_lanes(client, sink.options()) == [lost.lane.name]
    sink.claim()
    assert sink.numbers() == list(range(50))


def test_a_driver_that_woke_too_late_decides_nothing(ours: str) -> None:
    """T23: its successor has aborted what it had prepared, so its decision must not count."""
    sink = Sink(ours, twoPhase="true")
    batch = BatchId("q", 0)
    old = sink.claim(batch)
    stale = sink.task(range(50), batch, old)
    new = sink.claim(batch)
    fresh = sink.task(range(50), batch, new)
    with pytest.raises(SinkError, match="another driver"):
        sink.decide([stale], old, batch)
    assert sink.decide([fresh], new, batch) is True
    assert sink.numbers() == list(range(50))


def test_a_driver_that_woke_too_late_ends_no_transaction_of_its_successor(ours: str) -> None:
    """T23: what a newer driver has prepared is for that one to decide."""
    sink = Sink(ours, twoPhase="true")
    batch = BatchId("q", 0)
    old, new = sink.claim(batch), sink.claim(batch)
    fresh = sink.task(range(50), batch, new)
    assert fresh.lane is not None
    with connect(sink.options()) as client:
        with pytest.raises(FencedError, match="a newer driver owns"):
            sink_lanes.clear_lanes(client, sink.options(), old, {})
        assert sink_lanes.open_lanes(client, sink.options()) == [fresh.lane.name]
    assert sink.decide([fresh], new, batch) is True
    assert sink.numbers() == list(range(50))


SERVER = """
import os, pickle, signal, sys
import fencepost.client.admin, fencepost.client.consumer.consumer, fencepost.client.transactions.two_phase
import fencepost.sync, numpy, pyarrow
from tests.spark.sink_points import arm
from tests.spark.sink_tasks import Sink
from fencepost.spark_connector.sink.commit_marker import BatchId

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def play(sink, point, first, two_phase):
    batch = BatchId("q", first // 50)
    claim = sink.claim(batch) if two_phase else None
    tasks = [sink.task(range(n, n + 25), batch, claim, partition=n) for n in (first, first + 25)]
    if point == "prepared":
        die()
    arm(point, die)
    if two_phase:
        sink.decide(tasks, claim, batch)
    else:
        sink.commit(tasks, batch)
    if point == "committed":
        die()

while True:
    try:
        case = pickle.load(sys.stdin.buffer)
    except EOFError:
        break
    child = os.fork()
    if not child:
        try:
            play(*case)
            os._exit(0)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Forks a process for each commit, so that its modules are imported once."""


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """`processes(sink, point, first, two_phase)` commits in a process of its own; the process's exit code."""
    log = tmp_path_factory.mktemp("processes") / "stderr"
    with log.open("wb") as errors:
        server = subprocess.Popen(
            [sys.executable, "-c", SERVER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        )
    assert server.stdin is not None
    assert server.stdout is not None
    into, out = server.stdin, server.stdout

    def commit(*case: Any) -> tuple[int, str]:
        pickle.dump(case, into)
        into.flush()
        return int(out.readline()), log.read_text()[-2000:]

    yield commit
    into.close()
    server.wait(150)
    out.close()


@pytest.mark.parametrize("way", ["plain on ours", "plain on kafka", "prepared on ours"])
def test_a_process_that_dies_at_each_point_of_a_commit_is_made_good_by_the_next(
    way: str, processes: Any, request: pytest.FixtureRequest
) -> None:
    """Killed with -9 before EndTxn, with EndTxn on its way, after its answer, between decision and completion."""
    two_phase = way.startswith("prepared")
    sink = Sink(request.getfixturevalue(way.split()[-1]), twoPhase=str(two_phase).lower())
    points = LANE_POINTS if two_phase else POINTS
    for number, point in enumerate(points):
        for attempt, wanted in ((point, -signal.SIGKILL), ("", 0)):
            code, log = processes(sink, attempt, number * 50, two_phase)
            assert code == wanted, f"{point}: {code}\n{log}"
    assert sink.numbers() == list(range(50 * len(points)))
