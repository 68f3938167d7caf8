"""The owners of open transactions, as transaction coordinators know them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from fencepost.protocol.topics import TopicPartition
from fencepost.spark_pipelines.auditing.findings import PartitionReport, Rule


@dataclass(frozen=True)
class Owner:
    """The transaction coordinator's entry for a producer id: its transactional id, and the transaction's state."""

    transactional_id: str
    state: str
    epoch: int
    partitions: Collection[TopicPartition]
    """The partitions of its open transaction; empty if none is open."""


def with_owners(report: PartitionReport, owners: Mapping[int, Owner]) -> None:
    """Add the owner of each open transaction. If its coordinator has ended it, its marker is missing: a fault."""
    tp = TopicPartition(report.topic, report.partition)
    named = []
    for one in report.open:
        owner = owners.get(one.producer_id)
        if owner is None:
            named.append(replace(one, why="no transaction coordinator knows this producer id"))
            continue
        why = f"transactional.id {owner.transactional_id}, {owner.state}, epoch {owner.epoch}"
        named.append(replace(one, why=why))
        if tp not in owner.partitions and owner.epoch >= one.producer_epoch:
            what = f"the transaction of producer {one.producer_id} has ended ({why}), but its marker is missing"
            report.fault(Rule.CLOSED, one.first_offset, what)
    report.open[:] = named
