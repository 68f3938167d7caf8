"""What tests ask a broker of several cores, each core by its own connection."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api03_metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.api10_find_coordinator import FindCoordinatorRequest
from tests.kit.broker_process import BrokerProcess
from tests.kit.waiting import until
from tests.kit.wire import ConnectionEnded, Wire

METADATA, FIND_COORDINATOR = 3, 10
GROUP, TRANSACTION = 0, 1
RETRIED = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
}
T = TypeVar("T")


@contextmanager
def wire_to(broker: BrokerProcess, core: int, timeout_seconds: float = 60.0) -> Iterator[Wire]:
    """A connection to a core."""
    with Wire(socket.create_connection(broker.core_address(core), timeout_seconds)) as wire:
        yield wire


@dataclass(frozen=True)
class Cores:
    """A broker, and its cores by number."""

    broker: BrokerProcess

    @property
    def numbers(self) -> range:
        return range(self.broker.cores)

    def leaders(self, topic: str, asked: int = 0) -> list[int]:
        """The core that leads each partition, as that core says; empty while it does not know the topic."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        answer = self.retried(asked, lambda wire: wire.call(METADATA, 12, request), lambda answer: 0)
        ports = {one.node_id: one.port - self.broker.port for one in answer.brokers}
        parts = sorted(answer.topics[0].partitions, key=lambda part: part.partition_index)
        return [ports[part.leader_id] for part in parts]

    def create(self, topic: str, partitions: int = 3, asked: int = 0, **configs: str) -> list[int]:
        """Create a topic, which every core knows then; the core of each partition."""
        with wire_to(self.broker, asked) as wire:
            wire.create_topic(topic, partitions, **configs)
        (found,) = {tuple(self.leaders(topic, core)) for core in self.numbers}
        return list(found)

    def coordinator(self, key: str, kind: int = TRANSACTION) -> int:
        """The core that coordinates a group or a transactional id."""
        request = FindCoordinatorRequest(key=key, key_type=kind)
        answer = self.retried(
            0, lambda wire: wire.call(FIND_COORDINATOR, 2, request), lambda answer: int(answer.error_code)
        )
        assert answer.error_code == ErrorCode.NONE, answer
        return int(answer.port - self.broker.port)

    def name_at(self, core: int, kind: int = TRANSACTION, prefix: str = "id") -> str:
        """A name that this core coordinates."""
        return next(name for number in range(1000) if self.coordinator(name := f"{prefix}-{number}", kind) == core)

    def retried(self, core: int, ask: Callable[[Wire], T], code_of: Callable[[T], int] = int) -> T:
        """The answer of a core, asked again as clients do while it starts."""

        def answer() -> T | None:
            with suppress(OSError, ConnectionEnded), wire_to(self.broker, core, 5.0) as wire:
                found = ask(wire)
                if code_of(found) not in RETRIED:
                    return found
            time.sleep(0.05)
            return None

        found = until(answer, lambda one: one is not None, f"core {core} does not answer", seconds=60)
        assert found is not None
        return found

    def produce(self, core: int, topic: str, batch: Any, partition: int, **fields: Any) -> Any:
        """Append a batch, as often as it takes."""
        return self.retried(
            core,
            lambda wire: wire.produce(topic, batch, partition=partition, **fields),
            lambda answer: int(answer.error_code),
        )

    def fetch(self, core: int, topic: str, partition: int, **fields: Any) -> Any:
        return self.retried(
            core, lambda wire: wire.fetch(topic, partition=partition, **fields), lambda answer: int(answer.error_code)
        )
