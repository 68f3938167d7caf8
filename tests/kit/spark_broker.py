"""A broker of a few lines for the reader's tests: real sockets and messages, logs made by hand, faults on demand."""

import socket
import threading
from collections.abc import Callable
from typing import Any, Self

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api01_fetch import FetchableTopicResponse, FetchResponse
from fencepost.protocol.topics import TopicPartition
from fencepost.spark_connector.network.wire import Address, ConnectionSettings
from tests.kit.answers import OffsetTold, metadata_told, offsets_told, partitions_told, versions_told
from tests.kit.batch_log import BatchLog
from tests.kit.frames import SIZE, Asked, accepted

VERSIONS = {1: (4, 17), 2: (1, 10), 3: (0, 13), 18: (0, 4)}


class FakeBroker:
    """Serves logs on a port of its own until the `with` block ends."""

    def __init__(self, logs: dict[TopicPartition, BatchLog], versions: dict[int, tuple[int, int]] = VERSIONS) -> None:
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
        for client in accepted(self._listener):
            self._sockets.append(client)
            self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with client, client.makefile("rb") as stream:
            while True:
                try:
                    head = stream.read(SIZE.size)
                    if len(head) < SIZE.size:
                        return
                    answer = self._answer(Asked(stream.read(*SIZE.unpack(head))))
                    if answer is None:
                        return
                    client.sendall(answer)
                except OSError:
                    return

    def _answer(self, asked: Asked) -> bytes | None:
        name, version = asked.api.name, asked.version
        if name == "ApiVersions" and version > self.versions[18][1]:
            return asked.answered(versions_told({}, error_code=int(ErrorCode.UNSUPPORTED_VERSION)), 0)
        low, high = self.versions[asked.header.api_key]
        assert low <= version <= high, f"{name} was asked in version {version}"
        request = asked.request
        self.asked.append((name, request))
        fault = self.fault(name, request)
        if fault == "close":
            return None
        match name:
            case "ApiVersions":
                return asked.answered(versions_told(self.versions))
            case "Metadata":
                return asked.answered(self._metadata(request))
            case "ListOffsets":
                return asked.answered(offsets_told(request, lambda *place: self._offset_at(*place, request)))
            case "Fetch":
                return asked.answered(self._fetch(request, fault if isinstance(fault, ErrorCode) else ErrorCode.NONE))
        raise AssertionError(f"{name} is not served here")

    def _metadata(self, request: Any) -> Any:
        existing = sorted({tp.topic for tp in self.logs})
        numbers = {name: [tp.partition for tp in self.logs if tp.topic == name] for name in existing}
        topics = {name: partitions_told(dict.fromkeys(some, (7, -1)), [7]) for name, some in numbers.items()}
        names = existing if request.topics is None else [topic.name for topic in request.topics]
        return metadata_told({7: self.address.port}, names, topics)

    def _offset_at(self, topic: str, number: int, timestamp: int, request: Any) -> OffsetTold:
        log = self.logs[TopicPartition(topic, number)]
        return ErrorCode.NONE, log.offset_at(timestamp, request.isolation_level), -1

    def _fetch(self, request: Any, code: ErrorCode) -> Any:
        (topic,) = request.topics
        (asked,) = topic.partitions
        log = self.logs[TopicPartition(topic.topic, asked.partition)]
        part = log.fetched(asked, request.isolation_level, request.max_bytes)
        if code is not ErrorCode.NONE:
            part.error_code, part.records = int(code), b""
        if self.fetch_limit is not None:
            part.records = part.records[: min(self.fetch_limit, asked.partition_max_bytes)]
        return FetchResponse(responses=[FetchableTopicResponse(topic=topic.topic, partitions=[part])])
