"""Client quotas as Prometheus metrics: what each client uses, and which clients are throttled."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from prometheus_client.core import GaugeMetricFamily, Metric

from fencepost.broker.ports import HasClock, HasQuotas
from fencepost.broker.security.quotas import QuotaType, quota_ms

if TYPE_CHECKING:
    from fencepost.broker.security.quotas import Usage

_LABELS = ("user", "client_id")
_KINDS = {
    QuotaType.PRODUCE: "produce",
    QuotaType.FETCH: "fetch",
    QuotaType.REQUEST: "request",
    QuotaType.CONTROLLER_MUTATION: "controllermutation",
}
"""Kafka's types of these metrics, in lower case."""
_RATES = {
    QuotaType.PRODUCE: ("byte_rate", "Bytes per second of a client with a quota"),
    QuotaType.FETCH: ("byte_rate", "Bytes per second of a client with a quota"),
    QuotaType.REQUEST: ("request_time", "Percent of the event loop that a client with a quota uses"),
    QuotaType.CONTROLLER_MUTATION: ("mutation_rate", "Partitions per second that a client creates and deletes"),
}


class _Scraped(HasClock, HasQuotas, Protocol):
    """What these metrics read."""


def quota_metrics(node: _Scraped) -> Iterator[Metric]:
    """The metrics of each quota that some client has."""
    quotas = node.quotas
    if quotas is None:
        return
    now_ms = quota_ms(node.clock)
    for kind, name in _KINDS.items():
        prefix = f"kafka_server_{name}"
        yield GaugeMetricFamily(f"{prefix}_queue_size", "Connections that are throttled now", value=quotas.muted[kind])
        usages = list(quotas.usages(kind))
        if not usages:
            continue
        rate, text = _RATES[kind]
        columns: list[tuple[str, str, Callable[[Usage], float]]] = [
            (rate, text, lambda usage: usage.rate.per_second(now_ms)),
            ("throttle_time", "Mean of the latest throttle times, in ms", lambda usage: usage.throttle_time_ms(now_ms)),
        ]
        if kind is QuotaType.CONTROLLER_MUTATION:
            left = "Partitions that a client may create or delete now"
            columns.append(("tokens", left, lambda usage: usage.bucket.tokens(usage.limit, now_ms)))
        for column, help_text, value in columns:
            family = GaugeMetricFamily(f"{prefix}_{column}", help_text, labels=_LABELS)
            for usage in usages:
                family.add_metric((usage.applies.user, usage.applies.client_id), value(usage))
            yield family
