"""Runs a broker of a cluster: it joins, serves, and joins again if it was taken over."""

import dataclasses
import logging
import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

import trio

from fencepost.broker.cluster.commit.rounds import RowBytes
from fencepost.broker.cluster.commit.writer import Stopped, Writer
from fencepost.broker.cluster.engine import (
    Engine,
    Fenced,
    Identity,
    Session,
    Slot,
    StillAlive,
    StoreUnavailable,
    slot_of,
)
from fencepost.broker.cluster.history import History, HistoryLost
from fencepost.broker.cluster.objects.owner import CHECK_SECONDS
from fencepost.broker.cluster.ownership import METADATA_LOG, METADATA_SLOT, gathered, spread
from fencepost.broker.cluster.reading.loading import LoadedLog, load_logs
from fencepost.broker.cluster.serving.health import StoreHealth
from fencepost.broker.cluster.serving.members import addresses_text, is_alive, may_own
from fencepost.broker.cluster.serving.membership import Membership
from fencepost.broker.cluster.serving.scratch import Scratch, remove_abandoned, remove_later
from fencepost.broker.cluster.serving.slot_moves import SlotMoves
from fencepost.broker.cluster.serving.status import Status
from fencepost.broker.cluster.serving.stores import Stores, stores_of
from fencepost.broker.config.broker_config import BrokerConfig
from fencepost.broker.listeners import configured_addresses, end_points
from fencepost.broker.network.context import Endpoint
from fencepost.broker.node import Node
from fencepost.broker.peers.login import SECRET_BYTES
from fencepost.coordinator.ports import LogWriteFailed

RETRY_SECONDS = 0.5
STOP_SECONDS = 30.0
"""A broker that stops ends its tasks this long after the end of its lease, whatever they wait for."""

ResultT = TypeVar("ResultT")

logger = logging.getLogger(__name__)


