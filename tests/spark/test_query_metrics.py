"""`QueryMetrics`: the metrics of a driver's queries."""

import logging
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from prometheus_client import CollectorRegistry

from fencepost.protocol.topics import TopicPartition
from fencepost.spark_connector import QueryMetrics
from fencepost.spark_connector.query_metrics import Lag, lag_of
from tests.kit.waiting import until
from tests.spark.conftest import WAIT_SECONDS, Transact, new_producer

END = '{"t": {"0": 5, "1": 9}, "t (first batch)": {"0": 0, "1": 0}, "t (topic id)": "00ff"}'
LATEST = '{"t": {"0": 12, "1": 9}, "t (last stable)": {"0": 7}}'


def test_the_lag_of_a_partition_counts_what_open_transactions_hold_back() -> None:
    assert lag_of(END, LATEST) == {TopicPartition("t", 0): Lag(7, 5), TopicPartition("t", 1): Lag(0, 0)}


@pytest.mark.parametrize(("end", "latest"), [(None, LATEST), (END, None), ("3", "7"), (END, '"x"'), ('{"a": 1}', "{}")])
def test_other_sources_have_no_lag(end: str | None, latest: str | None) -> None:
    assert lag_of(end, latest) == {}


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_query_shows_its_records_and_what_it_waits_for(
    spark: Any, bootstrap: str, topic: str, transact: Transact, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fencepost.spark_connector.query_metrics")
    registry = CollectorRegistry()
    metrics = QueryMetrics(registry)
    transact([(0, b"a"), (1, b"b")])
    open_one = new_producer(bootstrap)
    open_one.begin_transaction()
    open_one.produce(topic, b"c", partition=0)
    open_one.flush(WAIT_SECONDS)
    name = f"metrics-{os.urandom(4).hex()}"
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    writer = spark.readStream.format("fencepost").options(**options).load().writeStream.format("noop")
    writer = writer.queryName(name).option("checkpointLocation", str(tmp_path))
    spark.streams.addListener(metrics)
    try:
        query = writer.trigger(processingTime="100 milliseconds").start()

        def value(metric: str, **labels: str) -> float | None:
            return registry.get_sample_value(metric, {"query": name, **labels})

        until(lambda: value("fencepost_spark_records_total") == 2, what="the records")
        place = {"topic": topic, "partition": "0"}
        until(lambda: value("fencepost_spark_held_back_offsets", **place) == 1, what="the open record")
        assert value("fencepost_spark_lag_offsets", **place) == 1
        open_one.commit_transaction(WAIT_SECONDS)
        until(lambda: value("fencepost_spark_records_total") == 3, what="the last record")
        query.stop()
        until(lambda: value("fencepost_spark_lag_offsets", **place) is None, what="the query's end")
    finally:
        spark.streams.removeListener(metrics)
    assert f"query {name}: micro-batch 0, 2 records in " in caplog.text
