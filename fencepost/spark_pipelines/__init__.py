"""Pipelines on Spark that ship: exactly-once ETL between topics, export to Parquet, and an audit that proves it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.spark_pipelines.auditing.findings import AuditReport, PartitionReport
    from fencepost.spark_pipelines.auditing.run import audit, batches
    from fencepost.spark_pipelines.errors import MissingPart, PipelineError
    from fencepost.spark_pipelines.etl_query import etl
    from fencepost.spark_pipelines.export_store import Manifest, manifests
    from fencepost.spark_pipelines.exporting import export, read_export
    from fencepost.spark_pipelines.session import need_spark, spark_session
    from fencepost.spark_pipelines.shape import Shape

_PLACES = {
    "AuditReport": "auditing.findings",
    "Manifest": "export_store",
    "MissingPart": "errors",
    "PartitionReport": "auditing.findings",
    "PipelineError": "errors",
    "Shape": "shape",
    "audit": "auditing.run",
    "batches": "auditing.run",
    "etl": "etl_query",
    "export": "exporting",
    "manifests": "export_store",
    "need_spark": "session",
    "read_export": "exporting",
    "spark_session": "session",
}

__all__ = [
    "AuditReport",
    "Manifest",
    "MissingPart",
    "PartitionReport",
    "PipelineError",
    "Shape",
    "audit",
    "batches",
    "etl",
    "export",
    "manifests",
    "need_spark",
    "read_export",
    "spark_session",
]


def __getattr__(name: str) -> Any:
    """Loaded when asked for: the audit of a directory needs nothing of what the export needs."""
    from importlib import import_module

    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
