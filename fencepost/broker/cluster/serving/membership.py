"""A broker's place in its cluster: which slots it leads, who leads the others, which brokers there are."""

import logging
import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import trio

from fencepost.broker.cluster.commit.remote_markers import RemoteMarkerLog, RemoteMarkerLogs, RemoteMarkers
from fencepost.broker.cluster.commit.rounds import RoundLimits, Rounds, RowBytes
from fencepost.broker.cluster.commit.shared_log import SharedLog
from fencepost.broker.cluster.commit.shared_logs import SharedLogs
from fencepost.broker.cluster.commit.writer import Writer
from fencepost.broker.cluster.engine import LAST_OFFSET, Engine, Identity, Member, Slot, StoreUnavailable, slot_of
from fencepost.broker.cluster.growth.loops import Growth
from fencepost.broker.cluster.history import EPOCHS_OF_LIFE
from fencepost.broker.cluster.objects.row_objects import RowObjects
from fencepost.broker.cluster.ownership import METADATA_LOG, METADATA_SLOT, Ownership
from fencepost.broker.cluster.reading.byte_cache import ByteCache
from fencepost.broker.cluster.reading.loading import LoadedLog, load_logs
from fencepost.broker.cluster.reading.row_reading import foreign_rows
from fencepost.broker.cluster.serving.followed_logs import FollowedLogs
from fencepost.broker.cluster.serving.lease import Lease, confirmed
from fencepost.broker.cluster.serving.members import peers_of
from fencepost.broker.cluster.serving.replicas import Replicas
from fencepost.broker.cluster.serving.stores import Stores
from fencepost.broker.config.broker_config import BrokerConfig
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.storage.files import FileStore
from fencepost.broker.log.storage.store import CorruptLogFile, SyncTask
from fencepost.broker.metadata.log import METADATA_PARTITION
from fencepost.broker.network.dispatch import Handler
from fencepost.broker.peers.among_peers import AmongPeers
from fencepost.broker.peers.following import MetadataFollower
from fencepost.broker.peers.forwarding import forwarded
from fencepost.broker.peers.links import PeerLinks, Route, route_to
from fencepost.broker.peers.login import PeerLogins
from fencepost.broker.peers.peer import PeerUnavailable
from fencepost.broker.peers.remote_offsets import with_remote_offsets
from fencepost.broker.place import LeaderAndEpoch, LeaderOf
from fencepost.broker.ports import Broker
from fencepost.broker.security.sasl.exchange import FENCEPOST_CLUSTER
from fencepost.broker.security.sasl.session import Mechanism
from fencepost.coordinator.metadata.image import TopicImage
from fencepost.protocol.topics import TopicPartition

if TYPE_CHECKING:
    from prometheus_client.core import Metric

ResultT = TypeVar("ResultT")

logger = logging.getLogger(__name__)


