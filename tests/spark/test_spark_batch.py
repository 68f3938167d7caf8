"""`spark.read.format("fencepost")` in a real Spark against a real broker, written to by librdkafka."""

from typing import Any

import pytest

from tests.spark.conftest import WAIT_SECONDS, Transact, new_producer, transactions_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


def load(spark: Any, bootstrap: str, topic: str, **options: str) -> Any:
    reader = spark.read.format("fencepost").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    return reader.options(**options).load()


def values(frame: Any) -> list[bytes | None]:
    return sorted(None if row.value is None else bytes(row.value) for row in frame.select("value").collect())


def test_spark_finds_the_format_by_itself_and_its_schema_is_that_of_sparks_kafka_source(
    spark: Any, bootstrap: str, topic: str
) -> None:
    frame = load(spark, bootstrap, topic, includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert "headers" not in load(spark, bootstrap, topic).columns
    assert frame.count() == 0


def test_only_committed_records_are_read_whatever_holes_transactions_leave(
    spark: Any, bootstrap: str, topic: str, transact: Transact
) -> None:
    """Partition 0 has holes at the start, in the middle and at the end, 1 is open at its end, 2 only markers."""
    transact([(0, b"x"), (0, b"x")], commit=False)
    transact([(0, b"a"), (1, b"b")])
    transact([(0, b"x"), (1, b"x"), (2, b"x")], commit=False)
    transact([(0, b"c"), (0, b"d")])
    transact([(0, b"x")] * 5 + [(2, b"x")] * 5, commit=False)
    open_one = new_producer(bootstrap)
    open_one.begin_transaction()
    open_one.produce(topic, b"open", partition=1)
    open_one.flush(WAIT_SECONDS)

    frame = load(spark, bootstrap, topic)
    rows = {(row.partition, row.offset, bytes(row.value)) for row in frame.collect()}
    assert rows == {(0, 3, b"a"), (1, 0, b"b"), (0, 7, b"c"), (0, 8, b"d")}
    assert frame.count() == 4
    uncommitted = load(spark, bootstrap, topic, **{"kafka.isolation.level": "read_uncommitted"})
    assert uncommitted.filter("value = 'x'").count() == 15
    assert uncommitted.filter("value = 'open'").count() == 1
    open_one.abort_transaction(WAIT_SECONDS)


def test_an_end_that_is_not_stable_is_refused_and_says_who_holds_it(spark: Any, bootstrap: str, topic: str) -> None:
    open_one = new_producer(bootstrap)
    open_one.begin_transaction()
    open_one.produce(topic, b"open", partition=0)
    open_one.flush(WAIT_SECONDS)
    ending = f'{{"{topic}": {{"0": 1, "1": -1, "2": -1}}}}'
    with pytest.raises(Exception, match=r"stable offset is 0: producer \d+ has a transaction open since offset 0"):
        load(spark, bootstrap, topic, endingOffsets=ending).collect()
    open_one.abort_transaction(WAIT_SECONDS)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_transactions_are_read(spark: Any, bootstrap: str, topic: str, codec: str) -> None:
    write = transactions_of(bootstrap, topic, **{"compression.type": codec, "linger.ms": 50})
    expected = [b"%04d" % number * 50 for number in range(500)]
    write([(number % 3, value) for number, value in enumerate(expected)])
    write([(0, b"x" * 200)] * 50, commit=False)
    assert values(load(spark, bootstrap, topic)) == sorted(expected)


def test_keys_headers_nulls_and_times_arrive_as_written(spark: Any, bootstrap: str, topic: str) -> None:
    producer = new_producer(bootstrap)
    producer.begin_transaction()
    headers = [("trace", b"\x00\xff"), ("trace", None), ("ünï", b"")]
    producer.produce(topic, b"v", b"k", partition=1, timestamp=1_700_000_000_123, headers=headers)
    producer.produce(topic, None, b"", partition=1, timestamp=1_700_000_000_456)
    producer.produce(topic, b"", None, partition=1, timestamp=1_600_000_000_000)
    producer.commit_transaction(WAIT_SECONDS)
    rows = load(spark, bootstrap, topic, includeHeaders="true").orderBy("offset").collect()
    found = [(row.key, row.value, row.topic, row.partition, row.offset, row.timestampType) for row in rows]
    assert found == [(b"k", b"v", topic, 1, 0, 0), (b"", None, topic, 1, 1, 0), (None, b"", topic, 1, 2, 0)]
    assert [round(row.timestamp.timestamp() * 1000) % 1000 for row in rows] == [123, 456, 0]
    assert [(header.key, header.value) for header in rows[0].headers] == headers
    assert rows[1].headers is None


def test_ranges_by_offset_and_by_time_are_exact(spark: Any, bootstrap: str, topic: str) -> None:
    producer = new_producer(bootstrap)
    producer.begin_transaction()
    for number in range(20):
        producer.produce(topic, b"%d" % number, partition=0, timestamp=1_700_000_000_000 + number)
    producer.commit_transaction(WAIT_SECONDS)
    only_0 = f'{{"{topic}": {{"0": %d, "1": %d, "2": %d}}}}'
    chosen = load(spark, bootstrap, topic, startingOffsets=only_0 % (5, -2, -2), endingOffsets=only_0 % (9, -1, 0))
    assert [row.offset for row in chosen.orderBy("offset").collect()] == [5, 6, 7, 8]
    assign = spark.read.format("fencepost").options(
        **{
            "kafka.bootstrap.servers": bootstrap,
            "assign": f'{{"{topic}": [0]}}',
            "startingTimestamp": "1700000000003",
            "endingTimestamp": "1700000000006",
        }
    )
    assert [row.offset for row in assign.load().orderBy("offset").collect()] == [3, 4, 5]


def test_min_partitions_cuts_ranges_up_and_loses_nothing(
    spark: Any, bootstrap: str, topic: str, transact: Transact
) -> None:
    expected = [b"%04d" % number for number in range(300)]
    transact([(number % 2, value) for number, value in enumerate(expected)])
    frame = load(spark, bootstrap, topic, minPartitions="7")
    assert frame.rdd.getNumPartitions() >= 7
    assert values(frame) == expected
    assert load(spark, bootstrap, topic, maxRecordsPerPartition="50").rdd.getNumPartitions() >= 6


def test_only_chosen_columns_are_read(spark: Any, bootstrap: str, topic: str, transact: Transact) -> None:
    transact([(2, b"v")])
    frame = load(spark, bootstrap, topic, columns="offset,partition")
    assert [tuple(row) for row in frame.collect()] == [(0, 2)]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"startingOffset": "earliest"}, r"did you mean startingOffsets\?"),
        ({"minPartitions": "0"}, "option minPartitions = .0.: must be a whole number above 0"),
        ({"kafka.security.protocol": "TLS"}, "must be one of plaintext, ssl"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_read(
    spark: Any, bootstrap: str, topic: str, options: dict[str, str], reason: str
) -> None:
    with pytest.raises(Exception, match=reason):
        load(spark, bootstrap, topic, **options).collect()


def test_a_topic_that_does_not_exist_is_named(spark: Any, bootstrap: str) -> None:
    with pytest.raises(Exception, match="there is no topic nowhere on this cluster"):
        load(spark, bootstrap, "nowhere").collect()


def test_deleted_records_are_data_loss_unless_the_query_reads_on(
    spark: Any, bootstrap: str, topic: str, transact: Transact
) -> None:
    confluent = pytest.importorskip("confluent_kafka")
    admin = pytest.importorskip("confluent_kafka.admin").AdminClient({"bootstrap.servers": bootstrap})
    for number in range(5):
        transact([(0, b"%d" % number)])
    (deleted,) = admin.delete_records([confluent.TopicPartition(topic, 0, 4)]).values()
    deleted.result(WAIT_SECONDS)
    start = {"startingOffsets": f'{{"{topic}": {{"0": 0, "1": 0, "2": 0}}}}'}
    with pytest.raises(Exception, match="begins at offset 4: records from 0 on were deleted"):
        load(spark, bootstrap, topic, **start).collect()
    assert values(load(spark, bootstrap, topic, failOnDataLoss="false", **start)) == [b"2", b"3", b"4"]
    assert values(load(spark, bootstrap, topic)) == [b"2", b"3", b"4"]
