"""The reader against a broker of a few lines: holes, aborted runs, lost answers, lost records."""

import struct
import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from fencepost.protocol.batch_header import CorruptBatch
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.records import Record
from fencepost.protocol.topics import IsolationLevel, TopicPartition
from fencepost.protocol.varints import LONG_MAX, LONG_MIN
from fencepost.spark_connector.network.cluster import Cluster
from fencepost.spark_connector.network.wire import BrokerError
from fencepost.spark_connector.source.options import ALL_COLUMNS
from fencepost.spark_connector.source.reader import BatchTooLargeError, DataLossError, FetchSettings, RangeReader
from tests.kit.batch_log import BatchLog
from tests.kit.frames import framed
from tests.kit.spark_broker import VERSIONS, FakeBroker

TP = TopicPartition("flights", 3)


def settings(**options: Any) -> FetchSettings:
    defaults: dict[str, Any] = {
        "isolation": IsolationLevel.READ_COMMITTED,
        "columns": ALL_COLUMNS,
        "fail_on_data_loss": True,
        "fetch_bytes": 4 << 20,
        "fetch_wait_ms": 100,
        "check_crcs": True,
        "max_decompressed_bytes": 128 << 20,
    }
    return FetchSettings(**{**defaults, **options})


def read(
    log: BatchLog,
    start: int = 0,
    stop: int | None = None,
    prepare: Callable[[FakeBroker], None] | None = None,
    api_timeout_ms: int = 100_000,
    **options: Any,
) -> list[tuple[int, bytes | None]]:
    """(offset, value) of everything a task would hand over."""
    with FakeBroker({TP: log}) as broker:
        if prepare is not None:
            prepare(broker)
        cluster = Cluster(broker.settings(api_timeout_ms=api_timeout_ms), {TP: broker.address})
        try:
            end = log.end if stop is None else stop
            batches = list(RangeReader(cluster, TP, start, end, settings(**options)).arrow_batches())
        finally:
            cluster.close()
    return [(row["offset"], row["value"]) for batch in batches for row in batch.to_pylist()]


def test_aborted_runs_and_markers_are_left_out_and_leave_holes_everywhere_i2() -> None:
    log = BatchLog().aborted_run(1, b"x", b"x").data(b"a", producer_id=2).marker(2, True)
    log.aborted_run(1, b"x").data(b"b", b"c").aborted_run(2, b"x", b"x")
    assert read(log) == [(3, b"a"), (7, b"b"), (8, b"c")]


@pytest.mark.parametrize("fetch_bytes", [1, 150, 4 << 20])
def test_any_part_of_the_log_can_be_a_range_whatever_the_size_of_a_fetch(fetch_bytes: int) -> None:
    log = BatchLog().data(b"a", b"b", b"c").aborted_run(1, b"x", b"x").hole(2)
    log.data(b"d", b"e", producer_id=1).marker(1, True).data(b"f")
    everything = read(log)
    assert [value for _, value in everything] == [b"a", b"b", b"c", b"d", b"e", b"f"]
    for start in range(log.end + 1):
        for stop in range(start, log.end + 1):
            expected = [row for row in everything if start <= row[0] < stop]
            assert read(log, start, stop, fetch_bytes=fetch_bytes) == expected, (start, stop)


def test_a_range_of_nothing_but_markers_ends() -> None:
    log = BatchLog()
    for producer_id in range(5):
        log.marker(producer_id, producer_id % 2 == 0)
    assert read(log) == []


def test_compacted_batches_with_their_last_records_gone_end_a_range() -> None:
    log = BatchLog().raw(build_batch([Record(2, 0, None, b"kept")], base_offset=0, last_offset_delta=9))
    log.raw(build_batch([], base_offset=10, last_offset_delta=4))
    assert read(log) == [(2, b"kept")]


@pytest.mark.parametrize("codec", list(Compression))
def test_compressed_batches_are_read(codec: Compression) -> None:
    log = BatchLog().data(b"a" * 50, b"b" * 50, codec=codec).data(b"c").data(b"d", b"e", codec=codec)
    assert [value for _, value in read(log, 1, 4)] == [b"b" * 50, b"c", b"d"]


def test_read_uncommitted_sees_aborted_and_open_records_but_no_markers() -> None:
    log = BatchLog().aborted_run(1, b"x").data(b"open", producer_id=2)
    log.stable = 2
    assert read(log, isolation=IsolationLevel.READ_UNCOMMITTED) == [(0, b"x"), (2, b"open")]


def test_the_next_fetch_is_asked_for_before_the_current_one_is_handed_out() -> None:
    log = BatchLog().data(b"a").data(b"b").data(b"c")
    with FakeBroker({TP: log}) as broker:
        cluster = Cluster(broker.settings(), {TP: broker.address})
        fetches = RangeReader(cluster, TP, 0, 3, settings(fetch_bytes=1)).fetches()
        assert next(fetches).next_offset == 1
        assert next(fetches).next_offset == 2
        # The third answer was asked for before the second was handed out, and the broker answers in order.
        assert next(fetches).next_offset == 3
        assert broker.fetch_offsets() == [0, 1, 2]
        assert list(fetches) == []
        cluster.close()
    assert broker.fetch_offsets() == [0, 1, 2]


