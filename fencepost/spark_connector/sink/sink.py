"""The writers of the data source "fencepost", for batches and streams.

How Spark 4.2 and 4.3 use them: a planning process makes a writer for every batch and pickles it. Tasks unpickle it and
call `write`. Spark calls `commit` of a batch write on a pickled copy, and of a stream on a new writer in a new process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from fencepost.spark_connector.option_values import OptionError
from fencepost.spark_connector.sink import lanes as sink_lanes
from fencepost.spark_connector.sink.commit import commit_batch, connect, require_topic, translate_client_errors
from fencepost.spark_connector.sink.commit_marker import BatchId
from fencepost.spark_connector.sink.encode import SinkError, sink_columns
from fencepost.spark_connector.sink.lanes import Claim
from fencepost.spark_connector.sink.options import SinkOptions, parse_sink_options
from fencepost.spark_connector.sink.task import StreamTask, Task, Written
from fencepost.spark_connector.worker.delayed_ack import QuickAckOnUnpickle

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter
    except ImportError:

        class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
            """Spark 4.0 has no such class, and sends Arrow batches to every DataSourceArrowWriter."""


Messages = Sequence[WriterCommitMessage | None]


class _Writer(QuickAckOnUnpickle):
    """The common part of both writers. Spark pickles a writer only for the tasks: then it finds its topic."""

    def __init__(self, options: SinkOptions, columns: Mapping[str, int]) -> None:
        self._options = options
        self._columns = columns
        self._claim: Claim | None = None
        self._found = False
        """Whether the topic is there and, with twoPhase, claimed: both once, before the first task."""

    def __getstate__(self) -> dict[str, Any]:
        if not self._found and (self._options.two_phase or self._options.topic is not None):
            with translate_client_errors(self._options), connect(self._options) as kafka:
                if self._options.two_phase:
                    self._claim = sink_lanes.claim(kafka, self._options)
                else:
                    require_topic(kafka, self._options)
            self._found = True
        return self.__dict__

    def _context(self) -> Any:
        context = TaskContext.get()
        if context is None:
            raise SinkError("only Spark's tasks can write rows")
        return context

    def _commit(self, messages: Messages) -> None:
        written = [one for one in messages if isinstance(one, Written)]
        if len(written) != len(messages):
            raise SinkError(f"{len(messages) - len(written)} of {len(messages)} tasks sent no message")
        if not written:
            return  # a frame without partitions: there are no records, and no commit marker is needed
        batch = _one_of({one.batch for one in written}, "batches")
        if not self._options.two_phase:
            commit_batch(self._options, [part for one in written for part in one.parts], batch)
            return
        claim = _one_of({one.claim for one in written}, "claims")
        assert claim is not None, "a task with twoPhase has the planner's claim"
        lanes = [one.lane for one in written if one.lane is not None]
        with connect(self._options) as kafka:
            sink_lanes.decide(kafka, self._options, claim, batch, lanes)
            if sink_lanes.open_lanes(kafka, self._options):
                # Abandoned task attempts left open transactions. Readers would wait for them.
                sink_lanes.claim(kafka, self._options)

    def _abort(self, messages: Messages) -> None:
        """The batch failed. A transaction of the driver is aborted already; a new claim ends the open lanes.

        If the messages show that another driver has claimed since, the lanes belong to that driver.
        """
        if self._options.two_phase:
            claims = [one.claim for one in messages if isinstance(one, Written) and one.claim is not None]
            with connect(self._options) as kafka:
                if not claims or sink_lanes.is_owner(kafka, self._options, claims[0]):
                    sink_lanes.claim(kafka, self._options)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes each micro-batch in one transaction."""

    def write(self, iterator: Iterator[Any]) -> Written:
        """The message for the rows of one partition. Runs in a task."""
        return StreamTask(self._options, self._columns, self._claim, self._context()).run(iterator)

    def commit(self, messages: Messages, batchId: int) -> None:
        """Write the tasks' records. If Spark repeats a batch, the commit marker prevents a second write."""
        wrong = [one.batch for one in messages if isinstance(one, Written) and not _is_batch(one.batch, batchId)]
        if wrong:
            raise SinkError(f"the tasks wrote batch {wrong[0]}, but batch {batchId} is to be committed")
        self._commit(messages)

    def abort(self, messages: Messages, batchId: int) -> None:
        """End the batch's open transactions. A committed batch stays, and its commit marker shows that later."""
        self._abort(messages)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writes a DataFrame in one transaction."""

    def write(self, iterator: Iterator[Any]) -> Written:
        """The message for the rows of one partition. Runs in a task."""
        return Task(self._options, self._columns, self._claim, self._context()).run(iterator)

    def commit(self, messages: Messages) -> None:
        self._commit(messages)

    def abort(self, messages: Messages) -> None:
        """End the open transactions of the failed write."""
        self._abort(messages)


def stream_writer(options: Mapping[str, str], schema: StructType) -> StreamWriter:
    """The writer of a streaming query. Raises OptionError for invalid options and columns."""
    parsed = parse_sink_options(options, streaming=True)
    return StreamWriter(parsed, sink_columns(_columns(schema), parsed.topic))


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """The writer of `df.write`. Raises OptionError for invalid options, columns and modes."""
    if overwrite:
        raise OptionError("a topic cannot be overwritten: use mode('append')")
    parsed = parse_sink_options(options, streaming=False)
    return BatchWriter(parsed, sink_columns(_columns(schema), parsed.topic))


def _columns(schema: StructType) -> list[tuple[str, str]]:
    return [(entry.name, entry.dataType.simpleString()) for entry in schema.fields]


def _is_batch(batch: BatchId | None, number: int) -> bool:
    return batch is not None and batch.batch_id == number


def _one_of(found: Iterable[Any], what: str) -> Any:
    values = list(found)
    if len(values) != 1:
        raise SinkError(f"the tasks' messages name {len(values)} {what}: {values}")
    return values[0]