class Membership(AmongPeers):
    """One run of a broker in its cluster, as active broker or as standby; the next run begins with another role."""

    commits_together = True

    def __init__(
        self,
        config: BrokerConfig,
        stores: Stores,
        row_bytes: RowBytes,
        writer: Writer,
        own: Engine,
        slots: Sequence[Slot],
        loaded: Sequence[LoadedLog],
        scratch: Path,
        secret: bytes = b"",
    ) -> None:
        """`own` is a connection for this run's threads, besides the writer's; `loaded` are the logs of this broker's
        slots, and that of the metadata; `secret` is that of the cluster.
        """
        super().__init__(writer.identity.broker)
        self.ownership = Ownership(self.node_id, slots)
        self.replicas = Replicas(self.ownership, config.broker_rack, config.replica_selector_class is not None)
        """Who serves which partition, for clients."""
        logins = PeerLogins(secret)
        self.mechanisms = {FENCEPOST_CLUSTER: Mechanism(logins.new_exchange, advertised=False)}
        self.links = PeerLinks(f"broker-{self.node_id}", self._route, logins)
        self.over = trio.Event()
        """Set when this run has to end: the broker was taken over, or has to read the metadata anew."""
        self.rounds = self.gathering = Rounds(own, writer, row_bytes, self._taken_over, limits_of(config))
        self.remote_marker_logs = RemoteMarkerLogs(self.rounds)
        self.row_bytes = row_bytes
        self.writer = writer
        self.lease_ms = config.cluster_lease_ms
        self._engine = own
        self._config, self._stores, self._scratch = config, stores, scratch
        self.follower = MetadataFollower(self, self.follow)
        self._lock = trio.Lock()
        self._looking = trio.Lock()
        self._looked_at = -math.inf
        """When the last look at the database's position began."""
        tails, rows = FileStore(scratch / "tails"), FileStore(scratch / "rows")
        tails.make()
        rows.make()
        self._cold = ByteCache(lambda: own, row_bytes, rows, config.cluster_cache_max_bytes)
        self.logs = SharedLogs(
            stores.place, loaded, self.rounds, self._cold, tails, self._epoch_of, self.ownership.leads
        )
        self.remote_markers = RemoteMarkers(own, row_bytes, self.in_thread, self._open_logs)
        self.lease = Lease(writer, self.lease_ms, self.remote_markers, self.over, self._taken_over)
        self.followed: FollowedLogs | None = None
        """The logs of other brokers that consumers read here; None without `replica.selector.class`."""
        if config.replica_selector_class is not None:
            self.followed = self._followed_logs(scratch)
        self.directory: LogManager
        """The logs, as the rest of the broker sees them."""

    def _followed_logs(self, scratch: Path) -> FollowedLogs:
        copies = FileStore(scratch / "followed")
        copies.make()
        of = self._engine, self.row_bytes, self.in_thread, self.rounds, self._cold, copies, self.ownership
        return FollowedLogs(*of, self.lease_ms)

    def _open_logs(self) -> Collection[PartitionLog]:
        return self.directory.logs() if hasattr(self, "directory") else ()

    def _epoch_of(self, log_id: int) -> int:
        return self.ownership.led.get(slot_of(log_id), 0)

    @property
    def leads(self) -> bool:
        return self.lease.holds

    def leads_partition(self, topic_id: bytes, partition: int) -> bool:
        return self.ownership.leads_partition(topic_id, partition)

    def count_led(self, topic: TopicImage) -> int:
        return sum(self.ownership.leads_partition(topic.topic_id, number) for number in range(topic.partitions))

    def leader(self, topic_id: bytes, partition: int) -> LeaderAndEpoch:
        return self.ownership.leader(topic_id, partition)

    async def newest_leaders(self) -> LeaderOf:
        """As the database has them now."""
        try:
            slots = await self.in_thread(self._engine.slots)
        except StoreUnavailable as error:
            raise PeerUnavailable(f"the owners of the slots cannot be read: {error}") from error
        return Ownership(self.node_id, slots).leader

    def with_leaders(self, topic: TopicImage) -> TopicImage:
        return self.replicas.led(topic)

    def closest(self, topic_id: bytes, partition: int, rack: str, listener: str) -> int | None:
        return self.replicas.closest(topic_id, partition, rack, listener)

    @property
    def active(self) -> bool:
        return bool(self.ownership.led)

    @property
    def is_controller(self) -> bool:
        return self.ownership.is_controller

    @property
    def controller_id(self) -> int | None:
        return self.ownership.controller

    @property
    def answers_hold(self) -> bool:
        return not self.writer.history.is_lost

    def open_logs(self, default_config: Callable[[str], LogConfig]) -> LogManager:
        logs = self.directory = LogManager.over(self.logs.small_files, "fsync", default_config, self.logs)
        self.growth = Growth(
            self._config,
            self._stores.connect(),
            self.writer,
            self.row_bytes,
            logs.logs,
            self._scratch,
            background_tasks=lambda: logs.background_tasks(time.monotonic()),
            sweeps=lambda: self.is_controller,
            followed=lambda: () if self.followed is None else self.followed.logs(),
            upkeep=logs.upkeep,
        )
        return logs

    def first_producer_id(self) -> int:
        """The database may have lost lower ones."""
        return max(0, self.writer.history.life - 1) << 32

    def keep_metadata(self, kind: str, offset: int, file_name: str, data: bytes) -> list[SyncTask]:
        return [self.logs.keep_file(str(METADATA_PARTITION), kind, offset, file_name, data)]

    def lost_commits(self, tp: TopicPartition) -> bool:
        """Whether the database went back before this broker was the first one to lead the partition again."""
        log = self.directory.opened(tp)
        return self.writer.history.follows_loss and log is not None and log.epochs.rise >= EPOCHS_OF_LIFE

    async def note_position(self) -> None:
        """The database's: this broker may lead no log in which it could read what is durable. Requests share a look."""
        since = trio.current_time()
        async with self._looking:
            if self._looked_at < since:
                began = trio.current_time()
                try:
                    await self.in_thread(self.rounds.engine.position)
                except StoreUnavailable as error:
                    raise PeerUnavailable(str(error)) from error
                self._looked_at = began

    def marker_log(self, tp: TopicPartition, topic_id: bytes) -> PartitionLog | RemoteMarkerLog | None:
        """Into the own log, or as a guest into another broker's; None if it is not opened yet."""
        own = self.directory.opened(tp)
        if own is not None and not own.disowned:
            return own
        return None if self.leads_partition(topic_id, tp.partition) else self.remote_marker_logs.of(tp, topic_id)

    async def read_markers(self, logs: Collection[PartitionLog]) -> bool:
        return await self.remote_markers.apply_external_now(logs)

    def facts(self) -> list[str]:
        return [f"store={self._stores.place.rpartition(' ')[2]}", f"role={'active' if self.active else 'standby'}"]

    def metrics(self, rows: int) -> "Iterator[Metric]":
        from fencepost.broker.metrics.cluster import cluster_metrics  # here: it imports prometheus_client

        yield from cluster_metrics(
            self.writer,
            self._cold.counters,
            self.growth,
            self.row_bytes.counters if isinstance(self.row_bytes, RowObjects) else None,
            active=self.active,
            leader_epoch=self.ownership.slots[METADATA_SLOT].epoch,
            brokers=len(self.peers) + 1,
            followed=0 if self.followed is None else len(self.followed.logs()),
            rows=rows,
        )

    # Running

    async def load_metadata(self, node: Broker) -> None:
        await super().load_metadata(node)
        await self.follower.until_bootstrapped(node)

    async def begin(self, node: Broker, services: trio.Nursery) -> None:
        services.start_soon(self._run)
        self.follower.begin(node, services)

    def begin_upkeep(self, node: Broker, services: trio.Nursery) -> None:
        if self.followed is not None:
            services.start_soon(self.followed.run, node.metadata)

    async def _run(self) -> None:
        """Read what clients want of old rows, keep the stores small, and absorb markers, until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._cold.run)
                nursery.start_soon(self.growth.run)
                nursery.start_soon(self.remote_markers.run)
        finally:
            self.links.close()

    def _taken_over(self) -> None:
        """End this run: what waits for a commit fails now, because it will never be committed."""
        self.over.set()
        for log in list(self._open_logs()):
            if not log.disowned:
                log.disown(f"broker {self.node_id} is not active any more")

    def wrapped(self, api_key: int, handle: Handler) -> Handler:
        """It confirms its answers, and forwards what only another broker can do."""
        inner = confirmed(self.lease, api_key, forwarded(self, self.follower, api_key, handle))
        return with_remote_offsets(self, api_key, inner)

    def _route(self, broker: int) -> Route | None:
        peer = self.peers.get(broker)
        return None if peer is None else route_to(self._config, peer)

    async def look(self) -> tuple[list[Member], list[Slot]]:
        """Read the brokers and the slots once, for SlotMoves: it follows each change. Raises StoreUnavailable."""
        members, slots = await self.in_thread(lambda: (self._engine.members(), self._engine.slots()))
        self.peers = peers_of(members, self.node_id, self.lease_ms)
        self.ownership.see(slots)
        self.replicas.see(self.peers.values())
        return members, slots

    async def follow(self, node: Broker) -> bool:
        """Read the new rows of the metadata log, which another broker leads. Returns whether there were any."""
        shared = node.metadata_log.segments
        assert isinstance(shared, SharedLog), "the logs of a cluster"
        start = shared.end_offset
        read = partial(foreign_rows, self._engine, self.row_bytes, shared.log_id, start, LAST_OFFSET)
        try:
            rows = await self.in_thread(read)
        except StoreUnavailable as error:
            logger.debug("the metadata log cannot be read: %s", error)
            return False
        except CorruptLogFile as error:  # or its object was deleted while this process was paused: it was merged
            logger.warning("the metadata log is read again from its start: %s", error)
            self.over.set()
            return False
        if rows and rows[0].row.base > start:
            self.over.set()  # a snapshot has what was deleted meanwhile: the next run begins with it
            return False
        if self.over.is_set() or not shared.is_open or not rows:
            return False
        assert shared.end_offset == start, "only one task follows a log"
        shared.apply_external(rows)
        return True

    async def load(self, slots: Collection[int]) -> list[LoadedLog]:
        """The logs of these slots, but not that of the metadata, which is here. Raises as `load_logs`."""
        wanted = partial(load_logs, self._engine, self.row_bytes, slots, lambda log: log != METADATA_LOG)
        return await self.in_thread(wanted)

    async def change(self, change: Callable[[Identity, Engine], ResultT]) -> ResultT:
        """Run a fenced change of the database, over the connection of the commits. Raises Fenced and Stopped."""
        found: list[ResultT] = []

        def run(identity: Identity) -> None:
            found.append(change(identity, self.writer.engine))

        await trio.to_thread.run_sync(self.writer.change, run)
        return found[-1]

    async def in_thread(self, call: Callable[[], ResultT]) -> ResultT:
        """Run what uses this run's own connection; one call at a time."""
        async with self._lock:
            return await trio.to_thread.run_sync(call, abandon_on_cancel=False)

    def stop_waiting(self) -> bool:
        if self.writer.unavailable or self.writer.fenced:
            self.writer.stop()
            return True
        return False

    def close(self, logs: LogManager) -> None:
        """Commit what waits, unless this broker was taken over or the database is unavailable.

        Then give all logs up: what was not committed is not acknowledged.
        """
        if self.stop_waiting():
            for tp in list(logs.partitions()):
                logs.release(tp, f"broker {self.node_id} is not active any more")
        super().close(logs)


def limits_of(config: BrokerConfig) -> RoundLimits:
    return RoundLimits(
        config.cluster_inline_max_bytes,
        config.cluster_inline_bytes_per_second,
        config.cluster_linger_ms / 1000,
        config.cluster_linger_max_bytes,
    )