def test_an_answer_is_not_kept_in_memory_while_the_next_one_is_waited_for() -> None:
    answers: list[Any] = []
    kept: list[int] = []

    class Watched(RangeReader):
        def _receive(self) -> Any:
            kept.append(sum(answer() is not None for answer in answers))
            return super()._receive()

        def _fetched(self, data: Any) -> Any:
            fetched = super()._fetched(data)
            answers.append(weakref.ref(fetched.buffer))
            return fetched

    log = BatchLog().data(b"a").data(b"b").data(b"c")
    with FakeBroker({TP: log}) as broker:
        cluster = Cluster(broker.settings(), {TP: broker.address})
        for _ in Watched(cluster, TP, 0, 3, settings(fetch_bytes=1)).arrow_batches():
            pass  # what the task had of the answer is gone before it asks for more
        cluster.close()
    assert kept == [0, 0, 0]


def test_the_planners_leader_spares_the_question_for_it() -> None:
    log = BatchLog().data(b"a")
    with FakeBroker({TP: log}) as broker:
        cluster = Cluster(broker.settings(), {TP: broker.address})
        list(RangeReader(cluster, TP, 0, 1, settings()).fetches())
        cluster.close()
    assert [name for name, _ in broker.asked] == ["ApiVersions", "Fetch"]


def test_a_connection_that_breaks_is_created_again_and_nothing_is_lost_or_doubled() -> None:
    log = BatchLog()
    for number in range(12):
        log.data(b"%d" % number)
    calls = iter(range(1000))

    def every_third(broker: FakeBroker) -> None:
        broker.fault = lambda name, request: "close" if name == "Fetch" and next(calls) % 3 == 1 else None

    assert read(log, prepare=every_third, fetch_bytes=1) == [(n, b"%d" % n) for n in range(12)]


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_NOT_AVAILABLE])
def test_retriable_answers_are_asked_again_with_fresh_metadata(code: ErrorCode) -> None:
    faults = [code, code]
    asked: list[str] = []

    def twice(broker: FakeBroker) -> None:
        def fault(name: str, request: Any) -> ErrorCode | None:
            asked.append(name)
            return faults.pop() if name == "Fetch" and faults else None

        broker.fault = fault

    assert read(BatchLog().data(b"a"), prepare=twice) == [(0, b"a")]
    assert asked.count("Metadata") == 2


def test_a_broker_that_stays_away_is_an_error_after_the_time_for_an_operation() -> None:
    def always(broker: FakeBroker) -> None:
        broker.fault = lambda name, request: "close" if name == "Fetch" else None

    with pytest.raises(BrokerError, match="closed by the broker"):
        read(BatchLog().data(b"a"), prepare=always, api_timeout_ms=200)


def test_an_error_that_waiting_does_not_cure_is_raised_at_once() -> None:
    def denied(broker: FakeBroker) -> None:
        broker.fault = lambda name, request: ErrorCode.TOPIC_AUTHORIZATION_FAILED if name == "Fetch" else None

    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        read(BatchLog().data(b"a"), prepare=denied)


def test_records_that_retention_took_are_data_loss() -> None:
    log = BatchLog().data(b"a").data(b"b").data(b"c")
    log.start, log.batches = 2, log.batches[2:]
    with pytest.raises(DataLossError, match=r"offsets 0 to 2 were deleted, the partition now holds 2 to 3"):
        read(log)
    assert read(log, fail_on_data_loss=False) == [(2, b"c")]


def test_a_topic_created_again_that_ends_before_the_range_is_data_loss() -> None:
    log = BatchLog().data(b"a")
    with pytest.raises(DataLossError, match="offsets 5 to 9 were deleted"):
        read(log, 5, 9)
    assert read(log, 5, 9, fail_on_data_loss=False) == []


def test_a_range_that_never_becomes_readable_ends_in_an_error_that_says_why() -> None:
    """An end beyond the last stable offset cannot be planned; a log that fell back behind a plan is named."""
    log = BatchLog().data(b"a").data(b"open", producer_id=2)
    log.stable = 1
    with pytest.raises(BrokerError, match="the last stable offset is 1, the high watermark 2"):
        read(log, 0, 2, api_timeout_ms=100)


def test_a_batch_larger_than_the_fetch_is_fetched_with_more_bytes() -> None:
    log = BatchLog().data(b"x" * 5000).data(b"y")

    def cut(broker: FakeBroker) -> None:
        broker.fetch_limit = 1 << 20

    assert [len(value or b"") for _, value in read(log, prepare=cut, fetch_bytes=100)] == [5000, 1]


def test_a_failing_crc_is_corrupt_unless_the_query_says_not_to_check() -> None:
    log = BatchLog().data(b"abc")
    broken = bytearray(log.batches[0])
    broken[broken.index(b"abc")] ^= 1
    log.batches[0] = bytes(broken)
    with pytest.raises(CorruptBatch, match="fails its CRC"):
        read(log)
    assert read(log, check_crcs=False) == [(0, b"`bc")]


