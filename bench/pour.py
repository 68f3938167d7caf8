"""A flood of large produce requests over bare sockets, in a process of its own: as many bytes as a broker takes."""

import multiprocessing
import socket
import time
from collections.abc import Callable, Sequence

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.headers import read_response_header, write_request_header
from fencepost.protocol.messages.api00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.api19_create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.registry import API_BY_KEY

PRODUCE_VERSION, CREATE_VERSION = 9, 5
IN_FLIGHT = 5
TIMEOUT_SECONDS = 120
REQUEST_BYTES = 1 << 20
TOPIC = "poured"


class Pipe:
    """One connection that asks and reads whole answers."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), TIMEOUT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, api_key: int, version: int, request: object) -> None:
        """Send one request."""
        self.socket.sendall(framed(api_key, version, request))

    def answer(self, api_key: int, version: int) -> object:
        """The next answer's body."""
        body = self._exactly(int.from_bytes(self._exactly(4), "big"))
        api = API_BY_KEY[api_key]
        _, start = read_response_header(api, version, body)
        return api.response.decode(body, version, start)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            data += piece
        return data


def framed(api_key: int, version: int, request: object) -> bytes:
    """A request's bytes, its length in front."""
    api = API_BY_KEY[api_key]
    body = write_request_header(api, version, 1, "bench") + api.request.encode(request, version)
    return len(body).to_bytes(4, "big") + body


def create_topic(address: str, partitions: int, name: str = TOPIC) -> None:
    """Make the topic that is poured into."""
    pipe = Pipe(address)
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    pipe.send(ApiKey.CREATE_TOPICS, CREATE_VERSION, CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
    answer = pipe.answer(ApiKey.CREATE_TOPICS, CREATE_VERSION)
    assert not answer.topics[0].error_code, answer  # type: ignore[attr-defined]
    pipe.socket.close()


def request_frames(partitions: Sequence[int], request_bytes: int, value_bytes: int) -> list[bytes]:
    """One produce request for each partition: a batch of about `request_bytes`, acks=all."""
    count = max(1, request_bytes // (value_bytes + 12))
    batch = bytes(build_batch([(int(time.time() * 1000), None, bytes(value_bytes), ())] * count))
    frames = []
    for partition in partitions:
        data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=partition, records=batch)])
        request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[data])
        frames.append(framed(ApiKey.PRODUCE, PRODUCE_VERSION, request))
    return frames


def pour(
    address: str,
    total_bytes: int,
    partitions: Sequence[int],
    request_bytes: int = REQUEST_BYTES,
    value_bytes: int = 1000,
    told: Callable[[int], None] | None = None,
) -> None:
    """Write `total_bytes`, some requests in flight at a time, over the partitions in turn."""
    pipe = Pipe(address)
    frames = request_frames(partitions, request_bytes, value_bytes)
    count = max(1, total_bytes // len(frames[0]))
    answered = 0
    for number in range(count):
        pipe.socket.sendall(frames[number % len(frames)])
        if number - answered >= IN_FLIGHT - 1:
            _take(pipe)
            answered += 1
            if told is not None:
                told(answered * len(frames[0]))
    for _ in range(count - answered):
        _take(pipe)
    pipe.socket.close()


def _take(pipe: Pipe) -> None:
    answer = pipe.answer(ApiKey.PRODUCE, PRODUCE_VERSION)
    code = answer.responses[0].partition_responses[0].error_code  # type: ignore[attr-defined]
    if code:
        raise RuntimeError(f"a write was refused with code {code}")


def pour_in_process(
    address: str, total_bytes: int, partitions: int, request_bytes: int = REQUEST_BYTES, value_bytes: int = 1000
) -> float:
    """As `pour`, from a process of its own; returns the seconds it took. Raises RuntimeError when it failed."""
    began = time.monotonic()
    process = multiprocessing.get_context("spawn").Process(
        target=pour, args=(address, total_bytes, range(partitions), request_bytes, value_bytes)
    )
    process.start()
    process.join()
    if process.exitcode:
        raise RuntimeError("the pouring process failed")
    return time.monotonic() - began
