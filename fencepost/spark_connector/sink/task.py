"""The Spark task of the sink: encodes its rows, and sends a message to the driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql.datasource import WriterCommitMessage

from fencepost.client.transactions.open_transaction import PreparedTransaction
from fencepost.protocol.compression import Compression
from fencepost.spark_connector.sink.commit import connect, partitions_of, too_large, translate_client_errors
from fencepost.spark_connector.sink.commit_marker import BatchId
from fencepost.spark_connector.sink.encode import Encoded, Encoder, SinkError
from fencepost.spark_connector.sink.lanes import Claim, PreparedLane, open_lane
from fencepost.spark_connector.sink.message import Packed, Packer
from fencepost.spark_connector.sink.options import SinkOptions

QUERY_ID, BATCH_ID, SPECULATION = "sql.streaming.queryId", "streaming.sql.batchId", "spark.speculation"


@dataclass
class Written(WriterCommitMessage):
    """The message of one task: record batches for the driver, or the task's own prepared transaction (`lane`)."""

    batch: BatchId | None
    parts: list[Packed]
    rows: int
    lane: PreparedLane | None = None
    claim: Claim | None = None


class TaskContext(Protocol):
    """The part of Spark's TaskContext that the sink uses."""

    def partitionId(self) -> int:
        """The number of the task in its stage."""

    def attemptNumber(self) -> int:
        """The number of earlier attempts at this task."""

    def getLocalProperty(self, key: str) -> str | None:
        """A property of the driver's thread. The settings of a SQL query are among them."""


@dataclass
class Task:
    """One attempt at a task. `claim` is the driver's claim to the lanes, or None without twoPhase."""

    options: SinkOptions
    columns: Mapping[str, int]
    claim: Claim | None
    context: TaskContext

    def run(self, batches: Iterable[Any]) -> Written:
        """Write the rows. Raises SinkError."""
        self._refuse_speculation()
        batch = self._batch()
        if self.claim is not None and batch is not None and self.claim.has(batch):
            return Written(batch, [], 0, claim=self.claim)  # the driver finds the commit marker and writes nothing
        with ExitStack() as stack:
            encoder = Encoder(
                self.columns,
                self.options.topic,
                self.options.producer_config,
                self._counts(stack),
                lambda: int(time.time() * 1000),
                self.context.partitionId(),
            )
            encoded = _encoded(encoder, batches)
            with translate_client_errors(self.options):
                if self.claim is None:
                    parts = self._within_limit(encoded)
                    return Written(batch, parts, encoder.rows)
                lane = self._prepare(encoded)
                return Written(batch, [], encoder.rows, lane, self.claim)

    def _refuse_speculation(self) -> None:
        if (self.context.getLocalProperty(SPECULATION) or "").lower() == "true":
            raise SinkError(
                "spark.speculation is on: Spark may then pass on the output of a task twice or not at all"
                " (SPARK-56564). Set spark.speculation to false for queries that write to fencepost"
            )

    def _batch(self) -> BatchId | None:
        """The batch that the options of a batch write name; None if they name none."""
        if self.options.query_id is not None and self.options.batch_id is not None:
            return BatchId(self.options.query_id, self.options.batch_id)
        return None

    def _counts(self, stack: ExitStack) -> Callable[[str], int]:
        """A function that counts a topic's partitions. It opens a client on first use and remembers the counts."""
        opened: list[Any] = []
        known: dict[str, int] = {}

        def count(topic: str) -> int:
            if topic not in known:
                if not opened:
                    opened.append(stack.enter_context(connect(self.options)))
                with translate_client_errors(self.options):
                    known[topic] = partitions_of(opened[0], self.options, topic)
            return known[topic]

        return count

    def _within_limit(self, encoded: Iterator[Encoded]) -> list[Packed]:
        packer = Packer(compressed=self.options.producer_config.compression_type is not Compression.NONE)
        parts: list[Packed] = []
        size = 0
        for part in encoded:
            size += len(part.data)
            if size > self.options.max_transaction_bytes:
                raise too_large(self.options, size)
            parts.append(packer.pack(part))
        return parts

    def _prepare(self, encoded: Iterator[Encoded]) -> PreparedLane | None:
        """Write the rows in this task's own transaction and leave it prepared. Returns None if there are no rows."""
        first = next(encoded, None)
        if first is None:
            return None
        with connect(self.options) as kafka:
            name, producer = open_lane(kafka, self.options, self.context.partitionId(), self.context.attemptNumber())
            with producer:
                try:
                    with producer.transaction() as txn:
                        txn.send_batches(first.topic, first.partition, first.data)
                        for part in encoded:
                            txn.send_batches(part.topic, part.partition, part.data)
                        prepared: PreparedTransaction = txn.prepare()
                        raise _LeftPrepared
                except _LeftPrepared:
                    return PreparedLane(name, str(prepared))


class StreamTask(Task):
    """A task of a streaming query. Its batch is in Spark's local properties."""

    def _batch(self) -> BatchId | None:
        query_id = self.context.getLocalProperty(QUERY_ID)
        batch_id = self.context.getLocalProperty(BATCH_ID)
        if not query_id or not batch_id:
            raise SinkError(f"Spark passes no {QUERY_ID} or no {BATCH_ID} to tasks: use Spark 4")
        return BatchId(query_id, int(batch_id))


class _LeftPrepared(Exception):
    """Leaves the block of a transaction without ending the prepared transaction."""


def _encoded(encoder: Encoder, batches: Iterable[Any]) -> Iterator[Encoded]:
    for batch in batches:
        yield from encoder.add(batch)
    yield from encoder.finish()
