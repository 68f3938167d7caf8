"""A cluster as its stores have it: topics, offsets and transactions from the database, without a broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import METADATA_TOPIC, IsolationLevel, TopicPartition
from fencepost.spark_connector.network.cluster import OpenTransaction
from fencepost.spark_connector.network.wire import PartitionGone
from fencepost.spark_connector.offsets import EARLIEST, LATEST, Offsets
from fencepost.spark_connector.source.ranges import OffsetRange, Stored
from fencepost.spark_connector.source.store_settings import StoreSettings

if TYPE_CHECKING:
    from fencepost.broker.cluster.database.postgres import PostgresEngine
    from fencepost.broker.cluster.objects.row_objects import RowObjects
    from fencepost.broker.cluster.verify.cut import Cut, MetadataView
    from fencepost.spark_connector.source.direct_reader import DirectReader
    from fencepost.spark_connector.source.reader import FetchSettings

T = TypeVar("T")

_NOTHING_FOUND = -1
_PAUSE_SECONDS = 0.5


class StoreCluster:
    """The database and the objects of one cluster. It answers what `network.cluster.Cluster` asks brokers.

    Every call sees the stores at one instant, so `list_offsets` gives no transaction over several partitions in part.
    While a store is unavailable, a call is repeated for `api_timeout_ms`; then it raises StoreUnavailable.
    """

    def __init__(self, settings: StoreSettings) -> None:
        self.settings = settings
        self.topic_ids: dict[str, bytes] = {}
        """The topic ids by name, of the topics that `topics` found last."""
        self._metadata: MetadataView | None = None
        self._opened: tuple[PostgresEngine, RowObjects] | None = None

    def close(self) -> None:
        if self._opened is not None:
            self._opened[0].close()

    def with_retries(self, attempt: Callable[[], T]) -> T:
        """Call `attempt` again while a store is unavailable, until the time for one operation ends."""
        from fencepost.broker.cluster.engine import StoreUnavailable

        deadline = time.monotonic() + self.settings.api_timeout_ms / 1000
        while True:
            try:
                return attempt()
            except StoreUnavailable:
                if time.monotonic() + _PAUSE_SECONDS > deadline:
                    raise
            time.sleep(_PAUSE_SECONDS)

    def stores(self) -> tuple[PostgresEngine, RowObjects]:
        """The database and the objects. Raises StoreUnavailable, SchemaMismatch, and ValueError for a wrong address or
        a database that no broker has used.
        """
        if self._opened is None:
            from fencepost.broker.cluster.database.postgres import PostgresEngine
            from fencepost.broker.cluster.objects.claims import ClaimPool
            from fencepost.broker.cluster.objects.object_store import open_objects
            from fencepost.broker.cluster.objects.row_objects import RowObjects

            engine = PostgresEngine(self.settings.database)
            cluster_id = engine.known_cluster_id()
            if cluster_id is None:
                engine.close()
                raise ValueError(f"{engine.place}: no broker has used this database yet, so there is nothing to read")
            self._opened = engine, RowObjects(open_objects(self.settings.objects, cluster_id), ClaimPool(engine))
        return self._opened

    def topics(self, names: Collection[str] | None) -> dict[str, tuple[int, ...]]:
        """The partitions of the named topics, or of all topics that are not internal. Unknown topics are left out."""

        def attempt() -> dict[str, tuple[int, ...]]:
            with self._cut() as cut:
                chosen = [
                    topic
                    for name, topic in cut.topics.items()
                    if name != METADATA_TOPIC and (not topic.internal if names is None else name in names)
                ]
            self.topic_ids.update({topic.name: topic.topic_id for topic in chosen})
            return {topic.name: tuple(range(topic.partitions)) for topic in chosen}

        return self.with_retries(attempt)

    def list_offsets(
        self, times_ms: Mapping[TopicPartition, int], isolation: IsolationLevel
    ) -> dict[TopicPartition, int]:
        """Offsets by time (ms since 1970), EARLIEST or LATEST; -1 if no record has that time or a later one.

        With READ_COMMITTED, LATEST is the last stable offset, and the search by time ends there. It is lower where a
        transaction that committed is behind an open one in another of these partitions: see `Cut.stable_ends`.
        """
        return self.with_retries(lambda: self._list_offsets(times_ms, isolation)) if times_ms else {}

    def open_transaction(self, tp: TopicPartition) -> OpenTransaction | None:
        """The oldest open transaction of a partition; None if there is none."""

        def attempt() -> OpenTransaction | None:
            with self._cut() as cut:
                log = cut.log_of(tp)
                found = None if log is None else cut.fold([log])[log].open
            return None if found is None else OpenTransaction(found.producer_id, found.first_offset)

        return self.with_retries(attempt)

    def located(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """The ranges with what their tasks need to know. Raises PartitionGone."""
        wanted = list(ranges)

        def attempt() -> list[OffsetRange]:
            with self._cut() as cut:
                logs = {one.tp: self._log(cut, one.tp) for one in wanted}
                folded = cut.fold(list(logs.values()))
            found = []
            for one in wanted:
                aborted = tuple(
                    (entry.producer_id, entry.first_offset)
                    for entry in folded[logs[one.tp]].aborted
                    if entry.last_offset >= one.start and entry.first_offset < one.stop
                )
                found.append(one._replace(stored=Stored(logs[one.tp], aborted)))
            return found

        return self.with_retries(attempt)

    def reader(
        self, tp: TopicPartition, start: int, stop: int, settings: FetchSettings, *, ahead: bool = True
    ) -> DirectReader:
        """A reader of a range for the driver's own use."""
        from fencepost.spark_connector.source.direct_reader import DirectReader

        (found,) = self.located([OffsetRange(tp, start, stop)])
        return DirectReader(self, found, settings, ahead=ahead)

    @contextmanager
    def _cut(self) -> Iterator[Cut]:
        from fencepost.broker.cluster.verify.cut import MetadataView, cut_of

        if self._metadata is None:
            self._metadata = MetadataView()
        engine, row_objects = self.stores()
        with cut_of(engine, row_objects, self._metadata) as cut:
            yield cut

    def _log(self, cut: Cut, tp: TopicPartition) -> int:
        log = cut.log_of(tp)
        if log is None:
            raise PartitionGone(f"partition {tp} does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return log

    def _list_offsets(self, times_ms: Mapping[TopicPartition, int], isolation: IsolationLevel) -> Offsets:
        with self._cut() as cut:
            logs = {tp: self._log(cut, tp) for tp in times_ms}
            ends = {log: cut.bounds(log)[1] for log in logs.values()}
            later = [logs[tp] for tp, time_ms in times_ms.items() if time_ms != EARLIEST]
            if isolation is IsolationLevel.READ_COMMITTED and later:
                ends |= cut.stable_ends(later)
            found: Offsets = {}
            for tp, time_ms in times_ms.items():
                log = logs[tp]
                if time_ms == EARLIEST:
                    found[tp] = cut.bounds(log)[0]
                elif time_ms == LATEST:
                    found[tp] = ends[log]
                else:
                    offset = cut.first_at(log, time_ms, ends[log])
                    found[tp] = _NOTHING_FOUND if offset is None else offset
        return found
