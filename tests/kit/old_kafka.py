"""A proxy that makes a broker of today look like Apache Kafka 2.1, and keeps what a client asks of it."""

from collections import deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import trio

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.headers import read_request_header, read_response_header, write_response_header
from fencepost.protocol.messages.api18_api_versions import ApiVersionsResponse
from fencepost.protocol.registry import API_BY_KEY
from tests.kit.frames import FrameReader, framed

KAFKA_2_1: dict[int, tuple[int, int]] = {
    0: (0, 7),
    1: (0, 10),
    2: (0, 4),
    3: (0, 7),
    8: (0, 6),
    9: (0, 5),
    10: (0, 2),
    11: (0, 3),
    12: (0, 2),
    13: (0, 2),
    14: (0, 2),
    15: (0, 2),
    16: (0, 2),
    17: (0, 1),
    18: (0, 2),
    19: (0, 3),
    20: (0, 3),
    21: (0, 1),
    22: (0, 1),
    23: (0, 2),
    24: (0, 1),
    25: (0, 1),
    26: (0, 1),
    27: (0, 0),
    28: (0, 2),
    29: (0, 1),
    30: (0, 1),
    31: (0, 1),
    32: (0, 2),
    33: (0, 1),
    34: (0, 1),
    35: (0, 1),
    36: (0, 0),
    37: (0, 1),
    38: (0, 1),
    39: (0, 1),
    40: (0, 1),
    41: (0, 1),
    42: (0, 1),
}
"""API key -> versions, as Kafka 2.1.0 answers ApiVersions (clients' protocol guide of that release)."""
_FETCH, _METADATA, _FIND_COORDINATOR, _API_VERSIONS = 1, 3, 10, 18


class OldKafka:
    """Listens, passes everything on to `upstream`, and announces KAFKA_2_1 in the broker's place, or other versions.

    `asked` has the (API name, version) of every request; `wrong` those that Kafka 2.1 would not have understood.
    """

    def __init__(self, upstream: str, versions: Mapping[int, tuple[int, int]] = MappingProxyType(KAFKA_2_1)) -> None:
        self._versions = versions
        host, _, port = upstream.rpartition(":")
        self._upstream = (host, int(port))
        self.asked: set[tuple[str, int]] = set()
        self.wrong: set[tuple[str, int]] = set()
        self.leaderless: set[tuple[str, int]] = set()
        """Topics and partitions that are shown without a leader."""
        self.port = 0

    @property
    def address(self) -> str:
        """HOST:PORT for a client."""
        return f"127.0.0.1:{self.port}"

    async def serve(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        task_status.started()
        await trio.serve_listeners(self._serve_one, listeners)

    async def _serve_one(self, client: trio.SocketStream) -> None:
        async with client, await trio.open_tcp_stream(*self._upstream) as broker:
            asked: deque[tuple[int, int]] = deque()
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._answers, broker, client, asked, nursery.cancel_scope)
                    frames = FrameReader(client)
                    while (frame := await frames.next()) is not None:
                        await self._request(frame, client, broker, asked)
                    nursery.cancel_scope.cancel()
            except* (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # one of them has gone, and so does the other

    async def _request(
        self, frame: bytes, client: trio.SocketStream, broker: trio.SocketStream, asked: deque[tuple[int, int]]
    ) -> None:
        header = read_request_header(frame)
        key, version = header.api_key, header.api_version
        if key == _API_VERSIONS and version > self._versions[key][1]:
            api = API_BY_KEY[key]
            body = api.response.encode(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[]), 0)
            await client.send_all(framed(write_response_header(api, 0, header.correlation_id), body))
            return
        named = (API_BY_KEY[key].name if key in API_BY_KEY else str(key), version)
        self.asked.add(named)
        low, high = self._versions.get(key, (0, -1))
        if not low <= version <= high:
            self.wrong.add(named)
        asked.append((key, version))
        await broker.send_all(framed(frame))

    async def _answers(
        self,
        broker: trio.SocketStream,
        client: trio.SocketStream,
        asked: deque[tuple[int, int]],
        scope: trio.CancelScope,
    ) -> None:
        frames = FrameReader(broker)
        while (frame := await frames.next()) is not None:
            key, version = asked.popleft()
            if key in (_METADATA, _FIND_COORDINATOR, _API_VERSIONS) or (key == _FETCH and self.leaderless):
                api = API_BY_KEY[key]
                correlation, start = read_response_header(api, version, frame)
                answer = api.response.decode(frame, version, start)
                self._change(key, answer)
                frame = write_response_header(api, version, correlation) + api.response.encode(answer, version)
            await client.send_all(framed(frame))
        scope.cancel()

    def _change(self, key: int, answer: Any) -> None:
        if key == _API_VERSIONS:
            shared = []
            for entry in answer.api_keys:
                low, high = self._versions.get(entry.api_key, (0, -1))
                entry.min_version, entry.max_version = max(low, entry.min_version), min(high, entry.max_version)
                if entry.min_version <= entry.max_version:
                    shared.append(entry)
            answer.api_keys = shared
        elif key == _METADATA:
            for node in answer.brokers:
                node.host, node.port = "127.0.0.1", self.port
            for topic in answer.topics:
                for part in topic.partitions:
                    if (topic.name, part.partition_index) in self.leaderless:
                        part.error_code, part.leader_id = ErrorCode.LEADER_NOT_AVAILABLE, -1
        elif key == _FETCH:
            for topic in answer.responses:
                for part in topic.partitions:
                    if (topic.topic, part.partition_index) in self.leaderless:
                        part.error_code, part.records = ErrorCode.NOT_LEADER_OR_FOLLOWER, None
        elif answer.node_id >= 0:
            answer.host, answer.port = "127.0.0.1", self.port
