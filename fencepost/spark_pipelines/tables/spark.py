"""Rows between DataFrames and tables: Spark's tasks write and read the files themselves, in Python."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fencepost.spark_connector.sink.function import query_id_of
from fencepost.spark_pipelines.errors import PipelineError
from fencepost.spark_pipelines.tables.table import Contents, NewFile, Table, number_of

if TYPE_CHECKING:
    import pyarrow as pa

_READ_TASKS_MAX = 200


def stage(frame: Any, table: Table) -> list[NewFile]:
    """Write a DataFrame's rows into files of the table, without a commit. Raises PipelineError and Spark's errors."""
    from fencepost.spark_pipelines.tables.write_files import FILE_COLUMNS

    schema = frame.limit(0).toArrow().schema  # no job: Spark plans a limit of 0 as no rows
    work, names = table.write_task(schema), schema.names

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from work(batch.rename_columns(names) for batch in batches)

    plain = frame.toDF(*(f"column{number}" for number in range(len(names))))  # mapInArrow takes no names with dots
    rows = plain.mapInArrow(write, FILE_COLUMNS).collect()
    return [NewFile(row.path, row.size, row.rows, row.partition or {}, row.stats) for row in rows]


def read_table(spark: Any, table: Table) -> Any:
    """The table's rows of this moment as a DataFrame. Spark needs no package of Delta Lake or Iceberg for it.

    Raises PipelineError if the table uses a feature that is not read here.
    """
    return frame_of(spark, table.contents())


def frame_of(spark: Any, contents: Contents) -> Any:
    """The rows of one version of a table as a DataFrame."""
    from pyspark.sql.pandas.types import from_arrow_schema

    read = contents.read

    def read_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for item in batch.column(0):
                yield from read(pickle.loads(item.as_py()))

    rows = [(pickle.dumps(item),) for item in contents.items]
    columns = from_arrow_schema(contents.schema)
    if not rows:
        return spark.createDataFrame([], columns)
    files = spark.createDataFrame(rows, "file binary").repartition(min(len(rows), _READ_TASKS_MAX))
    return files.mapInArrow(read_all, columns)


def append_exactly_once(
    frame: Any,
    batch_id: int,
    table: Table,
    *,
    writer_id: str,
    query_id: str | None = None,
    first_batch: int | None = None,
) -> None:
    """Append a DataFrame to a table once for each (query, batch), even if Spark calls `foreachBatch` again.

    `writer_id` identifies this writer in the table. It must stay the same after a restart, and differ between the
    writers of a table. The table keeps the number of the batch and the query in the commit that adds the rows, so a
    lost checkpoint is noticed. `query_id` is by default Spark's id of the query, which belongs to its checkpoint; on
    Spark Connect it is required. `first_batch` allows a query to begin with this batch although the table holds no
    batch of it.

    Raises ValueError if the query's id is unknown; PipelineError if it is unknown whether the table has the batch, and
    if another writer with this id commits meanwhile.
    """
    query_id = query_id or query_id_of(frame)
    batch, query = f"fencepost/writer/{writer_id}/batch", f"fencepost/writer/{writer_id}/query"
    seen = table.marks([batch, query])
    if _is_done(table.name, writer_id, seen.get(batch), seen.get(query) == number_of(query_id), batch_id, first_batch):
        return
    depends_on = {name: seen.get(name) for name in (batch, query)}
    table.append(stage(frame, table), {batch: batch_id, query: number_of(query_id)}, depends_on)


def _is_done(
    table: str, writer: str, last: int | None, same_query: bool, batch_id: int, first_batch: int | None
) -> bool:
    """Whether the table has this batch. Raises PipelineError if that is unknown."""
    if last is None:
        if batch_id in (0, first_batch):
            return False
        raise PipelineError(
            f"{table} has no batch of writer {writer!r}, although this is batch {batch_id}: the table was created"
            " again, or the writer had another id. If its rows are not in the table, start once with"
            f" first_batch={batch_id}"
        )
    if not same_query:
        raise PipelineError(
            f"{table} has batch {last} of writer {writer!r} from another query, and this is batch {batch_id}: its"
            " checkpoint was deleted, or two queries share the writer_id. Restore the checkpoint, or give this query"
            " another writer_id, which writes all its rows again"
        )
    if batch_id < last:
        raise PipelineError(
            f"{table} has batch {last} of writer {writer!r} already, and this is batch {batch_id}: the checkpoint is an"
            " old copy. Restore the newer one"
        )
    if batch_id > last + 1 and batch_id != first_batch:
        raise PipelineError(
            f"{table} has batch {last} of writer {writer!r}, and this is batch {batch_id}: the batches between them are"
            " missing. Was the table rolled back, or restored from a backup? To go on without them, start once with"
            f" first_batch={batch_id}"
        )
    return batch_id == last
