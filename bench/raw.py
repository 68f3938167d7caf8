"""Bare sockets: what is measured is the broker, not a client. One request at a time, answers hardly looked at."""

import selectors
import socket
import struct
import time
from typing import Any

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.batch_header import iter_headers
from fencepost.protocol.headers import read_response_header, write_request_header
from fencepost.protocol.messages.api00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.api01_fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.registry import API_BY_KEY, Api

PRODUCE_VERSION = 9
FETCH_VERSION = 12
LENGTH = struct.Struct(">i")
TIMEOUT_SECONDS = 30
LARGEST_ANSWER_BYTES = 64 << 20
READ_COMMITTED = 1


class RawConnection:
    """One connection; `send` a frame, then `receive` its answer."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._view = memoryview(bytearray(64 << 10))

    def send(self, frame: bytes) -> None:
        """Send a whole frame."""
        self._socket.sendall(frame)

    def receive(self) -> memoryview:
        """One answer without its length; valid until the next."""
        view = self._view
        have = self._socket.recv_into(view)
        while have < LENGTH.size:
            have += self._more(have)
        size = LENGTH.unpack_from(view)[0] + LENGTH.size
        if size > len(view):
            if size > LARGEST_ANSWER_BYTES:
                raise ValueError(f"an answer of {size} bytes")
            self._view = memoryview(bytearray(size))
            self._view[:have] = view[:have]
            view = self._view
        while have < size:
            have += self._more(have)
        return view[LENGTH.size : size]

    def answer_to(self, key: ApiKey, version: int, request: Any) -> Any:
        """Send a request; the body of its answer."""
        api = API_BY_KEY[key]
        self.send(framed(api, version, request))
        return decoded(api, version, self.receive())

    def _more(self, have: int) -> int:
        count = self._socket.recv_into(self._view[have:])
        if not count:
            raise ConnectionError("the broker closed the connection")
        return count

    def register(self, selector: selectors.BaseSelector, data: object = None) -> None:
        """Have `selector` say when an answer begins to arrive, with `data` or this connection."""
        selector.register(self._socket, selectors.EVENT_READ, self if data is None else data)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


class RawProducer(RawConnection):
    """Sends the same produce request again and again: a batch for each partition."""

    def __init__(self, address: str, topic: str, size_bytes: int, partitions: int = 1, batch_records: int = 1) -> None:
        super().__init__(address)
        records = bytes(build_batch([(int(time.time() * 1000), None, b"x" * size_bytes, ())] * batch_records))
        parts = [PartitionProduceData(index=number, records=records) for number in range(partitions)]
        data = TopicProduceData(name=topic, partition_data=parts)
        request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[data])
        self.frame = framed(API_BY_KEY[ApiKey.PRODUCE], PRODUCE_VERSION, request)

    def begin(self) -> None:
        """Produce until it is accepted: a new topic may need a moment to find its leader."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while code := self.produce():
            if time.monotonic() > deadline:
                raise RuntimeError(f"produce was answered with error {code}")
            time.sleep(0.02)

    def produce(self) -> int:
        """One request and its answer; returns the error code."""
        self.send(self.frame)
        return produce_error(self.receive())

    def round_trip(self) -> tuple[float, memoryview]:
        """Seconds from the request to its whole answer, and the answer."""
        sent = time.perf_counter()
        self._socket.sendall(self.frame)
        answer = self.receive()
        return time.perf_counter() - sent, answer


class RawFetcher(RawConnection):
    """Reads one topic's partitions from the beginning, all in each request, as fast as answers come."""

    def __init__(self, address: str, topic: str, partitions: int, *, max_wait_ms: int = 1000) -> None:
        super().__init__(address)
        self._topic = topic
        self._max_wait_ms = max_wait_ms
        self.offsets = [0] * partitions
        self.records = self.size_bytes = self.answers = 0

    def ask(self) -> None:
        """Ask for what comes next in every partition; partitions take turns at being the first."""
        numbers = list(range(len(self.offsets)))
        turn = self.answers % len(numbers)
        asks = [
            FetchPartition(partition=number, fetch_offset=self.offsets[number], partition_max_bytes=1 << 20)
            for number in numbers[turn:] + numbers[:turn]
        ]
        request = FetchRequest(
            max_wait_ms=self._max_wait_ms,
            min_bytes=1,
            max_bytes=50 << 20,
            isolation_level=READ_COMMITTED,
            session_epoch=-1,
            topics=[FetchTopic(topic=self._topic, partitions=asks)],
        )
        self.send(framed(API_BY_KEY[ApiKey.FETCH], FETCH_VERSION, request))

    def take(self) -> int:
        """Receive an answer and note it; returns how many records came."""
        return self.note(self.receive())

    def note(self, received: memoryview) -> int:
        """Go on behind what an answer brought; returns how many records that is."""
        answer: Any = decoded(API_BY_KEY[ApiKey.FETCH], FETCH_VERSION, received)
        came = 0
        self.answers += 1
        for topic in answer.responses:
            for part in topic.partitions:
                if part.error_code:
                    raise RuntimeError(f"fetch was answered with error {part.error_code}")
                for _, header in iter_headers(part.records or b""):
                    came += header.record_count
                    self.offsets[part.partition_index] = header.next_offset
                self.size_bytes += len(part.records or b"")
        self.records += came
        return came


def produce_error(answer: memoryview, version: int = PRODUCE_VERSION) -> int:
    """The first error code, or 0, in the answer to a `RawProducer`'s request."""
    value: Any = decoded(API_BY_KEY[ApiKey.PRODUCE], version, answer)
    return next((int(part.error_code) for part in value.responses[0].partition_responses if part.error_code), 0)


def decoded(api: Api, version: int, answer: memoryview) -> Any:
    """The body of an answer that `RawConnection.receive` gave."""
    _, start = read_response_header(api, version, answer)
    return api.response.decode(answer, version, start)


def framed(api: Api, version: int, request: Any) -> bytes:
    """A whole request as it goes over the wire."""
    frame = write_request_header(api, version, 1, "bench") + api.request.encode(request, version)
    return LENGTH.pack(len(frame)) + frame
