"""A broker's place in its cluster: active or standby, who leads, which brokers there are.

One broker is active: it owns all slots. The others are standbys: they answer with the active one's address, follow the
metadata log, and take over when the active broker leaves or does not renew its lease.
"""

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import trio

from fencepost.broker.cluster.byte_cache import ByteCache
from fencepost.broker.cluster.confirming import confirmed
from fencepost.broker.cluster.engine import Engine, Fenced, Member, Slot, StoreUnavailable
from fencepost.broker.cluster.figures import ClusterFigures
from fencepost.broker.cluster.forwarding import forwarded
from fencepost.broker.cluster.growth import Growth
from fencepost.broker.cluster.loading import LoadedLog
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
from fencepost.broker.network.context import Endpoint
from fencepost.broker.network.dispatch import Handler
from fencepost.coordinator.metadata.image import PartitionImage, TopicImage

FOLLOW_SECONDS = 0.1
"""How often a standby looks for a free slot and for new metadata, and a broker for other brokers."""

ResultT = TypeVar("ResultT")

logger = logging.getLogger(__name__)


class Peer(NamedTuple):
    """Another broker of the cluster, as clients reach it."""

    node_id: int
    rack: str | None
    listeners: dict[str, Endpoint]
    """Its addresses by listener."""


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
    ) -> None:
        """`own` is a connection for this run's threads, besides the writer's."""
        self.node_id = writer.identity.broker
        self.leader_id = slots[0].broker
        """The active broker; None while there is none."""
        self.leader_epoch = slots[0].epoch
        self.active = self.leader_id == self.node_id
        """Whether this broker owns the slots."""
        self.peers: dict[int, Peer] = {}
        """The other living brokers by id."""
        self.over = trio.Event()
        """Set when this run has to end: the broker was taken over, or may take over."""
        self.place = stores.place
        """The database, for messages."""
        self.rounds = Rounds(own, writer, row_bytes, self._taken_over, limits_of(config))
        self._row_bytes = row_bytes
        self._writer = writer
        self._engine = own
        self._config, self._connect, self._scratch = config, stores.connect, scratch
        self._lease_ms = config.cluster_lease_ms
        self._lock = trio.Lock()
        self._renewal_wanted = trio.Event()
        self._renewed = trio.Event()
        tails, rows = FileStore(scratch / "tails"), FileStore(scratch / "rows")
        tails.make()
        rows.make()
        self._cold = ByteCache(lambda: own, row_bytes, rows, config.cluster_cache_max_bytes)
        self._logs = SharedLogs(stores.place, loaded, self.rounds, self._cold, tails, lambda log_id: self.leader_epoch)
        self._directory: LogDirectory | None = None
        self._led: dict[bytes, tuple[TopicImage, TopicImage]] = {}

    @property
    def leads(self) -> bool:
        """Whether clients may use this broker's logs: it owns the slots, and has renewed its lease in time.

        Otherwise another broker may own them already. What this one commits cannot become wrong, but what it reads
        may be old, and its clients must look for the new leader.
        """
        writer = self._writer
        return self.active and not writer.fenced and writer.idle_seconds * 1000 < self._lease_ms

    @property
    def figures(self) -> ClusterFigures:
        """What this run reports about itself."""
        writer = self._writer
        return ClusterFigures(
            active=self.active,
            leader_epoch=self.leader_epoch,
            peers=len(self.peers),
            lease_age_s=writer.idle_seconds,
            unavailable=writer.unavailable,
            writer=writer.counters,
            cache=self._cold.counters,
            objects=self._row_bytes.counters if isinstance(self._row_bytes, RowObjects) else None,
            growth=self.growth.counters,
            objects_deleted=self.growth.collector.deleted + self.growth.counters.swept_objects,
        )

    def open_logs(self, default_config: Callable[[str], LogConfig]) -> LogDirectory:
        """The logs of this broker."""
        logs = self._directory = LogDirectory.over(self._logs.small_files, "fsync", default_config, self._logs)
        self.growth = Growth(
            self._config,
            self._connect(),
            self._writer,
            self._row_bytes,
            logs.logs,
            self._scratch,
            background_tasks=lambda: logs.background_tasks(time.monotonic()),
        )
        return logs

    def keep_metadata(self, kind: str, offset: int, file_name: str, data: bytes) -> SyncTask:
        """The task that stores a snapshot of the metadata in the database."""
        return self._logs.keep_file(str(METADATA_PARTITION), kind, offset, file_name, data)

    # What clients are told

    def led(self, topic: TopicImage) -> TopicImage:
        """The topic with its leaders: the metadata log holds none, because slots have owners, not partitions."""
        known = self._led.get(topic.topic_id)
        if known is None or known[0] is not topic:
            leader = self.leader_id if self.leader_id is not None else -1
            replicas = (leader,) if leader >= 0 else ()
            partition = PartitionImage(replicas, replicas, leader=leader, leader_epoch=self.leader_epoch)
            known = self._led[topic.topic_id] = topic, replace(topic, assignment=(partition,) * topic.partitions)
        return known[1]

    # Running

    async def run(self) -> None:
        """Read what clients want of old rows, and look after the other brokers, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cold.run)
            nursery.start_soon(self._watch)
            if self.active:
                nursery.start_soon(self.growth.run)

    async def keep_lease(self) -> None:
        """Renew the lease until the broker is taken over, or cancelled; also while the broker starts."""
        while True:
            with trio.move_on_after(self._lease_ms / 4000):
                await self._renewal_wanted.wait()
            self._renewal_wanted = trio.Event()
            try:
                await trio.to_thread.run_sync(self._writer.renew, abandon_on_cancel=True)
            except (Fenced, Stopped) as error:
                logger.warning("this broker lost its place in the cluster: %s", error)
                self._taken_over()
                return
            finally:
                self._renewed.set()
                self._renewed = trio.Event()

    def _taken_over(self) -> None:
        """End this run: what waits for a commit fails now, because it will never be committed."""
        self.over.set()
        for log in () if self._directory is None else self._directory.logs():
            if not log.disowned:
                log.disown(f"broker {self.node_id} is not active any more")

    def wrapped(self, api_key: int, handle: Handler) -> Handler:
        """The handler of an API: an active broker confirms its answers, a standby forwards what it cannot answer."""
        return (confirmed if self.active else forwarded)(self, api_key, handle)

    def active_endpoint(self, listener: str) -> Endpoint | None:
        """The listener of this name of the active broker, if that is another one and known."""
        active = None if self.leader_id is None else self.peers.get(self.leader_id)
        return None if active is None else active.listeners.get(listener)

    def now(self) -> float:
        """The time, for `confirm`."""
        return self._writer.now()

    async def confirm(self, since: float) -> bool:
        """Whether the database has confirmed at `since` or later that this broker is active; True for a standby.

        Waits for that until the lease ends.
        """
        while self.active and self._writer.renewed_at < since:
            if not self.leads:
                return False
            self._renewal_wanted.set()
            with trio.move_on_after(self._lease_ms / 1000):
                await self._renewed.wait()
        return True

    async def _watch(self) -> None:
        while True:
            await self.look()
            await trio.sleep(FOLLOW_SECONDS)

    async def look(self) -> None:
        """Read the brokers and the slots once."""
        try:
            members, slots = await self._in_thread(lambda: (self._engine.members(), self._engine.slots()))
        except StoreUnavailable as error:
            logger.debug("the brokers of the cluster cannot be read: %s", error)
            return
        self.peers = peers_of(members, self.node_id, self._lease_ms)
        if self.active or self.over.is_set():
            return
        owner, epoch = slots[0].broker, slots[0].epoch
        if (owner, epoch) != (self.leader_id, self.leader_epoch):
            self.leader_id, self.leader_epoch = owner, epoch
            self._led.clear()
        alive = {one.broker for one in members if not one.left and one.idle_ms < self._lease_ms}
        if owner is None or owner not in alive:
            self.over.set()

    async def follow(self, log: PartitionLog) -> bool:
        """As a standby, read the new rows of a log. Returns whether there were any."""
        shared = log.segments
        assert isinstance(shared, SharedLog), "the logs of a cluster"
        start = shared.end_offset
        read = partial(foreign_rows, self._engine, self._row_bytes, shared.log_id, start, 1 << 62)
        try:
            rows = await self._in_thread(read)
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
        if rows:
            shared.absorb(rows)
        return bool(rows)

    async def _in_thread(self, call: Callable[[], ResultT]) -> ResultT:
        async with self._lock:
            return await trio.to_thread.run_sync(call, abandon_on_cancel=False)

    def stop_waiting(self) -> bool:
        """The broker stops: wait for no commit that cannot come soon. Returns whether that is so."""
        if self._writer.unavailable or self._writer.fenced:
            self._writer.stop()
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


def peers_of(members: Sequence[Member], node_id: int, lease_ms: int) -> dict[int, Peer]:
    """The other brokers that live."""
    found = {}
    for one in members:
        if one.broker == node_id or one.left or one.idle_ms > 2 * lease_ms:
            continue
        addresses = json.loads(one.addresses)
        listeners = {name: Endpoint(host, port) for name, (host, port) in addresses["listeners"].items()}
        found[one.broker] = Peer(one.broker, addresses["rack"], listeners)
    return found


def addresses_text(listeners: dict[str, Endpoint], rack: str | None) -> str:
    """A broker's addresses for the database."""
    return json.dumps({"rack": rack, "listeners": {name: list(where) for name, where in listeners.items()}})
