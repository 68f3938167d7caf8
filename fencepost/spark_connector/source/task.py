"""The Spark task of the source: reads one planned range of offsets into Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import InputPartition

from fencepost.spark_connector.network.cluster import Cluster
from fencepost.spark_connector.source.options import SourceOptions
from fencepost.spark_connector.source.planner import fetch_settings
from fencepost.spark_connector.source.ranges import OffsetRange
from fencepost.spark_connector.source.reader import FetchSettings, RangeReader
from fencepost.spark_connector.source.store_settings import StoreSettings
from fencepost.spark_connector.worker.reused_worker import WORKER


class RangePartition(InputPartition):
    """The range of one task, as Spark passes it to the task."""

    def __init__(self, work: OffsetRange) -> None:
        super().__init__(work)

    def __repr__(self) -> str:
        return f"{self.value.tp}[{self.value.start}:{self.value.stop}]"


def read_range(options: SourceOptions, partition: InputPartition) -> Iterator[Any]:
    """The range's visible records as Arrow batches; none for Spark's empty placeholder. Runs in a task."""
    if not isinstance(partition, RangePartition):
        return
    WORKER.settle()
    work: OffsetRange = partition.value
    if options.stores is not None:
        yield from _read_direct(options.stores, work, fetch_settings(options))
        return
    leaders = {work.tp: work.leader} if work.leader is not None else {}
    cluster = Cluster(options.connection, leaders)
    try:
        yield from RangeReader(cluster, work.tp, work.start, work.stop, fetch_settings(options)).arrow_batches()
    finally:
        cluster.close()


def _read_direct(settings: StoreSettings, work: OffsetRange, wanted: FetchSettings) -> Iterator[Any]:
    from fencepost.spark_connector.source.direct_reader import DirectReader
    from fencepost.spark_connector.source.store_cluster import StoreCluster

    stores = StoreCluster(settings)
    try:
        yield from DirectReader(stores, work, wanted).arrow_batches()
    finally:
        stores.close()
