"""A broker's place on one core of several: it leads what the metadata say, from its own directory."""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import cache, partial

import trio

from fencepost.broker.cores.followed_metadata import FollowedMetadata
from fencepost.broker.cores.layout import Layout, next_start
from fencepost.broker.cores.listening import CoresListening
from fencepost.broker.cores.live_moves import LiveMoves
from fencepost.broker.cores.marker_writer import MarkerWriter
from fencepost.broker.cores.number import NumberOfCores
from fencepost.broker.cores.pages import AllPages
from fencepost.broker.cores.placed import Placed, register_cores
from fencepost.broker.metrics.pages import Readiness, pages_of
from fencepost.broker.metrics.server import MetricsServer, Page
from fencepost.broker.network.context import Endpoint
from fencepost.broker.peers.among_peers import AmongPeers
from fencepost.broker.peers.following import MetadataFollower, leave_to_others
from fencepost.broker.peers.links import PeerLinks, Route
from fencepost.broker.peers.login import PeerLogins
from fencepost.broker.peers.peer import Peer, PeerUnavailable
from fencepost.broker.ports import Broker
from fencepost.broker.security.sasl.exchange import FENCEPOST_CLUSTER
from fencepost.broker.security.sasl.session import Mechanism
from fencepost.coordinator.metadata.delta import AssignmentChanged, BrokersChanged, Change
from fencepost.coordinator.metadata.image import TopicImage
from fencepost.coordinator.metadata.reassignments import HandedOver
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api18_api_versions import ApiVersionsRequest
from fencepost.protocol.messages.api45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from fencepost.protocol.topics import TopicPartition

logger = logging.getLogger(__name__)


