"""A broker's place in its cluster: which slots it leads, who leads the others, which brokers there are."""

import logging
import math
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import trio

from fencepost.broker.cluster.byte_cache import ByteCache
from fencepost.broker.cluster.confirming import confirmed
from fencepost.broker.cluster.engine import (
    LAST_OFFSET,
    SLOTS,
    Engine,
    Fenced,
    Identity,
    Member,
    Slot,
    StoreUnavailable,
    slot_of,
)
from fencepost.broker.cluster.figures import ClusterStats
from fencepost.broker.cluster.followed_logs import FollowedLogs
from fencepost.broker.cluster.growth import Growth
from fencepost.broker.cluster.guest_rows import GuestRows
from fencepost.broker.cluster.guests import GuestLog, GuestLogs
from fencepost.broker.cluster.loading import LoadedLog, load_logs
from fencepost.broker.cluster.members import peers_of
from fencepost.broker.cluster.ownership import METADATA_LOG, METADATA_SLOT, Ownership
from fencepost.broker.cluster.replicas import Replicas
from fencepost.broker.cluster.rounds import RoundLimits, Rounds, RowBytes
from fencepost.broker.cluster.row_objects import RowObjects
from fencepost.broker.cluster.row_reading import foreign_rows
from fencepost.broker.cluster.shared_log import SharedLog
from fencepost.broker.cluster.shared_logs import SharedLogs
from fencepost.broker.cluster.stores import Stores
from fencepost.broker.cluster.writer import Stopped, Writer
from fencepost.broker.config.broker_config import BrokerConfig
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.directory import LogDirectory
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.storage.files import FileStore
from fencepost.broker.log.storage.store import CorruptLogFile, SyncTask
from fencepost.broker.metadata.log import METADATA_PARTITION
from fencepost.broker.network.dispatch import Handler
from fencepost.broker.peers.forwarding import forwarded
from fencepost.broker.peers.links import PeerLinks, Route, route_to
from fencepost.broker.peers.login import PeerLogins
from fencepost.broker.peers.peer import Links, Peer
from fencepost.broker.peers.remote_offsets import with_remote_offsets
from fencepost.protocol.topics import TopicPartition

FOLLOW_SECONDS = 0.1
"""How often a broker looks for free slots, for other brokers, and for new metadata."""

ResultT = TypeVar("ResultT")

logger = logging.getLogger(__name__)


