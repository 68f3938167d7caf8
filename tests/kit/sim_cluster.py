"""Brokers of one cluster in this process: the real `ClusterBroker` over SimEngine, in virtual time."""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from random import Random
from typing import Any

import trio

from fencepost.broker.cluster.commit.rounds import RowBytes
from fencepost.broker.cluster.commit.writer import Writer
from fencepost.broker.cluster.engine import Engine, Placement, StoreUnavailable, slot_of
from fencepost.broker.cluster.ownership import METADATA_LOG
from fencepost.broker.cluster.serving.broker import ClusterBroker
from fencepost.broker.cluster.serving.membership import Membership
from fencepost.broker.cluster.serving.stores import Stores
from fencepost.broker.config.broker_config import BrokerConfig
from fencepost.broker.log.durability.sync_threads import Failure
from fencepost.broker.log.storage.store import SyncTask
from fencepost.broker.network.context import Endpoint
from fencepost.broker.node import Node
from fencepost.broker.peers.peer import PeerUnavailable
from tests.kit.determinism import nap
from tests.kit.sim_clock import SimClock
from tests.kit.sim_engine import SimEngine
from tests.kit.sim_network import SimNetwork, exchange
from tests.kit.sim_tables import SimDatabase
from tests.kit.sim_threads import SimEvent, SimLock, SimProcess, in_thread, pause, process, run_sync

LOOK_SECONDS = 0.02

logger = logging.getLogger(__name__)


class StoreWeather:
    """What becomes of requests to the database and to the object store, until it is calm."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.calm = True
        self.down_until = 0.0
        """Until then no store can be reached."""
        self.slowest = random.choice((0.001, 0.005, 0.03))
        self.lost = random.choice((0.0, 0.01, 0.05))

    def delay(self) -> float:
        """Seconds of one way."""
        return self.random.uniform(0.0001, self.slowest)

    def fate(self) -> str:
        """`ok`, `before`: lost, `after`: its answer is lost, `held`: it arrives later."""
        if self.calm or self.random.random() >= self.lost:
            return "ok"
        return self.random.choice(("before", "after", "held"))


class FarEngine:
    """One broker's connection to the database."""

    def __init__(self, cluster: "SimCluster", broker: "SimMember") -> None:
        self._cluster = cluster
        self._broker = broker
        self._engine = SimEngine(cluster.database)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._engine, name)

        def call(*arguments: Any, **options: Any) -> Any:
            return self._call(name, lambda: method(*arguments, **options))

        return call

    def _call(self, name: str, run: Callable[[], Any]) -> Any:
        if not in_thread():
            return run()  # at the end of a broker, its event loop commits
        cluster = self._cluster
        self._broker.travel()
        fate = cluster.weather.fate()
        if cluster.now() < cluster.weather.down_until or fate == "before":
            raise StoreUnavailable(f"{name} is lost")
        if fate == "held":
            cluster.database.in_flight.append(run)
            raise StoreUnavailable(f"{name} is on its way")
        answer = run()
        self._broker.travel()
        if fate == "after":
            raise StoreUnavailable(f"the answer to {name} is lost")
        return answer


class FarObjects:
    """One broker's way to the objects, as `RowBytes`."""

    def __init__(self, cluster: "SimCluster", broker: "SimMember", engine: Engine) -> None:
        self._cluster = cluster
        self._broker = broker
        self._engine = engine

    def put(self, parts: Sequence[bytes | bytearray | memoryview]) -> int:
        (object_id,) = self._engine.claim(1)
        fate = self._travel("put")
        self._cluster.objects[object_id] = b"".join(parts)
        if fate != "ok":
            raise StoreUnavailable("the answer to put is lost")
        return object_id

    def read(self, place: Placement) -> bytes:
        self._travel("get")
        return self._cluster.objects[place.object_id][place.position : place.position + place.size_bytes]

    def read_many(self, places: Sequence[Placement]) -> Iterator[bytes]:
        return map(self.read, places)

    def check_owner(self) -> None:
        """They have one database."""

    def forget_claims(self) -> None:
        """Every claim is used at once."""

    def ids(self) -> Iterator[int]:
        self._travel("list")
        return iter(list(self._cluster.objects))

    def _travel(self, name: str) -> str:
        if not in_thread():
            return "ok"
        self._broker.travel()
        fate = self._cluster.weather.fate()
        if fate == "before" or self._cluster.now() < self._cluster.weather.down_until:
            raise StoreUnavailable(f"{name} is lost")
        return fate


