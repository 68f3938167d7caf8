"""The pipelines against a real Apache Kafka: what committed is copied and exported once, what was aborted never."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("confluent_kafka")

from fencepost.spark_pipelines import Shape, etl, export, manifests
from tests.interop.conftest import started
from tests.interop.java.real_kafka import RealKafka
from tests.spark.conftest import new_topic, transactions_of
from tests.spark.killed import patiently
from tests.spark.sink_kills import committed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
DEADLINE_SECONDS = 240
RECORDS = 60


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Kafka; skipped where it cannot be had."""
    with started(RealKafka(tmp_path_factory.mktemp("pipeline-kafka"))) as kafka:
        yield kafka.address


def test_etl_and_export_give_each_committed_record_once(spark: Any, kafka: str, tmp_path: Path) -> None:
    """I2, T12: the markers of a real Kafka come later than its answer, so what is stable is waited for."""
    topic = new_topic(kafka, f"from-{os.urandom(4).hex()}")
    target = new_topic(kafka, f"to-{os.urandom(4).hex()}", partitions=2)
    transact = transactions_of(kafka, topic)
    for at in range(0, RECORDS, 20):
        transact([(number % 3, b"%02d" % number) for number in range(at, at + 20)])
        transact([(1, b"x")] * 3, commit=False)
    numbers = [b"%02d" % number for number in range(RECORDS)]
    assert sorted(committed(kafka, topic, 3)) == numbers
    options = {"bootstrap.servers": kafka}
    shape = Shape(sql="SELECT key, concat('n', cast(value AS string)) AS value FROM source")

    def copied() -> None:
        query = etl(spark, [topic], target, kafka=options, checkpoint=tmp_path / "state", shape=shape)
        assert query.awaitTermination(DEADLINE_SECONDS)

    patiently(copied)
    patiently(copied)
    assert sorted(committed(kafka, target, 2)) == [b"n" + number for number in numbers]

    lake = tmp_path / "lake"
    patiently(lambda: list(export(spark, [topic], lake, kafka=options, batch_records=50)))
    assert patiently(lambda: list(export(spark, [topic], lake, kafka=options))) == [], "all of it is there"
    assert sum(one.rows for one in manifests(lake)) == RECORDS
    found = spark.read.parquet(str(lake)).select("value").collect()
    assert sorted(bytes(row.value) for row in found) == numbers