def test_a_legal_batch_of_21_mb_in_a_few_kb_is_read_and_one_above_the_limit_names_the_option() -> None:
    """A bound on the decompressed size that followed the compressed size called it corrupt."""
    log = BatchLog().data(*[b"x" * 350_000] * 60, codec=Compression.ZSTD).data(b"after")
    assert [len(value or b"") for _, value in read(log)] == [350_000] * 60 + [5]
    with pytest.raises(
        BatchTooLargeError, match=r"flights-3: .* more than 1048576 bytes\. Raise .*maxDecompressedBytes"
    ):
        read(log, max_decompressed_bytes=1 << 20)


@pytest.mark.parametrize(("time_ms", "shown"), [(LONG_MAX, False), (LONG_MIN, False), (LONG_MAX // 1000, True)])
def test_a_time_beyond_sparks_range_is_null(time_ms: int, shown: bool) -> None:
    """Its microseconds wrapped around, and Spark showed the year 1969 or 93852."""
    with FakeBroker({TP: BatchLog().data(b"a", time_ms=time_ms)}) as broker:
        cluster = Cluster(broker.settings(), {TP: broker.address})
        (batch,) = RangeReader(cluster, TP, 0, 1, settings(columns=("timestamp",))).arrow_batches()
        cluster.close()
    micros = batch.column(0).cast("int64").to_pylist()
    assert micros == [time_ms * 1000 if shown else None]


def test_columns_that_were_not_chosen_are_not_in_the_batches() -> None:
    log = BatchLog().data(b"a", time_ms=1_700_000_000_123)
    with FakeBroker({TP: log}) as broker:
        cluster = Cluster(broker.settings(), {TP: broker.address})
        chosen = settings(columns=("timestamp", "partition", "topic", "timestampType"))
        (batch,) = RangeReader(cluster, TP, 0, 1, chosen).arrow_batches()
        cluster.close()
    (row,) = batch.to_pylist()
    assert (row["partition"], row["topic"], row["timestampType"]) == (3, "flights", 0)
    assert list(row) == ["timestamp", "partition", "topic", "timestampType"]
    assert row["timestamp"].timestamp() == 1_700_000_000.123


def test_a_broker_that_does_not_know_our_apiversions_is_asked_in_version_0_kip_511() -> None:
    old = {**VERSIONS, 18: (0, 2), 1: (4, 6), 2: (1, 3), 3: (0, 5)}
    log = BatchLog().aborted_run(1, b"x").data(b"a")
    with FakeBroker({TP: log}, old) as broker:
        cluster = Cluster(broker.settings())
        batches = list(RangeReader(cluster, TP, 0, log.end, settings()).arrow_batches())
        assert cluster.topics(["flights", "nowhere"]) == {"flights": (3,)}
        cluster.close()
    assert [row["value"] for batch in batches for row in batch.to_pylist()] == [b"a"]


def test_a_broker_without_a_common_version_is_named() -> None:
    with FakeBroker({TP: BatchLog().data(b"a")}, {**VERSIONS, 1: (90, 91)}) as broker:
        cluster = Cluster(broker.settings(), {TP: broker.address})
        with pytest.raises(BrokerError, match="supports no version of Fetch"):
            list(RangeReader(cluster, TP, 0, 1, settings()).fetches())
        cluster.close()


def test_an_answer_that_is_no_answer_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    for frame in (struct.pack(">i", 77) + b"\xff" * 40, b"\x00"):
        with FakeBroker({TP: BatchLog().data(b"a")}) as broker:
            monkeypatch.setattr(broker, "_answer", lambda _, frame=frame: framed(frame))
            cluster = Cluster(broker.settings(api_timeout_ms=100))
            with pytest.raises(BrokerError, match=r"broker at 127\.0\.0\.1"):
                cluster.topics(None)
            cluster.close()


def test_a_fresh_worker_reads_without_pandas() -> None:
    """Where it is installed, many of pyarrow's functions import it first, which takes most of a second."""
    program = """
import sys
from fencepost.protocol.columns import iter_columns
from fencepost.protocol.batch_header import iter_headers
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.topics import TopicPartition
from fencepost.spark_connector.source.arrow import BatchMaker
from fencepost.spark_connector.source.options import ALL_COLUMNS
maker = BatchMaker(TopicPartition("fl\u00fcge", 3), ALL_COLUMNS)
batches = []
for count in (2, 3, 1):
    data = build_batch([(7, b"k", b"v", (("h", b"1"),))] * count, base_offset=5)
    (records,) = iter_columns(data, list(iter_headers(data)))
    batches.append(maker.batch(records))
assert "pandas" not in sys.modules
for made, count in zip(batches, (2, 3, 1)):
    made.validate(full=True)
    rows = made.to_pylist()
    assert [(row["topic"], row["partition"], row["offset"]) for row in rows] == [
        ("fl\u00fcge", 3, 5 + number) for number in range(count)
    ]
    assert rows[0]["timestamp"].timestamp() == 0.007
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)