class ClusterBroker:
    """One broker process of a cluster. `run` serves until `stop`."""

    def __init__(self, config: BrokerConfig, stores: Stores | None = None) -> None:
        """`stores`: those that the settings name, or doubles. Raises ConfigError."""
        self.config = config
        self.node: Node | None = None
        """The current run: active, or standby."""
        self.member: Membership | None = None
        self.ready = trio.Event()
        """Set when the broker listens for the first time."""
        self._stores = stores_of(config) if stores is None else stores
        self._health = StoreHealth(self._stores.probes)
        self._status = Status(config.node_id, self._health)
        self._metrics_endpoint: Endpoint | None = None
        self._writer: Writer | None = None
        self._lease_ms = config.cluster_lease_ms
        self._secret = b""
        """What the brokers of the cluster know."""
        self._stopping = trio.Event()
        self._services: trio.Nursery
        """What lives as long as the process."""

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def current(self) -> Node:
        """The current run; call it only when `ready`."""
        assert self.node is not None, "the broker is not ready"
        return self.node

    def stop(self) -> None:
        """Begin a clean shutdown; returns at once.

        From one lease later on nothing waits for the stores any more: another broker may take over then anyway.
        """
        self._stopping.set()
        self._status.stopping = True
        if self._writer is not None:
            self._writer.stop(self._lease_ms / 1000)
        if self.node is not None:
            self.node.stop()

    async def run(self) -> None:
        """Serve until `stop`. Raises what prevents the broker from continuing, in a group."""
        async with trio.open_nursery() as services:
            self._services = services
            services.start_soon(trio.to_thread.run_sync, remove_abandoned, self.config.cluster_cache_directory)
            services.start_soon(self._bound_stop)
            if self.config.metrics_listen is not None:
                self._metrics_endpoint = await self._status.serve(self.config.metrics_listen, services)
                services.start_soon(self._health.run)
            await self._serve()
            services.cancel_scope.cancel()

    async def _bound_stop(self) -> None:
        """After `stop`, end what still waits for the stores when the lease has ended."""
        await self._stopping.wait()
        with trio.move_on_after(self._lease_ms / 1000 + STOP_SECONDS):
            await trio.sleep(self._lease_ms / 1000)
            while True:
                self._stores.interrupt()
                await trio.sleep(RETRY_SECONDS)
        logger.error("the broker did not stop within %.0f s, its tasks are ended", STOP_SECONDS)
        self._services.cancel_scope.cancel()

    async def _serve(self) -> None:
        engine = self._stores.connect()
        cluster_id = self._health.cluster_id = await self._cluster_id(engine)
        row_bytes = await self._available(lambda: self._stores.open_objects(cluster_id))
        if row_bytes is None:
            return
        self._services.start_soon(self._watch_owner, row_bytes)
        self.config = dataclasses.replace(self.config, cluster_id=cluster_id, listeners=_with_ports(self.config))
        lost_life: int | None = None
        while not self.stopping:
            history = History()
            engine.watch(history)
            try:
                session = await self._enter(engine, lost_life)
                if session is not None:
                    await self._serve_incarnation(Writer(engine, session, history=history), row_bytes)
            except HistoryLost as error:
                logger.warning("the broker joins again: %s", error)
            lost_life = history.life if history.is_lost else None

    async def _watch_owner(self, row_bytes: RowBytes) -> None:
        """End the broker with NotOwner as soon as its objects belong to another database."""
        while True:
            await trio.sleep(CHECK_SECONDS)
            try:
                await trio.to_thread.run_sync(row_bytes.check_owner, abandon_on_cancel=True)
            except StoreUnavailable as error:
                logger.debug("the owner of the objects cannot be checked now: %s", error)

    async def _cluster_id(self, engine: Engine) -> str:
        await self._available(self._stores.prepare)
        wanted = self.config.cluster_id or _new_cluster_id()
        found = await self._available(lambda: engine.cluster_id(wanted))
        return wanted if found is None else found

    async def _enter(self, engine: Engine, lost_life: int | None) -> Session | None:
        """Join, after all brokers were fenced if something was lost since this life of the database began."""
        if lost_life is not None:
            await self._available(partial(engine.reset, lost_life))
        self._secret = await self._available(lambda: engine.secret(secrets.token_bytes(SECRET_BYTES))) or b""
        return await self._join(engine)

    async def _join(self, engine: Engine) -> Session | None:
        """A new incarnation, as soon as no other process with this id lives; None if the broker stops before."""
        addresses = addresses_text(self._addresses(), self.config.broker_rack)
        reported = False
        while not self.stopping:
            try:
                return await self._available(lambda: engine.join(self.config.node_id, addresses, self._lease_ms))
            except StillAlive as error:
                if not reported:
                    logger.warning("waiting for its lease to end, or choose another node.id: %s", error)
                    reported = True
                await self._pause(self._lease_ms / 10_000)
        return None

    def _addresses(self) -> dict[str, Endpoint]:
        return {
            point.name: Endpoint(point.host, point.port)
            for point in end_points(self.config, configured_addresses(self.config))
        }

    async def _serve_incarnation(self, writer: Writer, row_bytes: RowBytes) -> None:
        """Stand by until this broker may take over, then serve until it is taken over, or stops."""
        self._writer = writer
        try:
            await self._run_node(writer, row_bytes)
            if not writer.fenced:
                await trio.to_thread.run_sync(self._release, writer)
        except* (Fenced, Stopped, HistoryLost) as errors:  # a nursery wraps them
            logger.warning("this broker lost its place in the cluster, it joins again: %s", _leaf(errors))

    async def _run_node(self, writer: Writer, row_bytes: RowBytes) -> None:
        """One run of the broker; all its connections compare the database with what it knows."""

        def connected() -> Engine:
            engine = self._stores.connect()
            engine.watch(writer.history)
            return engine

        stores = self._stores._replace(connect=connected)
        engine = stores.connect()
        scratch = Scratch(self.config.cluster_cache_directory)
        try:
            async with trio.open_nursery() as loading:
                loading.start_soon(self._keep_lease, writer)
                slots = await self._available(lambda: self._first_slots(writer, engine))
                loaded = (
                    None if slots is None else await self._available(lambda: _load(engine, row_bytes, slots, writer))
                )
                loading.cancel_scope.cancel()
            if loaded is None or slots is None or writer.fenced:
                return
            member = Membership(
                self.config, stores, row_bytes, writer, engine, slots, loaded, scratch.path, self._secret
            )
            with suppress(StoreUnavailable):  # the first step of SlotMoves looks again
                await member.look()
            node = self.node = self._status.node = self.new_node(member)
            self.member = self._status.member = member
            node.metrics_endpoint = self._metrics_endpoint
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(member.lease.keep)
                    nursery.start_soon(_stop_when_over, node, member)
                    await nursery.start(node.run)
                    nursery.start_soon(SlotMoves(node, member, self.config.cluster_active_brokers == "all").run)
                    self.ready.set()
                    if self.stopping:
                        node.stop()
                    await node.stopped.wait()
                    nursery.cancel_scope.cancel()
            except* LogWriteFailed:
                if not member.over.is_set():
                    raise
                logger.warning("this broker was taken over while it started")
        finally:
            self._services.start_soon(remove_later, scratch)

    def _first_slots(self, writer: Writer, engine: Engine) -> list[Slot]:
        """All slots, after this broker took those that no broker holds, and that it should own. Blocks."""
        me, lease_ms, slots = writer.identity.broker, self._lease_ms, engine.slots()
        alive = {one.broker for one in engine.members() if is_alive(one, lease_ms)}
        able = {one.broker for one in engine.members() if may_own(one, lease_ms)}
        spreads = self.config.cluster_active_brokers == "all"
        plan = spread(frozenset({*able, me})) if spreads else gathered(slots, able or {me}, METADATA_SLOT)
        free = [slot.slot for slot in slots if slot.broker not in alive and plan[slot.slot] == me]
        if free:
            writer.change(lambda identity: _take(writer.engine, identity, free, lease_ms))
        return engine.slots()

    async def _keep_lease(self, writer: Writer) -> None:
        """While the broker loads its logs: that may take longer than a lease."""
        while True:
            await trio.sleep(self._lease_ms / 4000)
            try:
                await trio.to_thread.run_sync(writer.renew, abandon_on_cancel=True)
            except (Fenced, Stopped) as error:
                logger.warning("this broker lost its place in the cluster while it loaded its logs: %s", error)
                return

    def new_node(self, member: Membership) -> Node:
        """One run of the broker; simulations give it other parts."""
        return Node(self.config, place=member)

    def _release(self, writer: Writer) -> None:
        try:
            writer.change(writer.engine.release)
        except (Fenced, Stopped) as error:
            logger.info("the slots could not be given up, another broker takes them when the lease ends: %s", error)

    async def _available(self, call: Callable[[], ResultT]) -> ResultT | None:
        """The result, once the stores are available; None if the broker stops before. Raises HistoryLost."""
        reported = False
        while not self.stopping:
            try:
                return await trio.to_thread.run_sync(call)
            except HistoryLost:
                raise
            except StoreUnavailable as error:
                if not reported:
                    logger.warning("the broker waits: %s", error)
                    reported = True
                await self._pause(RETRY_SECONDS)
        return None

    async def _pause(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self._stopping.wait()


def _load(engine: Engine, row_bytes: RowBytes, slots: Sequence[Slot], writer: Writer) -> list[LoadedLog]:
    """The logs that this broker needs: those of its slots, and that of the metadata."""
    mine = {slot.slot for slot in slots if slot.broker == writer.identity.broker}
    return load_logs(engine, row_bytes, {*mine, METADATA_SLOT}, lambda log: log == METADATA_LOG or slot_of(log) in mine)


def _take(engine: Engine, identity: Identity, slots: Sequence[int], lease_ms: int) -> None:
    taken = engine.take_over(identity, slots, lease_ms)
    logger.info("this broker takes slots over broker=%d slots=%d", identity.broker, len(taken))


def _leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _stop_when_over(node: Node, member: Membership) -> None:
    await member.over.wait()
    node.stop()


def _with_ports(config: BrokerConfig) -> tuple[str, ...]:
    """The listeners, with free ports in place of 0: each run of the broker listens on the same ports."""
    listeners = []
    for one in config.client_listeners:
        port = one.port or _free_port(one.host)
        listeners.append(f"{one.name}://{f'[{one.host}]' if ':' in one.host else one.host}:{port}")
    return tuple(listeners)


def _free_port(host: str) -> int:
    with socket.create_server((host, 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _new_cluster_id() -> str:
    from fencepost.broker.metadata.identity import cluster_id_of

    return cluster_id_of(None, 0, None)
