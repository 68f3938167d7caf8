"""The totals topic as a table of Delta Lake: every committed record once, and the last of each carrier."""

from typing import TYPE_CHECKING, Any

from examples.flights.dataset import TOTALS_TOPIC

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = ("flights", "departed", "delay_minutes")
_NUMBERS = ", ".join(
    f"cast(from_json(cast(value AS string), 'ARRAY<DOUBLE>')[{index}] AS bigint) AS {name}"
    for index, name in enumerate(COLUMNS)
)
SELECT = f"partition, offset, cast(key AS string) AS carrier, {_NUMBERS}"


def write_table(session: "SparkSession", bootstrap: str, place: str) -> dict[str, Any]:
    """Export the topic, compare the table with it row by row, and read each carrier's last total from the table."""
    from pyspark.sql import functions as F

    from fencepost.spark_pipelines import Shape, audit_table, delta_table, export, read_table

    kafka, shape, table = {"bootstrap.servers": bootstrap}, Shape(select=SELECT), delta_table(place)
    commits = sum(1 for _ in export(session, [TOTALS_TOPIC], table, kafka=kafka, shape=shape, batch_records=200))
    report = audit_table(session, [TOTALS_TOPIC], table, kafka=kafka, shape=shape)
    last = F.max_by(F.array(*COLUMNS), "offset").alias("total")  # a carrier's records are in one partition
    totals = read_table(session, table).groupBy("carrier").agg(last).collect()
    return {
        "rows": report.rows_in_table,
        "commits": commits,
        "missing": report.missing,
        "extra": report.extra,
        "totals": {row.carrier: row.total for row in totals},
    }
