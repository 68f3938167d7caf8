"""The metrics of upkeep that failed."""

from collections.abc import Iterator
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from fencepost.broker.ports import HasGroups, HasLogs, HasTransactions

EXPIRY = "expiry"


class _Broker(HasGroups, HasLogs, HasTransactions, Protocol):
    """The parts with upkeep."""


def upkeep_metrics(node: _Broker) -> Iterator[Metric]:
    """The failures by work, and the logs whose last run of some work failed."""
    count = CounterMetricFamily("fencepost_upkeep_failures", "Failures of background work", labels=("work",))
    for work, failures in sorted(node.logs.upkeep.counts.items()):
        count.add_metric((work,), failures)
    expiry = node.groups.runtime.failed_expiries + node.transactions.runtime.failed_expiries
    count.add_metric((EXPIRY,), expiry)
    yield count
    failing = GaugeMetricFamily(
        "fencepost_upkeep_failing",
        "1 for each partition whose last run of some background work failed",
        labels=("topic", "partition", "work"),
    )
    for log in node.logs.logs():
        for work in log.failed_upkeep:
            failing.add_metric((log.tp.topic, str(log.tp.partition), work), 1)
    yield failing