class SimSyncs:
    """`FlushThreads` in virtual time."""

    is_busy = True

    def is_brief(self, count: int, size_bytes: int) -> bool:
        return False

    def sync_inline(self, sync_targets: Sequence[SyncTask]) -> list[Failure]:
        raise AssertionError("a commit is never brief")

    async def sync(self, sync_targets: Sequence[SyncTask]) -> list[Failure]:
        failures: list[Failure] = []
        for number, target in enumerate(sync_targets):
            try:
                await run_sync(target.sync)
            except OSError as error:
                failures.append((number, error))
        return failures

    def close(self) -> None:
        """Nothing to end."""


class SimLinks:
    """One broker's connections to the others."""

    def __init__(self, member: "SimMember") -> None:
        self._member = member
        self._correlation = 0

    async def ask(self, broker: int, request: Any, version: int) -> Any:
        """As `Links.ask`; each request has a connection of its own."""
        member = self._member
        other = next(one for one in member.cluster.members if one.number == broker)
        paused = max(member.paused_until, other.paused_until) - trio.current_time()
        await nap(member.cluster.weather.delay() + max(0.0, paused))
        if member.cluster.weather.fate() != "ok":
            raise PeerUnavailable(f"the request to broker {broker} is lost")
        try:
            call = await other.network.call(f"broker {member.number}")
        except OSError as error:
            raise PeerUnavailable(f"broker {broker} cannot be reached") from error
        try:
            self._correlation += 1
            return await exchange(call, self._correlation, version, request, "broker")
        except OSError as error:
            raise PeerUnavailable(f"broker {broker} does not answer") from error
        finally:
            call.cut()

    def close(self) -> None:
        """Nothing is kept."""


class _Node(Node):
    """One run, which clients reach from its start until it has drained."""

    def __init__(self, member: "SimMember", config: BrokerConfig, clock: SimClock, membership: Membership) -> None:
        entropy = member.random.randbytes
        super().__init__(config, clock, entropy, threads=SimSyncs(), listening=False, place=membership)
        self._member = member

    async def run(self, task_status: trio.TaskStatus[Endpoint] = trio.TASK_STATUS_IGNORED) -> None:
        try:
            async with trio.open_nursery() as nursery:
                endpoint = await nursery.start(super().run)
                if self._member.node is self:  # else it was killed meanwhile, or stops already
                    assert self.server is not None
                    self._member.network.attach(self.server)
                task_status.started(endpoint)
        finally:
            if self.server is not None:
                self._member.network.detach(self.server)


class _Broker(ClusterBroker):
    """With the simulation's clock and threads."""

    def __init__(self, member: "SimMember", config: BrokerConfig, stores: Stores) -> None:
        super().__init__(config, stores)
        self._member = member

    async def _serve_incarnation(self, writer: Writer, row_bytes: RowBytes) -> None:
        writer.__dict__.update(
            _lock=SimLock(), _stopping=SimEvent(), _monotonic=self._member.cluster.now, renewed_at=trio.current_time()
        )
        await super()._serve_incarnation(writer, row_bytes)

    def new_node(self, membership: Membership) -> Node:
        membership._cold._engine_lock = SimLock()  # type: ignore[assignment]
        membership.links = SimLinks(self._member)
        clock = SimClock()
        node = _Node(self._member, self.config, clock, membership)
        growth = membership.growth
        if growth is not None:
            growth._now_ms = growth.compactions._now_ms = clock.now_ms
        return node


