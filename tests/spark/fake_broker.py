"""A broker of a few lines for the reader's tests: real sockets and messages, logs made by hand, faults on demand."""

import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from fencepost.protocol.control_records import end_txn_marker
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.headers import read_request_header, write_response_header
from fencepost.protocol.messages import api01_fetch, api02_list_offsets, api03_metadata, api18_api_versions
from fencepost.protocol.record_batch import Compression, build_batch, read_header
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.topics import TopicPartition
from fencepost.spark_connector.network.wire import Address, ConnectionSettings

VERSIONS = {1: (4, 17), 2: (1, 10), 3: (0, 13), 18: (0, 4)}
READ_COMMITTED = 1


@dataclass
class FakeLog:
    """One partition's batches; offsets are given out as they are appended."""

    batches: list[bytes] = field(default_factory=list)
    aborted: list[tuple[int, int]] = field(default_factory=list)
    start: int = 0
    end: int = 0
    stable: int | None = None
    """The last stable offset where it is not the end."""

    def data(
        self, *values: bytes, producer_id: int = -1, codec: Compression = Compression.NONE, time_ms: int = 0
    ) -> Self:
        """One batch; part of a transaction where a producer is named."""
        batch = build_batch(
            [(time_ms, None, value, ()) for value in values],
            base_offset=self.end,
            producer_id=producer_id,
            producer_epoch=0,
            transactional=producer_id >= 0,
            compression=codec,
        )
        return self.raw(batch)

    def marker(self, producer_id: int, commit: bool) -> Self:
        return self.raw(end_txn_marker(producer_id, 0, commit, 0, 0, base_offset=self.end))

    def aborted_run(self, producer_id: int, *values: bytes) -> Self:
        self.aborted.append((producer_id, self.end))
        return self.data(*values, producer_id=producer_id).marker(producer_id, False)

    def raw(self, batch: bytes | bytearray) -> Self:
        self.batches.append(bytes(batch))
        self.end = read_header(batch).next_offset
        return self

    def hole(self, count: int) -> Self:
        """Offsets that compaction left empty."""
        self.end += count
        return self


