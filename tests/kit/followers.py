"""A broker that follows a log of another one, for tests: its part of Fetch, over stores in this process."""

import os
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import trio

from fencepost.broker.clock import SystemClock
from fencepost.broker.cluster.engine import Placement
from fencepost.broker.cluster.objects.object_store import ObjectMissing
from fencepost.broker.cluster.ownership import Ownership
from fencepost.broker.cluster.reading.byte_cache import ByteCache
from fencepost.broker.cluster.serving.followed_logs import FollowedLogs
from fencepost.broker.cluster.serving.replicas import Replicas
from fencepost.broker.config.broker_config import load_config
from fencepost.broker.fetch.sessions import FetchSessions
from fencepost.broker.handlers.api01_fetch import handle
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.network.context import Endpoint, RequestContext, Session
from fencepost.broker.network.reply import ready
from fencepost.broker.peers.peer import Peer
from fencepost.broker.purgatory import Purgatory
from fencepost.protocol.batch_header import iter_headers
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api01_fetch import PartitionData
from fencepost.protocol.topics import TopicPartition
from tests.kit.shared_store import TOPIC_ID, ObjectsInMemory, StoreBroker, Stores
from tests.kit.wire import fetch_request
from tests.unit.log.kit import TP, joined

ME = 7
LEASE_MS = 60_000
"""So long that no test meets its end by accident."""
LISTENER = Endpoint("host", 9092)


class Objects(ObjectsInMemory):
    """Objects of which some were deleted."""

    def read(self, place: Placement) -> bytes:
        if place.object_id not in self.objects:
            raise ObjectMissing("objects", place.position, "the object does not exist")
        return super().read(place)


class Following:
    """Broker 7 in rack b; it leads what `led` has, and follows the rest of topic `events`."""

    def __init__(self, stores: Stores, owner: StoreBroker, led: PartitionLog | None = None, rack: str = "b") -> None:
        self.engine = stores.world.engine()
        objects = Objects(self.engine, stores.objects)
        self.ownership = Ownership(ME, self.engine.slots())
        self.cold = ByteCache(lambda: self.engine, objects, MemoryStore(), 1 << 20)
        of = self.engine, objects, self._call, owner.rounds, self.cold, MemoryStore(), self.ownership
        self.followed = FollowedLogs(*of, LEASE_MS)
        self.replicas = Replicas(self.ownership, rack, True)
        self.metadata: Any = SimpleNamespace(
            image=SimpleNamespace(topics_by_name={TP.topic: SimpleNamespace(topic_id=TOPIC_ID, partitions=50)}),
            log_config=lambda topic: LogConfig(),
            topic_name=lambda topic_id: TP.topic,
        )
        peers = {number: Peer(number, None, {"PLAINTEXT": LISTENER}) for number in (1, 2)}
        self.purgatory = Purgatory()
        self.node: Any = SimpleNamespace(
            config=load_config(),
            fetch_sessions=FetchSessions(0, os.urandom),
            clock=SystemClock(),
            place=SimpleNamespace(
                followed=self.followed, closest=self.replicas.closest, leader=self.ownership.leader, peers=peers
            ),
            authorizer=None,
            metadata=self.metadata,
            partition=lambda tp: led,
            absence=lambda tp: ErrorCode.NOT_LEADER_OR_FOLLOWER,
            response_bytes=SimpleNamespace(left=lambda least: 1 << 20),
            metrics=MagicMock(),
            purgatory=self.purgatory,
        )

    async def run(self) -> None:
        """Follow until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.cold.run)
            nursery.start_soon(self.followed.run, self.metadata)

    async def _call(self, call: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return call()

    async def fetch(
        self, offset: int = 0, tp: TopicPartition = TP, *, version: int = 12, rack: str = "", **fields: Any
    ) -> PartitionData:
        """The answer to a consumer's fetch of one partition."""
        request = fetch_request(tp.topic, offset, partition=tp.partition, **fields)
        request.rack_id = rack
        context = RequestContext(1, version, 1, "client", Session("host", LISTENER))
        answer: Any = await ready(handle(self.node, request, context))
        found: PartitionData = answer.responses[0].partitions[0]
        return found

    async def bases(self, offset: int = 0, tp: TopicPartition = TP, *, isolation: int = 0) -> list[int]:
        """The base offsets of all batches from an offset on, up to that which a consumer may read."""
        return [header.base_offset for _, header in iter_headers(await self.content(offset, tp, isolation=isolation))]

    async def content(self, offset: int = 0, tp: TopicPartition = TP, *, isolation: int = 0) -> bytes:
        """All bytes from an offset on, up to that which a consumer may read."""
        found = b""
        while True:
            answer = await self.fetch(offset, tp, isolation=isolation, max_wait_ms=10_000)
            assert not answer.error_code, answer
            data = joined(answer.records)
            found += data
            for _, header in iter_headers(data):
                offset = header.next_offset
            if offset >= (answer.last_stable_offset if isolation else answer.high_watermark):
                return found
