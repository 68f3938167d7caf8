"""Reads a running broker for an audit: raw batches, aborted transactions and open transactions."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from fencepost.client.errors import code_of
from fencepost.protocol.batch_header import CorruptBatch, iter_headers
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import api01_fetch
from fencepost.protocol.topics import IsolationLevel, TopicPartition
from fencepost.spark_connector.network.cluster import Cluster
from fencepost.spark_connector.network.wire import BrokerError, ConnectionSettings
from fencepost.spark_connector.offsets import EARLIEST, LATEST
from fencepost.spark_pipelines.auditing.bounds import Bounds
from fencepost.spark_pipelines.auditing.facts import Fact, damage, fact_of, indexed
from fencepost.spark_pipelines.auditing.plan import Piece, Plan, RangePiece
from fencepost.spark_pipelines.errors import PipelineError

_FETCH_BYTES = 4 << 20
_MAX_FETCH_BYTES = 1 << 30
_EMPTY_RESPONSES_MAX = 20


def plan_cluster(connection: ConnectionSettings, topics: Collection[str], pieces_per_partition: int) -> Plan:
    """The topics' partitions from their start to their high watermark, each divided into pieces.

    Raises PipelineError if a topic does not exist; BrokerError.
    """
    where = ",".join(str(address) for address in connection.bootstrap)
    plan = Plan(where)
    cluster = Cluster(connection)
    try:
        found = cluster.topics(list(topics) or None)
        absent = sorted(set(topics) - found.keys())
        if absent or not found:
            there = ", ".join(sorted(cluster.topics(None))) or "none at all"
            what = f"no topic {', '.join(absent)}" if absent else "no topic"
            raise PipelineError(f"there is {what} on {where}; there are: {there}")
        partitions = [TopicPartition(name, number) for name in sorted(found) for number in found[name]]
        # In this order, the last stable offset of the batches below `end` lies between the two responses.
        before = cluster.list_offsets(dict.fromkeys(partitions, LATEST), IsolationLevel.READ_COMMITTED)
        end = cluster.list_offsets(dict.fromkeys(partitions, LATEST), IsolationLevel.READ_UNCOMMITTED)
        after = cluster.list_offsets(dict.fromkeys(partitions, LATEST), IsolationLevel.READ_COMMITTED)
        start = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST), IsolationLevel.READ_UNCOMMITTED)
    finally:
        cluster.close()
    for tp in partitions:
        stable = (before[tp], after[tp])
        plan.bounds[tp] = Bounds(start=start[tp], end=end[tp], stable=stable, listed=before[tp])
        plan.pieces += _pieces(tp, start[tp], end[tp], before[tp], connection, pieces_per_partition)
    return plan


def _pieces(
    tp: TopicPartition, start: int, end: int, stable: int, connection: ConnectionSettings, count: int
) -> list[Piece]:
    size = end - start
    count = max(1, min(count, size // 10_000))
    cuts = [start + size * number // count for number in range(count + 1)]
    return [
        RangePiece(tp, number, cuts[number], cuts[number + 1], stable, connection, cuts[number + 1] - cuts[number])
        for number in range(count)
        if cuts[number] < cuts[number + 1]
    ]


def range_facts(piece: RangePiece) -> Iterator[Fact]:
    """Every batch that begins in the range, and the aborted transactions that the broker lists. Raises BrokerError."""
    cluster = Cluster(piece.connection)
    try:
        yield from _Scan(cluster, piece).facts()
    finally:
        cluster.close()


class _Scan:
    def __init__(self, cluster: Cluster, piece: RangePiece) -> None:
        self._cluster = cluster
        self._piece = piece
        self._position = piece.start
        self._fetch_bytes = _FETCH_BYTES
        self._listed: set[tuple[int, int]] = set()
        self._empty = 0

    def facts(self) -> Iterator[Fact]:
        piece = self._piece
        while self._position < piece.stop:
            data = self._cluster.with_retries(self._fetch)
            for entry in data.aborted_transactions or ():
                if (key := (entry.producer_id, entry.first_offset)) not in self._listed:
                    self._listed.add(key)
                    yield indexed(*piece.tp, piece.number, entry.producer_id, entry.first_offset, -1)
            before = self._position
            yield from self._batches(memoryview(data.records or b""))
            self._handle_empty(data, before)

    def _fetch(self) -> Any:
        piece = self._piece
        connection = self._cluster.connection_to(self._cluster.leader_of(piece.tp))
        part = api01_fetch.FetchPartition(
            partition=piece.tp.partition, fetch_offset=self._position, partition_max_bytes=self._fetch_bytes
        )
        # Only read_committed responses list aborted transactions, and only up to the last stable offset.
        stable = self._position < piece.stable
        isolation = IsolationLevel.READ_COMMITTED if stable else IsolationLevel.READ_UNCOMMITTED
        request = api01_fetch.FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=self._fetch_bytes,
            isolation_level=int(isolation),
            topics=[api01_fetch.FetchTopic(topic=piece.tp.topic, partitions=[part])],
        )
        response = connection.call("Fetch", request)
        if response.error_code != ErrorCode.NONE:
            raise BrokerError(f"fetch of {piece.tp}", code_of(response.error_code))
        found = response.responses[0].partitions[0]
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise PipelineError(
                f"{piece.tp}: offset {self._position} was deleted: retention is faster than the audit."
                " Audit a copy of the data directory instead"
            )
        if found.error_code != ErrorCode.NONE:
            raise BrokerError(f"fetch of {piece.tp} at offset {self._position}", code_of(found.error_code))
        return found

    def _batches(self, buffer: memoryview) -> Iterator[Fact]:
        piece = self._piece
        try:
            for at, header in iter_headers(buffer):
                if header.base_offset >= piece.stop:
                    self._position = piece.stop
                    return
                if header.next_offset <= self._position:
                    continue
                # A batch that contains the start of the range belongs to the range before, if there is one.
                if header.base_offset >= piece.start or piece.number == 0:
                    yield fact_of(*piece.tp, piece.number, header.base_offset, buffer, at, header)
                self._position = header.next_offset
        except CorruptBatch as error:
            yield damage(*piece.tp, piece.number, self._position, self._position, str(error))
            self._position = piece.stop

    def _handle_empty(self, data: Any, before: int) -> None:
        """If the response held no whole new batch, fetch more bytes next time, up to a limit."""
        if self._position > before:
            self._empty = 0
            return
        if data.records and self._fetch_bytes < _MAX_FETCH_BYTES:
            self._fetch_bytes *= 2
            return
        self._empty += 1
        if self._empty > _EMPTY_RESPONSES_MAX:
            where = f"last stable offset {data.last_stable_offset}, high watermark {data.high_watermark}"
            what = f"{self._piece.tp}: nothing can be read at offset {self._position} ({where})"
            raise BrokerError(what, ErrorCode.REQUEST_TIMED_OUT)
