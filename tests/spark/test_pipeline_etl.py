"""ETL between topics: exactly once through a kill -9, and shapes that cannot become records are refused at once."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fencepost.spark_pipelines import PipelineError, Shape, etl
from fencepost.spark_pipelines.shape import expressions, function_of
from tests.spark.conftest import Transact, new_topic
from tests.spark.killed import kill_when, patiently

pytestmark = pytest.mark.timeout(900)
DEADLINE_SECONDS = 240


def committed(bootstrap: str, topic: str, partitions: int = 3) -> list[bytes]:
    """All committed values, read by confluent-kafka up to the high watermarks of now."""
    confluent = pytest.importorskip("confluent_kafka")
    settings = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
    consumer = confluent.Consumer({**settings, "auto.offset.reset": "earliest", "enable.partition.eof": True})
    consumer.assign([confluent.TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[bytes] = []
    ended: set[int] = set()
    until = time.monotonic() + DEADLINE_SECONDS
    while len(ended) < partitions:
        assert time.monotonic() < until
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is None:
            found.append(message.value())
        elif message.error().code() == confluent.KafkaError._PARTITION_EOF:
            ended.add(message.partition())
        else:
            raise AssertionError(message.error())
    consumer.close()
    return sorted(found)


@pytest.mark.spark
def test_an_etl_that_is_killed_with_9_and_started_again_has_written_each_record_once(
    spark: Any, bootstrap: str, topic: str, transact: Transact, tmp_path: Path
) -> None:
    """The command, killed when a transaction of its is in the target, wherever it then is; finished in this process."""
    target = new_topic(bootstrap, f"{topic}-target")
    for at in range(0, 400, 100):
        transact([(number % 3, b"%04d" % number) for number in range(at, at + 100)])
        transact([(2, b"x")] * 5, commit=False)
    sql = "SELECT key, concat('n', cast(value AS string)) AS value FROM source"
    checkpoint = tmp_path / "state"
    words = ["spark", "etl", topic, "--to", target, "--checkpoint", str(checkpoint), "--sql", sql]
    words += ["--max-records", "25", "--bootstrap", bootstrap, "--master", "local[1]"]
    kill_when(words, tmp_path / "log", lambda: committed(bootstrap, target))
    kafka, shape = {"bootstrap.servers": bootstrap}, Shape(sql=sql)

    def finished() -> Any:
        query = etl(spark, [topic], target, kafka=kafka, checkpoint=checkpoint, shape=shape)
        query.awaitTermination(DEADLINE_SECONDS)
        return query

    query = patiently(finished)
    assert query.exception() is None
    assert not query.isActive
    assert committed(bootstrap, target) == [b"n%04d" % number for number in range(400)]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("shape", "target", "says"),
    [
        (Shape(select="offset"), "t", "a record has no column offset"),
        (Shape(select="key"), "t", "the column value is missing"),
        (Shape(select="key, value"), None, "the records have no target"),
        (Shape(where="valu = 'a'"), "t", r"Spark rejects the shape: .*(?s:.*)The columns are: key, value"),
        (Shape(sql="SELECT * FROM nowhere"), "t", "Spark rejects the shape: .*nowhere"),
        (Shape(function=lambda frame: 7), "t", "the function returned int, but it must return a DataFrame"),
    ],
)
def test_a_shape_that_gives_no_records_is_refused_before_anything_runs(
    spark: Any, bootstrap: str, topic: str, tmp_path: Path, shape: Shape, target: str | None, says: str
) -> None:
    with pytest.raises(PipelineError, match=says):
        etl(spark, [topic], target, kafka={"bootstrap.servers": bootstrap}, checkpoint=tmp_path, shape=shape)


def test_shapes_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(PipelineError, match="set only one of select, sql and function"):
        Shape(select="value", sql="SELECT value FROM source")
    with pytest.raises(PipelineError, match="where cannot be combined with sql"):
        Shape(where="true", sql="SELECT value FROM source")


def test_expressions_are_split_where_a_column_ends() -> None:
    text = "key, concat(a, ',', \"b,\", `c,d`) AS value, struct(x, array(y, z))"
    assert expressions(text) == ["key", "concat(a, ',', \"b,\", `c,d`) AS value", "struct(x, array(y, z))"]
    with pytest.raises(PipelineError, match="select names no column"):
        expressions(" , ")


def test_functions_are_found_in_modules_and_files_and_what_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "shaping_of_test.py").write_text("def invoices(frame):\n    return frame\n")
    assert function_of(f"{tmp_path}/shaping_of_test.py:invoices")("it") == "it"
    for text, says in (
        ("nothing", "write it as MODULE:FUNCTION or FILE.py:FUNCTION"),
        (f"{tmp_path}/missing.py:f", "there is no file"),
        (f"{tmp_path}/shaping_of_test.py:invoice", "has no function invoice; its functions are: invoices"),
        ("no_such_module_here:f", "cannot be imported"),
    ):
        with pytest.raises(PipelineError, match=says):
            function_of(text)
