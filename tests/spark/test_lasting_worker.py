"""Workers that Spark keeps: what is there for good is kept out of the collector's way, once, and nowhere else."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

TASKS = """
import gc, json, os, sys
from fencepost.spark_connector.data_source import FencepostDataSource
from fencepost.spark_connector.source.task import RangePartition, read_range
from fencepost.spark_connector.source.options import parse_options
from fencepost.spark_connector.source.ranges import OffsetRange
from fencepost.protocol.topics import TopicPartition

given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
nothing = RangePartition(OffsetRange(TopicPartition("t", 0), 5, 5))
work = {
    "read": lambda: list(read_range(parse_options(given), nothing)),
    "create": lambda: FencepostDataSource(given).schema(),
}[sys.argv[1]]
at_start = gc.get_freeze_count()
frozen = []
for _ in range(4):
    work()
    gc.collect()                        # as Spark's daemon does after each task
    frozen.append(gc.get_freeze_count() - at_start)

class Ring: pass
ring = Ring()
ring.ring = ring
del ring
print(json.dumps({"frozen": frozen, "collected": gc.collect()}))
"""


def told(kind: str, environment: dict[str, str]) -> dict[str, Any]:
    clean = {name: value for name, value in os.environ.items() if name != "SPARK_REUSE_WORKER"}
    run = subprocess.run(
        [sys.executable, "-c", TASKS, kind],
        env=clean | environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return found


@pytest.mark.parametrize("kind", ["read", "create"])
def test_a_worker_that_lives_on_freezes_what_it_holds_at_its_second_task_and_collects_what_comes_later(
    kind: str,
) -> None:
    found = told(kind, {"SPARK_REUSE_WORKER": "1"})
    first, second, third, fourth = found["frozen"]
    assert first == 0, "the garbage of the first task is still to be collected"
    assert second > 10_000
    assert third <= second
    assert fourth <= third
    assert found["collected"] > 0


@pytest.mark.parametrize("kind", ["read", "create"])
def test_any_other_process_is_left_alone(kind: str) -> None:
    assert told(kind, {})["frozen"] == [0, 0, 0, 0]
