"""`format("fencepost")` as a sink in a real Spark: streams, frames, foreachBatch, and what is refused."""

import os
from pathlib import Path
from typing import Any

import pytest

from fencepost.client.core.partitioner import partition_for_key
from fencepost.spark_connector import write_exactly_once
from tests.kit.waiting import until
from tests.spark.conftest import Transact, new_topic
from tests.spark.killed import patiently
from tests.spark.sink_kills import committed

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
Options = dict[str, str]


@pytest.fixture
def output(bootstrap: str) -> str:
    return new_topic(bootstrap, f"out-{os.urandom(4).hex()}", partitions=2)


def source(spark: Any, bootstrap: str, topic: str, **options: str) -> Any:
    named = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest", **options}
    return spark.readStream.format("fencepost").options(**named).load()


def sink(frame: Any, bootstrap: str, output: str, checkpoint: Path) -> Any:
    named = {"kafka.bootstrap.servers": bootstrap, "topic": output, "checkpointLocation": str(checkpoint)}
    return frame.select("key", "value").writeStream.format("fencepost").options(**named)


def values(bootstrap: str, topic: str) -> list[bytes]:
    return sorted(committed(bootstrap, topic, 2))


def numbered(first: int, last: int) -> list[bytes]:
    return sorted(b"%d" % number for number in range(first, last))


def test_a_stream_that_is_stopped_in_a_batch_and_started_again_writes_everything_once(
    spark: Any, bootstrap: str, topic: str, output: str, transact: Transact, tmp_path: Path
) -> None:
    transact([(number % 3, b"%d" % number) for number in range(300)])
    checkpoint = tmp_path / "checkpoint"

    def at_work() -> Any:
        begun = sink(source(spark, bootstrap, topic, maxRecordsPerTrigger="60"), bootstrap, output, checkpoint).start()
        # Not before: a Spark that is stopped while it makes the checkpoint refuses it later.
        until(lambda: (checkpoint / "offsets" / "0").exists() or not begun.isActive)
        if (failure := begun.exception()) is not None:
            raise failure
        return begun

    patiently(at_work).stop()
    rest = sink(source(spark, bootstrap, topic), bootstrap, output, checkpoint).trigger(availableNow=True)
    assert patiently(lambda: rest.start().awaitTermination(200))
    assert values(bootstrap, output) == numbered(0, 300)

    deleted = sink(source(spark, bootstrap, topic), bootstrap, output, checkpoint)
    for path in sorted(checkpoint.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    with pytest.raises(Exception, match="its checkpoint was deleted, or two queries share a name"):
        patiently(lambda: deleted.trigger(availableNow=True).start().awaitTermination(200))
    assert values(bootstrap, output) == numbered(0, 300)


def test_a_frame_is_written_with_keys_headers_and_places_and_aborted_as_a_whole(
    spark: Any, bootstrap: str, output: str
) -> None:
    rows = spark.range(90, numPartitions=3).selectExpr(
        "concat('k', id % 5) AS key",
        "cast(id AS string) AS value",
        f"'{output}' AS topic",
        "cast(if(id % 9 = 0, 1, null) AS int) AS partition",
        "array(struct('n' AS key, cast(cast(id AS string) AS binary) AS value)) AS headers",
    )
    compressed = {"kafka.bootstrap.servers": bootstrap, "kafka.compression.type": "zstd"}
    rows.write.format("fencepost").options(**compressed).mode("append").save()
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": output, "includeHeaders": "true"}
    found = spark.read.format("fencepost").options(**options).load().collect()
    assert sorted(int(row.value) for row in found) == list(range(90))
    for row in found:
        number = int(row.value)
        assert bytes(row.key) == b"k%d" % (number % 5)
        assert row.partition == (1 if number % 9 == 0 else partition_for_key(bytes(row.key), 2))
        assert [(header.key, bytes(header.value)) for header in row.headers] == [("n", b"%d" % number)]

    half = rows.selectExpr("value", "topic", "if(value = '89', 7, 0) AS partition")
    with pytest.raises(Exception, match=r"has partition 7, but topic .* has 2 partitions"):
        half.write.format("fencepost").options(**compressed).mode("append").save()
    assert len(values(bootstrap, output)) == 90


def test_foreach_batch_writes_each_batch_once(
    spark: Any, bootstrap: str, topic: str, output: str, transact: Transact, tmp_path: Path
) -> None:
    transact([(number % 3, b"%d" % number) for number in range(60)])
    options = {"kafka.bootstrap.servers": bootstrap, "topic": output}

    def twice(frame: Any, batch_id: int) -> None:
        for _ in range(2):
            write_exactly_once(frame.select("value"), batch_id, transactional_id=f"{output}-each", options=options)

    writer = source(spark, bootstrap, topic, maxRecordsPerTrigger="40").writeStream.foreachBatch(twice)
    writer = writer.option("checkpointLocation", str(tmp_path / "each")).trigger(availableNow=True)
    assert patiently(lambda: writer.start().awaitTermination(200))
    assert values(bootstrap, output) == numbered(0, 60)
    with pytest.raises(ValueError, match="the query's id is unknown"):
        write_exactly_once(spark.range(1), 0, transactional_id="x", options=options)


@pytest.mark.parametrize(
    ("columns", "options", "reason"),
    [
        ("cast(id AS string) AS value", {"topik": "t"}, r"did you mean topic\?"),
        ("id AS value", {"topic": "t"}, "column value is bigint, but the sink needs string or binary"),
        ("cast(id AS string) AS value", {}, "needs a topic"),
        ("cast(id AS string) AS value", {"topic": "no/where"}, "'no/where' is not a valid topic name"),
        (
            "cast(id AS string) AS value",
            {"topic": "nowhere", "twoPhase": "true"},
            "--set transaction.two.phase.commit.enable=true",
        ),
    ],
)
def test_what_can_not_be_written_says_why(
    spark: Any, bootstrap: str, columns: str, options: Options, reason: str
) -> None:
    frame = spark.range(1).selectExpr(columns)
    writer = frame.write.format("fencepost").options(**{"kafka.bootstrap.servers": bootstrap, **options})
    with pytest.raises(Exception, match=reason):
        writer.mode("append").save()


def test_a_topic_is_not_overwritten_and_speculation_is_refused(spark: Any, bootstrap: str, output: str) -> None:
    frame = spark.range(1).selectExpr("cast(id AS string) AS value")
    writer = frame.write.format("fencepost").options(**{"kafka.bootstrap.servers": bootstrap, "topic": output})
    with pytest.raises(Exception, match="cannot be overwritten"):
        writer.mode("overwrite").save()
    spark._jsparkSession.sessionState().conf().setConfString("spark.speculation", "true")
    try:
        with pytest.raises(Exception, match=r"spark\.speculation is on"):
            writer.mode("append").save()
    finally:
        spark._jsparkSession.sessionState().conf().unsetConf("spark.speculation")
    assert values(bootstrap, output) == []
