"""Connections to the leaders of partitions, for programs without a client."""

import socket
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from fencepost.protocol.messages.api03_metadata import MetadataRequest, MetadataRequestTopic
from tests.kit.waiting import until
from tests.kit.wire import ConnectionEnded, Wire

METADATA, METADATA_VERSION = 3, 12
TIMEOUT_SECONDS = 5.0


class Leaders:
    """Opens each connection once. A context manager: all are closed at its end."""

    def __init__(self, bootstrap: str) -> None:
        """`bootstrap`: HOST:PORT of one broker or more, with commas between them; the first that answers is asked."""
        self._bootstrap = bootstrap.split(",")
        self._leaders: dict[tuple[str, int], tuple[str, int]] = {}
        self._wires: dict[tuple[str, int], Wire] = {}
        self._stack = ExitStack()

    def of(self, topic: str, partition: int) -> Wire:
        """A connection to the leader. Raises OSError and ConnectionEnded."""
        if (topic, partition) not in self._leaders:
            self._find(topic)
        address = self._leaders[topic, partition]
        if address not in self._wires:
            self._wires[address] = self._connect(address)
        return self._wires[address]

    def produce(self, topic: str, batch: Any, *, partition: int = 0, **fields: Any) -> None:
        """Append a batch, and try again while the leader does not know the topic yet."""
        wire = self.of(topic, partition)
        until(lambda: wire.produce(topic, batch, partition=partition, **fields), lambda answer: not answer.error_code)

    def every(self, topic: str) -> list[tuple[str, int]]:
        """The address of each partition's leader, in their order."""
        self._find(topic)
        return [address for (name, _), address in sorted(self._leaders.items()) if name == topic]

    def _find(self, topic: str) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        for one in self._bootstrap:
            host, _, port = one.rpartition(":")
            try:
                with Wire(socket.create_connection((host, int(port)), TIMEOUT_SECONDS)) as wire:
                    answer = wire.call(METADATA, METADATA_VERSION, request)
            except (OSError, ConnectionEnded):
                continue
            brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
            parts = answer.topics[0].partitions
            self._leaders.update({(topic, part.partition_index): brokers[part.leader_id] for part in parts})
            if parts:
                return
        raise ConnectionEnded(f"no broker of {self._bootstrap} names the leaders of {topic}")

    def _connect(self, address: tuple[str, int]) -> Wire:
        return self._stack.enter_context(Wire(socket.create_connection(address, TIMEOUT_SECONDS)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
