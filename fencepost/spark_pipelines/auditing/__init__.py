"""The exactly-once audit: checks a log's batches and markers, and reports the result as text and HTML."""

from fencepost.spark_pipelines.auditing.findings import AuditReport, Fault, Hole, OpenTransaction, PartitionReport, Rule
from fencepost.spark_pipelines.auditing.run import audit, batches

__all__ = ["AuditReport", "Fault", "Hole", "OpenTransaction", "PartitionReport", "Rule", "audit", "batches"]
