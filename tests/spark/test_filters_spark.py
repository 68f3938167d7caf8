"""Filters that a real Spark pushes down to the source, with its setting and without."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.spark.conftest import WAIT_SECONDS, new_producer, new_topic
from tests.spark.sql_filters import BASE_MS, at

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SETTING = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def pushing(spark: Any) -> Iterator[Any]:
    """The session with Spark's setting on."""
    spark.conf.set(SETTING, "true")
    yield spark
    spark.conf.unset(SETTING)


@pytest.fixture
def written(bootstrap: str) -> str:
    """30 records, a millisecond apart, in turn in three partitions; the last one of each is an hour older."""
    topic = new_topic(bootstrap, f"filters-{os.urandom(4).hex()}", retention_ms="-1")  # their times are years ago
    producer = new_producer(bootstrap)
    producer.begin_transaction()
    for number in range(30):
        age_ms = 3_600_000 if number >= 27 else 0
        producer.produce(topic, b"%d" % number, partition=number % 3, timestamp=BASE_MS + number - age_ms)
    producer.commit_transaction(WAIT_SECONDS)
    return topic


def load(spark: Any, bootstrap: str, topic: str, **options: str) -> Any:
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **options}
    return spark.read.format("fencepost").options(**given).load()


def numbers(frame: Any) -> list[int]:
    return sorted(int(bytes(row.value)) for row in frame.select("value").collect())


TIME = at(BASE_MS + 20).strftime("TIMESTAMP '%Y-%m-%d %H:%M:%S.%f+00:00'")
QUERIES = {
    "partition = 1": range(1, 30, 3),
    "partition IN (0, 2) AND offset < 2": [0, 2, 3, 5],
    "offset BETWEEN 3 AND 4": range(9, 15),
    "offset IN (0, 9)": [0, 1, 2, 27, 28, 29],
    "partition <> 1 AND offset = 5 AND value = '17'": [17],
    f"timestamp >= {TIME}": range(20, 27),
    f"timestamp > {TIME} AND partition = 0": [21, 24],
    f"timestamp < {TIME}": [*range(20), 27, 28, 29],
    f"timestamp = {TIME}": [20],
    "topic = 'none'": [],
    "partition NOT IN (0, NULL)": [],
    "partition = 1 OR offset = 0": [0, *range(1, 30, 3), 2],
    "headers IS NULL AND offset >= 9": [27, 28, 29],
}


def test_the_rows_are_the_same_with_and_without_the_setting(pushing: Any, bootstrap: str, written: str) -> None:
    for query, expected in QUERIES.items():
        given = {"includeHeaders": "true"}
        assert numbers(load(pushing, bootstrap, written, **given).filter(query)) == sorted(expected), query
        given["pushFilters"] = "true"
        assert numbers(load(pushing, bootstrap, written, **given).filter(query)) == sorted(expected), query


def test_partitions_and_offsets_are_left_out_of_the_plan(pushing: Any, bootstrap: str, written: str) -> None:
    def plan(query: str) -> tuple[int, str]:
        frame = load(pushing, bootstrap, written, pushFilters="true").filter(query)
        return frame.rdd.getNumPartitions(), frame._jdf.queryExecution().executedPlan().toString()

    tasks, text = plan("partition = 1 AND offset > 4")
    assert tasks == 1
    assert " Filter " not in text, "Spark evaluates nothing again"
    tasks, text = plan("offset > 4 AND value = '14'")
    assert (tasks, " Filter " in text) == (3, True)
    assert plan(f"timestamp >= {TIME} AND partition < 2")[0] == 2


def test_by_default_nothing_is_pushed_and_nothing_fails(spark: Any, bootstrap: str, written: str) -> None:
    assert spark.conf.get(SETTING) == "false"
    frame = load(spark, bootstrap, written).filter("partition = 1")
    assert numbers(frame) == [*range(1, 30, 3)]
    assert frame.rdd.getNumPartitions() == 3


def test_the_option_without_the_setting_names_the_setting(spark: Any, bootstrap: str, written: str) -> None:
    with pytest.raises(Exception, match=rf"DATA_SOURCE_PUSHDOWN_DISABLED.* '{SETTING}' is false"):
        load(spark, bootstrap, written, pushFilters="true").filter("partition = 1").collect()


def test_a_stream_reads_all_with_the_option_and_the_setting(pushing: Any, bootstrap: str, written: str) -> None:
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": written, "startingOffsets": "earliest"}
    frame = pushing.readStream.format("fencepost").options(**given, pushFilters="true").load().filter("partition = 1")
    query = frame.writeStream.format("memory").queryName("filtered").trigger(availableNow=True).start()
    assert query.awaitTermination(WAIT_SECONDS)
    assert numbers(pushing.table("filtered")) == [*range(1, 30, 3)]


def test_spark_keeps_the_plan_of_the_last_filters_for_all_queries_of_one_load(
    pushing: Any, bootstrap: str, written: str
) -> None:
    """A fault of Spark 4.3, for which the guide says: load() for each query. If this fails, Spark has mended it."""
    frame = load(pushing, bootstrap, written, pushFilters="true")
    assert frame.filter("partition = 1").count() == 10
    assert frame.count() == 10, "30 records are there"
    both = frame.filter("partition = 0").union(frame.filter("partition = 2"))
    assert both.count() == 20
    assert {number % 3 for number in numbers(both)} != {0, 2}
    one, other = (load(pushing, bootstrap, written, pushFilters="true") for _ in range(2))
    assert {n % 3 for n in numbers(one.filter("partition = 0").union(other.filter("partition = 2")))} == {0, 2}
