"""The first hour of a data engineer: an own Spark, an environment that is not activated, a busy topic."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import new_topic
from tests.spark.quick_starts import environment_of_a_newcomer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PROGRAM = """
import itertools, json, os, sys, threading, time

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
from fencepost.sync import Client
from pyspark.sql import SparkSession

bootstrap, topic, where = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
done = threading.Event()

def write():
    with Client(bootstrap) as kafka, kafka.producer() as producer:
        for number in itertools.count():
            producer.send(topic, b"%d" % number)
            if done.wait(0.005):
                return

writing = threading.Thread(target=write)
writing.start()
batches, failing = [], True
kafka = {"kafka.bootstrap.servers": bootstrap}

def see(frame, number):
    offsets = sorted(row.offset for row in frame.select("offset").collect())
    if failing:
        raise RuntimeError("a bug of the user")
    batches.append((number, offsets))

def start():
    stream = spark.readStream.format("fencepost").options(**kafka, subscribe=topic)
    writer = stream.load().writeStream.foreachBatch(see).option("checkpointLocation", where + "/state")
    return writer.trigger(processingTime="100 milliseconds").start()

def failure(action):
    try:
        action()
    except Exception as error:
        return str(error)

query = start()
first = failure(lambda: query.awaitTermination(120))
failing = False
query = start()
until = time.monotonic() + 120
while len(batches) < 4 and query.isActive and time.monotonic() < until:
    time.sleep(0.1)
second = query.exception() and str(query.exception())
query.stop()
done.set()
writing.join()

made = spark.range(3).selectExpr("cast(id AS string) AS value", "timestamp_millis(id) AS timestamp")
made.write.format("fencepost").options(**kafka, topic=topic + "-made").mode("append").save()
place = f"OPTIONS (`kafka.bootstrap.servers` '{bootstrap}', subscribe '{topic}-made')"
spark.sql(f"CREATE TEMPORARY VIEW made USING fencepost {place}")
rows = [tuple(row) for row in spark.sql("SELECT cast(value AS string), unix_millis(timestamp) FROM made").collect()]
table = failure(lambda: spark.sql(f"CREATE TABLE made_table USING fencepost {place}"))
print(json.dumps([first, second, batches, rows, table]))
"""


def test_a_first_stream_with_every_default(installed_spark: None, bootstrap: str, tmp_path: Path) -> None:
    """A stream that begins among new records, whose first micro-batch fails; a missing topic; tables in SQL."""
    topic = new_topic(bootstrap, f"busy-{os.urandom(4).hex()}", partitions=1)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = environment_of_a_newcomer()
    venv = str(Path(sys.executable).parent)
    environment["PATH"] = os.pathsep.join(one for one in environment["PATH"].split(os.pathsep) if one != venv)
    words = [sys.executable, str(program), bootstrap, topic, str(tmp_path)]
    run = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert run.returncode == 0, run.stderr
    first, second, batches, rows, table = json.loads(run.stdout.splitlines()[-1])
    assert "a bug of the user" in first
    assert second is None
    assert [number for number, _ in batches] == list(range(len(batches)))
    read = [offset for _, offsets in batches for offset in offsets]
    assert len(batches) >= 4
    assert read == list(range(read[0], read[0] + len(read))), "none lost, none twice"
    begins = json.loads((tmp_path / "state" / "offsets" / "0").read_text().splitlines()[-1])
    assert begins[f"{topic} (first batch)"] == {"0": read[0]}
    assert sorted(rows) == [["0", 0], ["1", 1], ["2", 2]]
    assert "use CREATE TEMPORARY VIEW" in table
