"""One connection, one produce request at a time, on a bare socket: what is measured is the broker and not a client."""

import socket
import struct
import time
from typing import Any

from fencepost.protocol.headers import read_response_header, write_request_header
from fencepost.protocol.messages.api00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.registry import API_BY_KEY

PRODUCE = API_BY_KEY[0]
VERSION = 9
LENGTH = struct.Struct(">i")
TIMEOUT_SECONDS = 30


class RawProducer:
    """Sends the same produce request again and again."""

    def __init__(self, address: str, topic: str, size_bytes: int) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        records = build_batch([(int(time.time() * 1000), None, b"x" * size_bytes, ())])
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=bytes(records))])
        request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[data])
        frame = write_request_header(PRODUCE, VERSION, 1, "bench") + ProduceRequest.encode(request, VERSION)
        self._frame = LENGTH.pack(len(frame)) + frame

    def produce(self) -> int:
        """One request and its answer; returns the error code."""
        self._socket.sendall(self._frame)
        (size,) = LENGTH.unpack(self._read(4))
        body = self._read(size)
        _, start = read_response_header(PRODUCE, VERSION, body)
        answer: Any = PRODUCE.response.decode(body, VERSION, start)
        return int(answer.responses[0].partition_responses[0].error_code)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _read(self, size: int) -> bytes:
        parts = b""
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise ConnectionError("the broker closed the connection")
            parts += part
        return parts
