"""Facts that only a running cluster knows: which topics are compacted, and the owners of open transactions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from fencepost.protocol.topics import TopicPartition
from fencepost.spark_pipelines.auditing.findings import PartitionReport
from fencepost.spark_pipelines.auditing.owners import Owner, with_owners

if TYPE_CHECKING:
    from fencepost.client.admin import Admin

T = TypeVar("T")


def compacted_topics(kafka: Mapping[str, Any], topics: Collection[str]) -> set[str]:
    """The topics whose cleanup.policy contains `compact`. Raises KafkaError."""

    async def use(admin: Admin) -> set[str]:
        found = set()
        for topic in sorted(topics):
            policy = (await admin.describe_configs(topic=topic)).get("cleanup.policy")
            if policy is not None and "compact" in (policy.value or ""):
                found.add(topic)
        return found

    return _with_admin(kafka, use)


def explain_open(kafka: Mapping[str, Any], reports: Sequence[PartitionReport]) -> None:
    """Ask the coordinators for the owners of the open transactions, and add them to the reports.

    Transactions that ended after the audit's last read are reported as ended. Raises KafkaError.
    """
    open_ids = {one.producer_id for report in reports for one in report.open}
    if not open_ids:
        return

    async def use(admin: Admin) -> None:
        owners: dict[int, Owner] = {}
        for one in (await admin.describe_transactions(producer_ids=open_ids)).values():
            owners[one.producer_id] = Owner(
                one.transactional_id, one.state, one.producer_epoch, frozenset(one.partitions)
            )
        for report in reports:
            if report.open:
                await _drop_ended(admin, report)
                with_owners(report, owners)

    _with_admin(kafka, use)


async def _drop_ended(admin: Admin, report: PartitionReport) -> None:
    """Drop transactions that are no longer open. This request follows the coordinators' responses, so both agree."""
    partition = TopicPartition(report.topic, report.partition)
    producers = (await admin.describe_producers(partition))[partition]
    there = {(state.producer_id, state.transaction_start_offset) for state in producers}
    ended = [one for one in report.open if (one.producer_id, one.first_offset) not in there]
    if ended:
        report.notes.append(f"{len(ended)} of the open transactions ended while the audit ran")
        report.open[:] = [one for one in report.open if one not in ended]


def _with_admin(kafka: Mapping[str, Any], use: Callable[[Admin], Awaitable[T]]) -> T:
    import trio

    from fencepost.client import Client

    async def run() -> list[T]:
        found = []
        async with Client.from_config(dict(kafka)) as client, client.admin() as admin:
            found.append(await use(admin))
        return found

    return trio.run(run)[0]


__all__ = ["compacted_topics", "explain_open"]
