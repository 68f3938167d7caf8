"""Prometheus metrics of transactions: states, ends, durations, rejections, long and hanging transactions."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from fencepost.broker.ports import Broker


def transaction_metrics(node: Broker, producer_ids: int) -> Iterator[Metric]:
    """All families about transactions, collected for each scrape. `producer_ids` have state on some partition."""
    transactions = node.transactions
    states = GaugeMetricFamily("fencepost_transactions", "Transactional ids by state", labels=("state",))
    for state, count in transactions.ids.counts.items():
        states.add_metric((state,), count)
    yield states
    yield from _ends(node)
    yield from _refusals(node)
    started_ms = transactions.ids.oldest_open_started_ms
    age = 0.0 if started_ms is None else max(0, node.clock.now_ms() - started_ms) / 1000
    for name, text, value in (
        ("oldest_open_transaction_seconds", "Age of the oldest open one", age),
        ("transactional_ids", "Transactional ids", len(transactions.ids)),
        ("producer_ids", "Distinct producer ids with state on a partition", producer_ids),
        ("transactions_completing", "Decided transactions that still lack markers", transactions.completing),
        ("transaction_history", "Ids whose changes and refusals are kept for explanations", len(transactions.history)),
    ):
        yield GaugeMetricFamily(f"fencepost_{name}", text, value=value)
    yield GaugeMetricFamily(
        "fencepost_hanging_transactions",
        "Hanging transactions: open, and no coordinator will end them",
        value=len(node.hanging.hanging),
    )
    yield CounterMetricFamily(
        "fencepost_hanging_transactions_aborted",
        "Hanging transactions aborted by the broker",
        value=node.hanging.aborted,
    )
    yield CounterMetricFamily("fencepost_markers_written", "Markers written", value=node.metrics.markers_written)


def _ends(node: Broker) -> Iterator[Metric]:
    tallies = node.transactions.tallies
    ended = CounterMetricFamily(
        "fencepost_transactions_ended", "Transactions ended since the start", labels=("result", "reason")
    )
    for labels, count in sorted(tallies.ended.items()):
        ended.add_metric(labels, count)
    yield ended
    durations = HistogramMetricFamily(
        "fencepost_transaction_duration_seconds",
        "From a transaction's first partition to its last marker",
        labels=("result",),
    )
    for commit, histogram in tallies.durations.items():
        result = ("commit" if commit else "abort",)
        durations.add_metric(result, histogram.buckets(), histogram.sum_seconds)
    yield durations


def _refusals(node: Broker) -> Iterator[Metric]:
    history = node.transactions.history
    fenced = CounterMetricFamily(
        "fencepost_producer_fenced", "Requests rejected for a stale producer id or epoch", labels=("reason",)
    )
    for reason, count in sorted(history.fenced_by.items(), key=lambda pair: pair[0].value):
        fenced.add_metric((reason.value,), count)
    yield fenced
    refused = CounterMetricFamily(
        "fencepost_transaction_requests_refused", "Requests rejected, by code and reason", labels=("code", "reason")
    )
    for (code, reason), count in sorted(history.refused_by.items(), key=lambda pair: (pair[0][0], pair[0][1].value)):
        refused.add_metric((code.name, reason.value), count)
    yield refused