class Core(AmongPeers, Placed):
    """One of several brokers of one machine. Core 0 is the controller; the others read its metadata log."""

    def __init__(self, layout: Layout, number: int) -> None:
        config = layout.configs[number]
        self.number = number
        super().__init__(config, layout.start)
        self._layout = layout
        self._controller = layout.configs[0].node_id
        logins = PeerLogins(layout.secret)
        self.mechanisms = {FENCEPOST_CLUSTER: Mechanism(logins.new_exchange, advertised=False)}
        self.links = PeerLinks(f"core-{number}", cache(self._route), logins)
        self.peers = self._peers(layout.node_ids)
        self.follower = MetadataFollower(self, self._follow, partial(layout.metadata_written, number))
        self.followed_metadata = None if self.is_controller else FollowedMetadata(layout)
        self.node_ids = layout.node_ids
        self._moves: LiveMoves | None = None
        self._number_of_cores: NumberOfCores | None = None

    def _route(self, broker: int) -> Route | None:
        if broker == self.node_id or broker < self._controller:
            return None
        return Route(self._layout.address(broker), unix_address=self._layout.unix_address(broker))

    # Who leads what

    @property
    def is_controller(self) -> bool:
        return self.node_id == self._controller

    @property
    def controller_id(self) -> int:
        return self._controller

    def leads_partition(self, topic_id: bytes, partition: int) -> bool:
        return self.leader(topic_id, partition).leader == self.node_id

    def count_led(self, topic: TopicImage) -> int:
        return sum(one.leader == self.node_id for one in topic.assignment)

    def listenings(self) -> list[CoresListening]:
        address = self._layout.address(self.node_id)
        return [
            CoresListening(self._layout.sockets[self.number], self.mechanisms[FENCEPOST_CLUSTER], self._config, address)
        ]

    # Which cores there are

    def _peers(self, node_ids: Iterable[int]) -> Mapping[int, Peer]:
        return {one: self._layout.peer(one) for one in node_ids if one != self.node_id}

    def metadata_changed(self, change: Change) -> None:
        assert self._node is not None
        if isinstance(change, BrokersChanged):
            self.peers = self._peers(self._node.metadata.image.brokers)
        elif isinstance(change, AssignmentChanged) and self._moves is not None:
            self._moves.assignment_changed(change.before, change.topic)
        if self._number_of_cores is not None:
            self._number_of_cores.wake()

    async def change_cores(self, count: int) -> str | None:
        assert self._number_of_cores is not None, "requests for it come to the controller"
        return await self._number_of_cores.change(count)

    # What other brokers do

    def leaders_elsewhere(self, partitions: Collection[TopicPartition]) -> Mapping[int, list[TopicPartition]]:
        found: dict[int, list[TopicPartition]] = {}
        assert self._node is not None
        topics = self._node.metadata.image.topics_by_name
        for tp in partitions:
            topic = topics.get(tp.topic)
            if topic is not None and tp.partition < topic.partitions:
                leader = topic.assignment[tp.partition].leader
                if leader != self.node_id:
                    found.setdefault(leader, []).append(tp)
        return found

    # Moves

    async def complete_move(self, one: HandedOver) -> ErrorCode:
        assert self._node is not None
        if self.is_controller:
            [outcome] = await self._node.metadata.reassign([one])
            return outcome.code
        part = ReassignablePartition(
            partition_index=one.tp.partition, topic_id=one.topic_id, partition_epoch=one.partition_epoch
        )
        topics = [ReassignableTopic(name=one.tp.topic, partitions=[part])]
        try:
            answer = await self.links.ask(self._controller, AlterPartitionReassignmentsRequest(topics=topics), 1)
        except PeerUnavailable:
            return ErrorCode.NETWORK_EXCEPTION
        await self.follower.catch_up(self._node)
        return ErrorCode(answer.responses[0].partitions[0].error_code)

    async def is_up(self, broker: int) -> bool:
        try:
            await self.links.ask(broker, ApiVersionsRequest(), 0)
        except PeerUnavailable:
            return False
        return True

    async def begin_coordinating(self) -> None:
        self._start = await trio.to_thread.run_sync(next_start, self._layout.root)

    # Reports

    async def serve_pages(
        self,
        address: str,
        services: trio.Nursery,
        metrics: Callable[[], Awaitable[Page]],
        ready: Callable[[], Readiness],
    ) -> Endpoint:
        """Those of this core to the others, and those of all at the socket that all cores have."""
        own, layout = pages_of(metrics, ready), self._layout

        def others() -> Mapping[int, str]:
            return {node - self._controller: layout.page_address(node) for node in self.peers}

        assert layout.pages_socket is not None
        for_others, for_all = MetricsServer(own), MetricsServer(AllPages(self.number, own, others).pages)
        for_others.adopt(layout.page_sockets[self.number])
        endpoint = for_all.adopt(layout.pages_socket)
        services.start_soon(for_others.run)
        services.start_soon(for_all.run)
        return endpoint

    # Start and stop

    async def load_metadata(self, node: Broker) -> None:
        """Core 0 writes who leads what, if the number of cores has changed; until then the others know nothing."""
        while not self.is_controller and not self._layout.metadata_end:
            await self._layout.metadata_written(self.number)  # with less of the metadata, topics would look deleted
        await super().load_metadata(node)
        if self.is_controller and not self._layout.metadata_end:  # the first start of core 0 since the layout was made
            await register_cores(node, self._layout.configs)
        await self.follower.until_bootstrapped(node)
        self.peers = self._peers(node.metadata.image.brokers)
        self._moves = LiveMoves(node, self._layout.root, self._controller)
        self._moves.recover()

    async def begin(self, node: Broker, services: trio.Nursery) -> None:
        self.marker_writer = MarkerWriter(self.links)
        if self.is_controller:
            node.metadata_log.watchers[self] = None
            self.wake()
            self._number_of_cores = NumberOfCores(node, self._layout, self)
            services.start_soon(self._number_of_cores.run)
            for runtime in node.runtimes:
                leave_to_others(node, runtime.topic)
        else:
            self.follower.begin(node, services)
        services.start_soon(self._stop_with_supervisor, node)
        await super().begin(node, services)

    def begin_upkeep(self, node: Broker, services: trio.Nursery) -> None:
        assert self._moves is not None
        services.start_soon(self._moves.run, self)
        super().begin_upkeep(node, services)

    async def _stop_with_supervisor(self, node: Broker) -> None:
        await trio.lowlevel.wait_readable(self._layout.alive_fd)
        logger.critical("the supervisor has ended, so this core stops")
        node.stop()

    async def _follow(self, node: Broker) -> bool:
        """Whether core 0 has written more that is durable."""
        followed = self.followed_metadata
        assert followed is not None
        return followed.end_offset < self._layout.metadata_end

    def wake(self) -> None:
        """Tell the other cores how much of the metadata log is durable: it has changed."""
        assert self._node is not None
        self._layout.tell_metadata_end(self._node.metadata_log.high_watermark)
