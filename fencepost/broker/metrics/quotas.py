"""Client quotas as Prometheus metrics: what each client uses, and which clients are throttled."""

from fencepost.broker.metrics.tables import Family, labels, table_text
from fencepost.broker.ports import Broker
from fencepost.broker.security.quotas import QuotaType, Usage, quota_ms

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


async def quota_text(node: Broker) -> list[bytes]:
    """The metrics of each quota that some client has."""
    quotas = node.quotas
    if quotas is None:
        return []
    now_ms = quota_ms(node.clock)
    pieces: list[bytes] = []
    for kind, name in _KINDS.items():
        prefix = f"kafka_server_{name}"
        queue = Family(f"{prefix}_queue_size", "Connections that are throttled now")
        pieces += await table_text([queue], [quotas.muted[kind]], lambda muted: ("", [muted]))
        usages = list(quotas.usages(kind))
        if not usages:
            continue
        rate, text = _RATES[kind]
        families = [
            Family(f"{prefix}_{rate}", text),
            Family(f"{prefix}_throttle_time", "Mean of the latest throttle times, in ms"),
        ]
        if kind is QuotaType.CONTROLLER_MUTATION:
            families.append(Family(f"{prefix}_tokens", "Partitions that a client may create or delete now"))

        def row(usage: Usage) -> tuple[str, tuple[float, ...]]:
            of = labels(user=usage.applies.user, client_id=usage.applies.client_id)
            values = usage.rate.per_second(now_ms), usage.throttle_time_ms(now_ms)
            return of, (*values, usage.bucket.tokens(usage.limit, now_ms))

        pieces += await table_text(families, usages, row)
    return pieces
