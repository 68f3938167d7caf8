"""Ready-made Spark pipelines: exactly-once ETL between topics, export to Parquet and tables, and an audit of both."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.spark_pipelines.auditing.findings import AuditReport as AuditReport
    from fencepost.spark_pipelines.auditing.findings import PartitionReport as PartitionReport
    from fencepost.spark_pipelines.auditing.run import audit as audit
    from fencepost.spark_pipelines.auditing.run import batches as batches
    from fencepost.spark_pipelines.errors import MissingPartError as MissingPartError
    from fencepost.spark_pipelines.errors import PipelineError as PipelineError
    from fencepost.spark_pipelines.etl_query import etl as etl
    from fencepost.spark_pipelines.export_store import Manifest as Manifest
    from fencepost.spark_pipelines.export_store import manifests as manifests
    from fencepost.spark_pipelines.exporting import export as export
    from fencepost.spark_pipelines.exporting import read_export as read_export
    from fencepost.spark_pipelines.session import need_spark as need_spark
    from fencepost.spark_pipelines.session import spark_session as spark_session
    from fencepost.spark_pipelines.shape import Shape as Shape
    from fencepost.spark_pipelines.tables.compare import TableReport as TableReport
    from fencepost.spark_pipelines.tables.compare import audit_table as audit_table
    from fencepost.spark_pipelines.tables.delta import delta_table as delta_table
    from fencepost.spark_pipelines.tables.iceberg import iceberg_table as iceberg_table
    from fencepost.spark_pipelines.tables.spark import append_exactly_once as append_exactly_once
    from fencepost.spark_pipelines.tables.spark import read_table as read_table
    from fencepost.spark_pipelines.tables.table import Table as Table

_PLACES = {
    "AuditReport": "auditing.findings",
    "Manifest": "export_store",
    "MissingPartError": "errors",
    "PartitionReport": "auditing.findings",
    "PipelineError": "errors",
    "Shape": "shape",
    "Table": "tables.table",
    "TableReport": "tables.compare",
    "append_exactly_once": "tables.spark",
    "audit": "auditing.run",
    "audit_table": "tables.compare",
    "batches": "auditing.run",
    "delta_table": "tables.delta",
    "etl": "etl_query",
    "export": "exporting",
    "iceberg_table": "tables.iceberg",
    "manifests": "export_store",
    "need_spark": "session",
    "read_export": "exporting",
    "read_table": "tables.spark",
    "spark_session": "session",
}

__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    """Import a public name on first use. The audit of a directory needs no module of the export."""
    from importlib import import_module

    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