class FakeBroker:
    """Serves logs on a port of its own until the `with` block ends."""

    def __init__(self, logs: dict[TopicPartition, FakeLog], versions: dict[int, tuple[int, int]] = VERSIONS) -> None:
        self.logs = logs
        self.versions = versions
        self.asked: list[tuple[str, Any]] = []
        self.fault: Callable[[str, Any], ErrorCode | str | None] = lambda name, request: None
        """Called for each request: an error code to answer a fetch with, "close" to hang up, None for no fault."""
        self.fetch_limit: int | None = None
        """At most so many bytes of records in an answer, cutting batches apart."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self._listener.getsockname()[1])
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []

    def settings(self, **options: Any) -> ConnectionSettings:
        return ConnectionSettings(bootstrap=(self.address,), **{"api_timeout_ms": 100_000, **options})

    def fetch_offsets(self) -> list[int]:
        """The offsets that were fetched from, in order."""
        return [r.topics[0].partitions[0].fetch_offset for name, r in self.asked if name == "Fetch"]

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for open_one in self._sockets:
            try:
                open_one.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in self._threads:
            thread.join(100)
            assert not thread.is_alive()

    def _start(self, target: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(client)
            self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with client, client.makefile("rb") as stream:
            while True:
                try:
                    head = stream.read(4)
                    if len(head) < 4:
                        return
                    frame = stream.read(struct.unpack(">i", head)[0])
                    answer = self._answer(frame)
                    if answer is None:
                        return
                    client.sendall(struct.pack(">i", len(answer)) + answer)
                except OSError:
                    return

    def _answer(self, frame: bytes) -> bytes | None:
        header = read_request_header(frame)
        api = API_BY_KEY[header.api_key]
        version = header.api_version
        if api.name == "ApiVersions" and version > self.versions[18][1]:
            refusal = api18_api_versions.ApiVersionsResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION))
            return write_response_header(api, 0, header.correlation_id) + api.response.encode(refusal, 0)
        low, high = self.versions[header.api_key]
        assert low <= version <= high, f"{api.name} was asked in version {version}"
        request = api.request.decode(frame, version, header.body_start)
        self.asked.append((api.name, request))
        fault = self.fault(api.name, request)
        if fault == "close":
            return None
        match api.name:
            case "ApiVersions":
                keys = [
                    api18_api_versions.ApiVersion(api_key=k, min_version=a, max_version=b)
                    for k, (a, b) in self.versions.items()
                ]
                answer = api18_api_versions.ApiVersionsResponse(api_keys=keys)
            case "Metadata":
                answer = self._metadata(request)
            case "ListOffsets":
                answer = self._offsets(request)
            case "Fetch":
                answer = self._fetch(request, fault if isinstance(fault, ErrorCode) else ErrorCode.NONE)
            case name:
                raise AssertionError(f"{name} is not served here")
        return write_response_header(api, version, header.correlation_id) + api.response.encode(answer, version)

    def _metadata(self, request: Any) -> Any:
        existing = sorted({tp.topic for tp in self.logs})
        names = existing if request.topics is None else [topic.name for topic in request.topics]
        topics = []
        for name in names:
            code = ErrorCode.NONE if name in existing else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            partitions = [
                api03_metadata.MetadataResponsePartition(partition_index=tp.partition, leader_id=7)
                for tp in self.logs
                if tp.topic == name
            ]
            topics.append(api03_metadata.MetadataResponseTopic(error_code=int(code), name=name, partitions=partitions))
        node = api03_metadata.MetadataResponseBroker(node_id=7, host=self.address.host, port=self.address.port)
        return api03_metadata.MetadataResponse(brokers=[node], topics=topics)

    def _offsets(self, request: Any) -> Any:
        topics = []
        for topic in request.topics:
            found = []
            for asked in topic.partitions:
                log = self.logs[TopicPartition(topic.name, asked.partition_index)]
                end = self._end(log, request.isolation_level)
                offset = {-1: end, -2: log.start}.get(asked.timestamp)
                if offset is None:
                    headers = [read_header(batch) for batch in log.batches]
                    late = [
                        h.base_offset for h in headers if h.max_timestamp >= asked.timestamp and h.base_offset < end
                    ]
                    offset = late[0] if late else -1
                found.append(
                    api02_list_offsets.ListOffsetsPartitionResponse(
                        partition_index=asked.partition_index, offset=offset
                    )
                )
            topics.append(api02_list_offsets.ListOffsetsTopicResponse(name=topic.name, partitions=found))
        return api02_list_offsets.ListOffsetsResponse(topics=topics)

    @staticmethod
    def _end(log: FakeLog, isolation: int) -> int:
        return log.end if log.stable is None or isolation != READ_COMMITTED else log.stable

    def _fetch(self, request: Any, code: ErrorCode) -> Any:
        (topic,) = request.topics
        (asked,) = topic.partitions
        log = self.logs[TopicPartition(topic.topic, asked.partition)]
        end = self._end(log, request.isolation_level)
        if code is ErrorCode.NONE and not log.start <= asked.fetch_offset <= log.end:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        records, last = b"", asked.fetch_offset
        for batch in log.batches:
            header = read_header(batch)
            if header.last_offset < asked.fetch_offset or header.base_offset >= end or code is not ErrorCode.NONE:
                continue
            if records and len(records) + len(batch) > asked.partition_max_bytes:
                break
            records, last = records + batch, header.last_offset
        if self.fetch_limit is not None:
            records = records[: min(self.fetch_limit, asked.partition_max_bytes)]
        aborted = None
        if request.isolation_level == READ_COMMITTED:
            aborted = [
                api01_fetch.AbortedTransaction(producer_id=producer_id, first_offset=first)
                for producer_id, first in log.aborted
                if first <= last and self._abort_marker(log, producer_id, first) >= asked.fetch_offset
            ]
        data = api01_fetch.PartitionData(
            partition_index=asked.partition,
            error_code=int(code),
            high_watermark=log.end,
            last_stable_offset=self._end(log, READ_COMMITTED),
            log_start_offset=log.start,
            aborted_transactions=aborted,
            records=records,
        )
        answered = api01_fetch.FetchableTopicResponse(topic=topic.topic, partitions=[data])
        return api01_fetch.FetchResponse(responses=[answered])

    @staticmethod
    def _abort_marker(log: FakeLog, producer_id: int, first: int) -> int:
        headers = [read_header(batch) for batch in log.batches]
        ends = [
            h.base_offset for h in headers if h.is_control and h.producer_id == producer_id and h.base_offset > first
        ]
        return ends[0]
