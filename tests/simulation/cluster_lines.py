"""A client's lines to the brokers of a simulated cluster."""

from random import Random
from typing import Any, Protocol

import trio

from fencepost.broker.cluster.ownership import METADATA_LOG
from fencepost.protocol.messages.api00_produce import ProduceRequest
from fencepost.protocol.messages.api01_fetch import FetchRequest, FetchTopic
from fencepost.protocol.messages.api09_offset_fetch import OffsetFetchRequest
from fencepost.protocol.messages.api19_create_topics import CreateTopicsRequest
from fencepost.protocol.messages.api22_init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.api24_add_partitions_to_txn import AddPartitionsToTxnRequest
from fencepost.protocol.messages.api25_add_offsets_to_txn import AddOffsetsToTxnRequest
from fencepost.protocol.messages.api26_end_txn import EndTxnRequest
from fencepost.protocol.messages.api28_txn_offset_commit import TxnOffsetCommitRequest
from fencepost.protocol.topics import GROUP_TOPIC, TRANSACTION_TOPIC
from tests.kit.determinism import nap
from tests.kit.sim_cluster import SimCluster, SimMember
from tests.kit.sim_network import Call
from tests.simulation.lines import Line, Lost
from tests.simulation.weather import SeededWeather

STRAYING = 0.05
"""How often a request goes to any broker."""


class World(Protocol):
    """What a line needs of its world."""

    cluster: SimCluster
    random: Random
    weather: SeededWeather

    def leader(self, topic: str, partition: int) -> SimMember | None:
        """The broker that owns a partition, according to the database."""

    def coordinator(self, topic: str, name: str) -> SimMember | None:
        """The broker that coordinates a group or a transactional id."""

    def knows_topics(self, member: SimMember) -> bool:
        """Whether it answers, and has read which topics there are."""


class ClusterNetwork:
    """Leads a connection to any broker."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def call(self, client_id: str) -> Call:
        """As `SimNetwork.call`."""
        members = [member for member in self._world.cluster.members if self._world.knows_topics(member)]
        if not members:
            raise ConnectionRefusedError
        return await self._world.random.choice(members).network.call(client_id)


class ClusterLine(Line):
    """Asks the broker that leads what a request is about, or now and then another one; over a connection to each."""

    def __init__(self, world: World, client_id: str) -> None:
        super().__init__(ClusterNetwork(world), client_id)  # type: ignore[arg-type]
        self.world = world
        self._calls: dict[SimMember, Call] = {}

    async def ask(self, version: int, request: Any, timeout_seconds: float = 1.0) -> Any:
        """As `Line.ask`. A fetch of several leaders is one request to each."""
        if not isinstance(request, FetchRequest):
            return await self._ask(self._leader(request), version, request, timeout_seconds)
        answers = []
        parts = self._parts(request)
        for member, part in parts:
            if len(parts) > 1:
                part.max_wait_ms = 0
            answers.append(await self._ask(member, version, part, timeout_seconds))
        answers[0].responses = [topic for answer in answers for topic in answer.responses]
        return answers[0]

    async def _ask(self, member: SimMember | None, version: int, request: Any, timeout_seconds: float) -> Any:
        world = self.world
        if member is None or (not world.weather.calm and world.random.random() < STRAYING):
            member = None
        if member is not None and not world.knows_topics(member):
            await nap(0.02)
            raise Lost(sent=False)
        sent, whole = False, False
        call = None if member is None else self._calls.get(member)
        try:
            with trio.move_on_after(timeout_seconds):
                if call is None:
                    network = self._network if member is None else member.network
                    call = await network.call(self.client_id)
                    if member is not None:
                        self._calls[member] = call
                sent = True
                answer = await self._exchange(call, version, request)
                whole = True
                return answer
        except OSError:
            pass  # no answer, as after a timeout: told below
        finally:
            if call is not None and (member is None or not whole):
                call.cut()
                if member is not None:
                    self._calls.pop(member, None)
        raise Lost(sent)

    def _leader(self, request: Any) -> SimMember | None:
        match request:
            case ProduceRequest():
                topic = request.topic_data[0]
                return self.world.leader(topic.name, topic.partition_data[0].index)
            case CreateTopicsRequest():
                return self.world.cluster.owner(METADATA_LOG)
            case TxnOffsetCommitRequest() | OffsetFetchRequest():
                return self.world.coordinator(GROUP_TOPIC, request.group_id)
            case AddPartitionsToTxnRequest():
                return self.world.coordinator(TRANSACTION_TOPIC, request.v3_and_below_transactional_id)
            case InitProducerIdRequest() | AddOffsetsToTxnRequest() | EndTxnRequest():
                return self.world.coordinator(TRANSACTION_TOPIC, request.transactional_id or "")
            case _:
                return None

    def _parts(self, request: FetchRequest) -> list[tuple[SimMember | None, FetchRequest]]:
        """The request, divided by leaders."""
        parts: dict[SimMember | None, FetchRequest] = {}
        for topic in request.topics:
            for ask in topic.partitions:
                member = self.world.leader(topic.topic, ask.partition)
                part = parts.setdefault(member, _without_topics(request))
                part.topics.append(FetchTopic(topic=topic.topic, partitions=[ask]))
        return list(parts.items())

    def close(self) -> None:
        """End all connections."""
        super().close()
        for call in self._calls.values():
            call.cut()
        self._calls.clear()


def _without_topics(request: FetchRequest) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        isolation_level=request.isolation_level,
        topics=[],
    )
