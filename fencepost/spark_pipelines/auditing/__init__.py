"""The exactly-once audit: what a log's batches and markers prove, with a report and a picture."""

from fencepost.spark_pipelines.auditing.findings import AuditReport, Fault, Hole, OpenTransaction, PartitionReport, Rule
from fencepost.spark_pipelines.auditing.run import audit, batches

__all__ = ["AuditReport", "Fault", "Hole", "OpenTransaction", "PartitionReport", "Rule", "audit", "batches"]