class SimMember:
    """One broker of the cluster, and its lives."""

    def __init__(
        self, cluster: "SimCluster", number: int, config: BrokerConfig, random: Random, network: SimNetwork
    ) -> None:
        self.cluster = cluster
        self.number = number
        self.random = random
        self.network = network
        self.broker: _Broker | None = None
        self.lives = 0
        self.paused_until = 0.0
        """Until then nothing that it sends arrives anywhere, and nothing arrives there."""
        self.failure: BaseException | None = None
        self._config = config
        self._scope = trio.CancelScope()
        self._process = SimProcess()
        self._ended = trio.Event()
        self._ended.set()

    def travel(self) -> None:
        """In a thread: a message goes one way."""
        pause(self.cluster.weather.delay())
        while self.cluster.now() < self.paused_until:
            pause(self.paused_until - self.cluster.now())

    @property
    def node(self) -> Node | None:
        """The current run, if it can be reached."""
        node = None if self.broker is None else self.broker.node
        server = None if node is None or node.stopping else node.server
        return node if server is not None and server._nursery is not None else None

    @property
    def member(self) -> Membership | None:
        """The place of the current run, if that can be reached."""
        return None if self.node is None or self.broker is None else self.broker.member

    @property
    def is_active(self) -> bool:
        """Whether it believes so."""
        return self.member is not None and self.member.active

    def led(self) -> Collection[int]:
        """The slots that it leads, as it believes."""
        return () if self.member is None else self.member.ownership.led

    def start(self) -> None:
        """Begin a life."""
        assert self.broker is None, "it lives"
        self.lives += 1
        stores = Stores(
            "database:",
            lambda: FarEngine(self.cluster, self),
            lambda cluster_id: FarObjects(self.cluster, self, FarEngine(self.cluster, self)),
        )
        self.broker = _Broker(self, self._config, stores)
        self._scope, self._process, self._ended = trio.CancelScope(), SimProcess(), trio.Event()
        self.cluster.nursery.start_soon(self._live, self.broker, self._process, self._ended)

    async def _live(self, broker: _Broker, owner: SimProcess, ended: trio.Event) -> None:
        process.set(owner)
        try:
            with self._scope:
                await broker.run()
        except Exception as error:  # noqa: BLE001, the process would end of it, whatever it is
            if not owner.killed:
                self.failure = error
        finally:
            if self.broker is broker:
                self.broker = None
                self.network.detach()
            ended.set()

    async def kill(self) -> None:
        """Kill -9, this very moment."""
        self.broker = None
        self.network.detach()
        self._process.kill()
        self._scope.cancel()
        await self._ended.wait()

    async def stop(self) -> None:
        """End it in order."""
        if self.broker is not None:
            self.broker.stop()
            await self._ended.wait()


class SimCluster:
    """The stores, and the brokers."""

    def __init__(self, nursery: trio.Nursery, random: Random, weather: StoreWeather) -> None:
        clock = trio.lowlevel.current_clock()
        self.now = clock.current_time
        self.nursery = nursery
        self.random = random
        self.weather = weather
        self.database = SimDatabase(lambda: int(self.now() * 1000))
        self.objects: dict[int, bytes] = {}
        self.members: list[SimMember] = []

    async def run(self, collect_idle_ms: int) -> None:
        """Deliver what is in flight, and collect garbage, until cancelled."""
        while True:
            await nap(self.random.uniform(0.01, 0.1))
            if self.database.in_flight and self.random.random() < 0.3:
                self.database.deliver()
            if self.random.random() < 0.5:
                engine = SimEngine(self.database)
                doomed = engine.doomed(collect_idle_ms)
                for object_id in doomed:
                    self.objects.pop(object_id, None)
                engine.forget(doomed)

    def owner(self, log: int) -> SimMember | None:
        """The broker that owns a log, according to the database."""
        number = self.database.slots[slot_of(log)].broker
        return next((member for member in self.members if member.number == number), None)

    @property
    def nodes(self) -> list[Node]:
        """The brokers that live."""
        return [member.node for member in self.members if member.node is not None]

    async def active(self) -> SimMember:
        """The owner of the metadata log, as soon as all slots are led by brokers that know so."""
        while True:
            led = {(slot, member.number) for member in self.members for slot in member.led()}
            if {(slot.slot, slot.broker) for slot in self.database.slots} == led:
                owner = self.owner(METADATA_LOG)
                assert owner is not None
                return owner
            await nap(LOOK_SECONDS)