class Membership:
    """One run of a broker in its cluster, as active broker or as standby; the next run begins with another role."""

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
        self.node_id = writer.identity.broker
        self.ownership = Ownership(self.node_id, slots)
        """Who leads what."""
        self.replicas = Replicas(self.ownership, config.broker_rack, config.replica_selector_class is not None)
        """Who serves which partition, for clients."""
        self.peers: dict[int, Peer] = {}
        """The other living brokers by id."""
        self.logins = PeerLogins(secret)
        """Logins between brokers."""
        self.links: Links = PeerLinks(f"broker-{self.node_id}", self._route, self.logins)
        """Connections to them."""
        self.over = trio.Event()
        """Set when this run has to end: the broker was taken over, or has to read the metadata anew."""
        self.place = stores.place
        """The database, for messages."""
        self.rounds = Rounds(own, writer, row_bytes, self._taken_over, limits_of(config))
        self.guests = GuestLogs(self.rounds)
        """Markers for the logs of other brokers."""
        self.row_bytes = row_bytes
        self.writer = writer
        self.lease_ms = config.cluster_lease_ms
        self._engine = own
        self._config, self._connect, self._scratch = config, stores.connect, scratch
        self.following = trio.Lock()
        """Held while the metadata log is followed."""
        self._followed_at = -math.inf
        """When the last look at the metadata log began."""
        self._lock = trio.Lock()
        self._renewal_wanted = trio.Event()
        self._renewed = trio.Event()
        self._confirmed_at = -math.inf
        """When the last look began that found this broker's place and the rows of guests."""
        tails, rows = FileStore(scratch / "tails"), FileStore(scratch / "rows")
        tails.make()
        rows.make()
        self._cold = ByteCache(lambda: own, row_bytes, rows, config.cluster_cache_max_bytes)
        self.logs = SharedLogs(
            stores.place, loaded, self.rounds, self._cold, tails, self._epoch_of, self.ownership.leads
        )
        """What this broker has of the logs."""
        self.guest_rows = GuestRows(own, row_bytes, self.in_thread, self._open_logs)
        """Absorbs the markers of other brokers."""
        self.followed: FollowedLogs | None = None
        """The logs of other brokers that consumers read here; None without `replica.selector.class`."""
        if config.replica_selector_class is not None:
            self.followed = self._followed_logs(scratch)
        self.directory: LogDirectory
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
        """Whether clients may use this broker's logs: it has renewed its lease in time.

        Otherwise another broker may own them already. What this one commits cannot become wrong, but what it reads
        may be old, and its clients must look for the new leader.
        """
        writer = self.writer
        return not writer.fenced and writer.idle_seconds * 1000 < self.lease_ms

    def leads_partition(self, topic_id: bytes, partition: int) -> bool:
        """Whether this broker leads a partition."""
        return self.ownership.leads_partition(topic_id, partition)

    @property
    def active(self) -> bool:
        """Whether this broker leads any slot."""
        return bool(self.ownership.led)

    @property
    def is_controller(self) -> bool:
        """Whether this broker changes the metadata."""
        return self.ownership.is_controller

    @property
    def controller_id(self) -> int | None:
        """The broker that changes the metadata; None while there is none."""
        return self.ownership.controller

    @property
    def figures(self) -> ClusterStats:
        """What this run reports about itself."""
        writer = self.writer
        return ClusterStats(
            active=self.active,
            slots=len(self.ownership.led),
            leader_epoch=self.ownership.slots[METADATA_SLOT].epoch,
            peers=len(self.peers),
            followed=0 if self.followed is None else len(self.followed.logs()),
            lease_age_s=writer.idle_seconds,
            unavailable=writer.unavailable,
            conflict=writer.conflict,
            writer=writer.counters,
            cache=self._cold.counters,
            objects=self.row_bytes.counters if isinstance(self.row_bytes, RowObjects) else None,
            growth=self.growth.counters,
            objects_deleted=self.growth.collector.deleted + self.growth.counters.swept_objects,
        )

    def open_logs(self, default_config: Callable[[str], LogConfig]) -> LogDirectory:
        """The logs of this broker."""
        logs = self.directory = LogDirectory.over(self.logs.small_files, "fsync", default_config, self.logs)
        self.growth = Growth(
            self._config,
            self._connect(),
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
        """Clients use lower ones, which the database has lost, maybe."""
        return max(0, self.writer.history.life - 1) << 32

    def keep_metadata(self, kind: str, offset: int, file_name: str, data: bytes) -> SyncTask:
        """The task that stores a snapshot of the metadata in the database."""
        return self.logs.keep_file(str(METADATA_PARTITION), kind, offset, file_name, data)

    def marker_log(self, tp: TopicPartition, topic_id: bytes) -> PartitionLog | GuestLog | None:
        """Where a marker goes: into the own log, or as a guest into another broker's; None if it is not opened yet."""
        own = self.directory.opened(tp)
        if own is not None and not own.disowned:
            return own
        return None if self.leads_partition(topic_id, tp.partition) else self.guests.of(tp, topic_id)

    # Running

    async def run(self) -> None:
        """Read what clients want of old rows, keep the stores small, and absorb markers, until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._cold.run)
                nursery.start_soon(self.growth.run)
                nursery.start_soon(self.guest_rows.run)
        finally:
            self.links.close()

    async def keep_lease(self) -> None:
        """Renew the lease until the broker is taken over, or cancelled; also while the broker starts."""
        while not self.over.is_set():
            with trio.move_on_after(self.lease_ms / 4000):
                await self._renewal_wanted.wait()
            self._renewal_wanted = trio.Event()
            began = self.now()
            try:
                if await self._look_and_renew():
                    self._confirmed_at = began
            except* (Fenced, Stopped) as error:
                logger.warning("this broker lost its place in the cluster: %s", error.exceptions[0])
                self._taken_over()
            finally:
                self._renewed.set()
                self._renewed = trio.Event()

    async def _look_and_renew(self) -> bool:
        """Renew the lease, and meanwhile absorb markers of other brokers. Returns whether that succeeded, too."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(trio.to_thread.run_sync, self.writer.renew, abandon_on_cancel=True))
            return await self.guest_rows.absorb()

    def _taken_over(self) -> None:
        """End this run: what waits for a commit fails now, because it will never be committed."""
        self.over.set()
        for log in list(self._open_logs()):
            if not log.disowned:
                log.disown(f"broker {self.node_id} is not active any more")

    def wrapped(self, api_key: int, handle: Handler) -> Handler:
        """The handler of an API, which confirms its answers, and forwards what only another broker can do."""
        return with_remote_offsets(self, api_key, confirmed(self, api_key, forwarded(self, api_key, handle)))

    def _route(self, broker: int) -> Route | None:
        """How to reach another broker."""
        peer = self.peers.get(broker)
        return None if peer is None else route_to(self._config, peer)

    def now(self) -> float:
        return self.writer.now()

    def look_at(self, log: PartitionLog) -> None:
        """Have the next confirmation show markers that other brokers wrote to this log."""
        self.guest_rows.want(log)

    async def confirm(self, since: float) -> bool:
        """Whether the database has confirmed at `since` or later that this broker has its place, and has shown it the
        rows of guests.

        Waits for that until the lease ends.
        """
        while max(self._confirmed_at, self.writer.renewed_at if self.guest_rows.impossible else -math.inf) < since:
            if not self.leads:
                return False
            self._renewal_wanted.set()
            with trio.move_on_after(self.lease_ms / 1000):
                await self._renewed.wait()
        return True

    async def absorb_all(self) -> None:
        """Absorb the rows of guests. From then on there are no new ones if this broker leads all slots."""
        self.guest_rows.impossible = False
        absorbed = await self.guest_rows.absorb()
        self.guest_rows.impossible = absorbed and len(self.ownership.led) == SLOTS

    async def newest_slots(self) -> list[Slot]:
        """The slots as the database has them now, which `look` may not have seen yet. Raises StoreUnavailable."""
        return await self.in_thread(self._engine.slots)

    async def look(self) -> tuple[list[Member], list[Slot]]:
        """Read the brokers and the slots once, for SlotMoves: it follows each change. Raises StoreUnavailable."""
        members, slots = await self.in_thread(lambda: (self._engine.members(), self._engine.slots()))
        self.peers = peers_of(members, self.node_id, self.lease_ms)
        self.ownership.see(slots)
        self.replicas.see(self.peers.values())
        return members, slots

    async def follow(self, log: PartitionLog) -> bool:
        """Read the new rows of a log that another broker leads. Returns whether there were any."""
        shared = log.segments
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
        shared.absorb(rows)
        return True

    async def read_metadata(self, node: Any) -> None:
        """Read what the controller has written until now. Requests that come meanwhile share one look."""
        since = self.now()
        async with self.following:
            if self._followed_at < since:
                began = self.now()
                await self.read_to_end(node)
                self._followed_at = began

    async def read_to_end(self, node: Any) -> None:
        """As `read_metadata`, for a caller that holds `following`: until it gives that back, nothing more is read."""
        while not self.is_controller and await self.follow(node.metadata_log):
            if self.over.is_set():
                return
            await node.metadata.follow()

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
        """The broker stops: wait for no commit that cannot come soon. Returns whether that is so."""
        if self.writer.unavailable or self.writer.fenced:
            self.writer.stop()
            return True
        return False

    def close(self, logs: LogDirectory) -> None:
        """Before the logs close: commit what waits, unless this broker was taken over or the database is unavailable.

        Then give all logs up: what was not committed is not acknowledged.
        """
        if self.stop_waiting():
            for tp in list(logs.partitions()):
                logs.release(tp, f"broker {self.node_id} is not active any more")


def limits_of(config: BrokerConfig) -> RoundLimits:
    """The settings of rounds."""
    return RoundLimits(
        config.cluster_inline_max_bytes,
        config.cluster_inline_bytes_per_second,
        config.cluster_linger_ms / 1000,
        config.cluster_linger_max_bytes,
    )
