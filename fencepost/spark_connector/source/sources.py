"""Whom a plan asks: brokers, or the stores of a cluster."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from fencepost.protocol.topics import IsolationLevel, TopicPartition
from fencepost.spark_connector.network.cluster import Cluster, OpenTransaction
from fencepost.spark_connector.offsets import Offsets
from fencepost.spark_connector.source.options import SourceOptions
from fencepost.spark_connector.source.ranges import OffsetRange
from fencepost.spark_connector.source.reader import Fetches, FetchSettings, RangeReader


class Source(Protocol):
    """What a plan asks, of brokers (`Cluster`) or of the stores (`StoreCluster`)."""

    topic_ids: dict[str, bytes]

    def topics(self, names: Collection[str] | None) -> dict[str, tuple[int, ...]]: ...
    def list_offsets(self, times_ms: Offsets, isolation: IsolationLevel) -> Offsets: ...
    def open_transaction(self, tp: TopicPartition) -> OpenTransaction | None: ...

    def located(self, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """The ranges, with where a task finds them."""

    def reader(
        self, tp: TopicPartition, start: int, stop: int, settings: FetchSettings, *, ahead: bool = True
    ) -> Fetches: ...

    def close(self) -> None: ...


def open_source(options: SourceOptions) -> Source:
    """The brokers or the stores that the options name; nothing is connected yet."""
    if options.stores is None:
        return Brokers(options.connection)
    from fencepost.spark_connector.source.store_cluster import StoreCluster

    return StoreCluster(options.stores)


class Brokers(Cluster):
    """`Cluster` as the source of a plan."""

    def located(self, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """The ranges with their leaders, which a plan's other requests have found."""
        leaders = self.leaders_of(found.tp for found in ranges)
        return [found._replace(leader=leaders.get(found.tp)) for found in ranges]

    def reader(
        self, tp: TopicPartition, start: int, stop: int, settings: FetchSettings, *, ahead: bool = True
    ) -> RangeReader:
        return RangeReader(self, tp, start, stop, settings, ahead=ahead)
