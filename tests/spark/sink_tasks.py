"""A sink's tasks and commits without Spark around them."""

import os
from typing import Any

import pyarrow as pa

from fencepost.spark_connector.sink import lanes as sink_lanes
from fencepost.spark_connector.sink.commit import commit_batch, connect
from fencepost.spark_connector.sink.commit_marker import BatchId
from fencepost.spark_connector.sink.options import SinkOptions, parse_sink_options
from fencepost.spark_connector.sink.task import Task, Written
from tests.spark.conftest import new_topic
from tests.spark.sink_kills import committed

COLUMNS = {"key": 0, "value": 1}


class Context:
    """A Spark task's, as far as the sink looks at it."""

    def __init__(self, partition: int = 0, attempt: int = 0, **properties: str) -> None:
        self._partition, self._attempt, self._properties = partition, attempt, properties

    def partitionId(self) -> int:
        return self._partition

    def attemptNumber(self) -> int:
        return self._attempt

    def getLocalProperty(self, key: str) -> str | None:
        return self._properties.get(key.replace(".", "_"))


class Sink:
    """A sink of its own name and topic."""

    def __init__(self, bootstrap: str, **more: str) -> None:
        self.name = f"sink-{os.urandom(4).hex()}"
        self.bootstrap = bootstrap
        self.topic = new_topic(bootstrap, self.name, partitions=2)
        self.more = more

    def options(self, batch: BatchId | None = None, **more: str) -> SinkOptions:
        named = {} if batch is None else {"queryId": batch.query_id, "batchId": str(batch.batch_id)}
        base = {"kafka.bootstrap.servers": self.bootstrap, "topic": self.topic, "kafka.transactional.id": self.name}
        return parse_sink_options({**base, **named, **self.more, **more}, streaming=False)

    def task(self, values: range, batch: BatchId | None, claim: Any = None, **context: Any) -> Written:
        rows = pa.RecordBatch.from_pydict({"key": [f"{n % 5}" for n in values], "value": [str(n) for n in values]})
        return Task(self.options(batch), COLUMNS, claim, Context(**context)).run([rows])

    def write(self, values: range, batch: BatchId | None, **more: str) -> bool:
        """One task and its commit."""
        return commit_batch(self.options(batch, **more), self.task(values, batch).parts, batch)

    def commit(self, written: list[Written], batch: BatchId | None) -> bool:
        return commit_batch(self.options(batch), [part for one in written for part in one.parts], batch)

    def claim(self, batch: BatchId | None = None) -> sink_lanes.Claim:
        with connect(self.options(batch)) as client:
            return sink_lanes.claim(client, self.options(batch))

    def decide(self, written: list[Written], claim: sink_lanes.Claim, batch: BatchId | None) -> bool:
        with connect(self.options(batch)) as client:
            lanes = [one.lane for one in written if one.lane is not None]
            return sink_lanes.decide(client, self.options(batch), claim, batch, lanes)

    def numbers(self) -> list[int]:
        return sorted(map(int, committed(self.bootstrap, self.topic, 2)))
