"""A broker, its disk, its network and its clients in one process and one virtual time: one seed is one world."""

import errno
from collections.abc import Collection
from dataclasses import dataclass, field
from random import Random

import trio

from fencepost.broker.log.storage.store import FlushFailed
from tests.kit.determinism import nap, run_seeded
from tests.kit.disk_faults import Fault
from tests.kit.disk_nodes import everything, nothing, sampled
from tests.kit.history import READ_COMMITTED, READ_UNCOMMITTED, History, Place, Reader
from tests.kit.sim_broker import SimBroker, filter_of, sim_config
from tests.kit.sim_network import SimNetwork
from tests.simulation.broker_world import BrokerWorld
from tests.simulation.lines import Line
from tests.simulation.node_state import NodeState, epochs_ahead, open_transactions, rebuilt_state, state_of
from tests.simulation.own_client import OwnCopier, OwnWriter
from tests.simulation.plan import Event, Plan
from tests.simulation.sim_readers import RawBatch, follow, read_all
from tests.simulation.sim_writers import Copier, PlainWriter, Program
from tests.simulation.watch import Watch

LONGEST_TIMEOUT_SECONDS = 4.0
PROGRAMS_END_SECONDS = 120.0
AGAIN_SECONDS = 0.05
"""Between two attempts to start a broker."""
SWEEP_SECONDS = 1.0


@dataclass(frozen=True)
class Fence:
    """Somebody became the producer of an id; the ends of all open logs at the moment when he learned of it."""

    transactional_id: str
    producer_id: int
    epoch: int
    ends: dict[Place, int]
    version: int = 2
    """Of the transaction protocol."""


@dataclass
class Outcome:
    """What a world leaves for the oracles to judge."""

    seed: int
    trace: list[str]
    history: History
    raw: dict[Place, list[RawBatch]] = field(default_factory=dict)
    fences: list[Fence] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """What was seen to be wrong while the world ran."""
    live: NodeState | None = None
    rebuilt: NodeState | None = None
    still_open: list[str] = field(default_factory=list)
    seconds: float = 0.0
    requests: int = 0
    lives: int = 0


class WholeWorld(BrokerWorld):
    """The world of one seed. `version` forces all clients to TV1 or TV2, and spares nobody."""

    def __init__(self, seed: int, version: int | None = None, never_late: Collection[str] = ()) -> None:
        random = Random(seed)
        self.plan = Plan.of(random, version)
        self.history = History([], [], {READ_COMMITTED: {}, READ_UNCOMMITTED: {}}, [])
        self.outcome = Outcome(seed, [], self.history)
        super().__init__(random, self.outcome.trace, never_late)
        self.writers_done = False
        self.places = [("in", number) for number in range(self.plan.partitions)] + [("side", 0)]
        self._spares = version is None
        self._flushes = self.fork()
        self._expected_failures = self._flushes_failed = 0
        self._stopping = self._stopped_when_full = False

    # What programs ask

    def line(self, client_id: str, *, spared: bool = False) -> Line:
        """A client's line to the broker; `spared` where his requests may not come late, or twice."""
        if spared and self._spares:
            self.weather.spared.add(client_id)
        return super().line(client_id)

    def note_fence(self, transactional_id: str, identity: tuple[int, int], version: int) -> None:
        """Somebody has become the producer of an id."""
        node = self.broker.node
        if node is not None:
            ends = {(log.tp.topic, log.tp.partition): log.log_end_offset for log in node.logs.logs()}
            self.outcome.fences.append(Fence(transactional_id, *identity, ends, version))

    def start_program(self, program: Program) -> None:
        """A task for a program; one more where the one it has stands still."""
        program.nursery.start_soon(program.run)

    def _write_threads(self) -> dict[str, str]:
        return {"log.write.thread.min.bytes": "1"} if self.outcome.seed % 2 else {}

    # The course of the world

    async def run(self) -> Outcome:
        """Everything, from the first start to the last look."""
        async with trio.open_nursery() as nursery:
            self.network = SimNetwork(nursery, self.weather, self.tell)
            broker = self.broker = SimBroker(
                nursery,
                self.network,
                self.fork(),
                sim_config({**self._write_threads(), **filter_of(self.outcome.seed)}),
                self._flush_seconds,
                self.fork(),
            )
            self._flush_factor = 1.0
            assert await broker.start()
            watch, admin = Watch(self), self.line("admin")
            await self.create_topics(admin, {"in": self.plan.partitions, "side": 1, "out": self.plan.partitions})
            admin.close()
            async with trio.open_nursery() as side:
                side.start_soon(self._keep_alive)
                side.start_soon(watch.run)
                side.start_soon(self._follow, READ_COMMITTED, 0.2)
                side.start_soon(self._follow, READ_UNCOMMITTED, 0.7)
                with trio.move_on_after(PROGRAMS_END_SECONDS) as limit:
                    await self._run_programs()
                if limit.cancelled_caught:
                    self.outcome.broken.append("the programs do not end")
                await nap(LONGEST_TIMEOUT_SECONDS + SWEEP_SECONDS)
                side.cancel_scope.cancel()
            await self._look_back()
            self.outcome.seconds, self.outcome.requests = trio.current_time(), self.network.frames
            self.outcome.lives = broker.lives
            nursery.cancel_scope.cancel()
        self.close_lines()
        return self.outcome

    async def _run_programs(self) -> None:
        """Faults and programs side by side; then calm; then the programs end by themselves."""
        plan = self.plan
        async with trio.open_nursery() as copiers:
            if plan.copier is not None:
                self.history.transforms.append(("in", "out"))
                self._begin(self._copier(plan.copier), copiers)
            async with trio.open_nursery() as writers:
                for number, version in enumerate(plan.versions):
                    writer = PlainWriter(self, f"writer{number}", version, self.fork(), self.places, plan.transactions)
                    self._begin(writer, writers)
                if plan.own_client:
                    own = OwnWriter(self, "own", self.fork(), self.places, plan.transactions)
                    self._begin(own, writers)
                for event in plan.events:
                    writers.start_soon(self._strike, event)
                await nap(plan.seconds)
                self.tell("from here on nothing goes wrong any more")
                self.weather.calm = True
                self._flush_factor = 1.0
                self.broker.disk.faults, self.broker.disk.room_bytes = [], None
                copiers.start_soon(self._operate)
            self.writers_done = True

    def _begin(self, program: Program, nursery: trio.Nursery) -> None:
        program.nursery = nursery
        self.start_program(program)

    def _copier(self, version: int) -> Program:
        if self.plan.own_copier:
            return OwnCopier(self, "copier", self.fork(), "in", "out")
        return Copier(self, "copier", version, self.fork(), "in", "out", self.plan.partitions)

    async def _follow(self, isolation: str, pause_seconds: float) -> None:
        reader = Reader(isolation, isolation)
        self.history.readers.append(reader)
        line = self.line(f"follower {isolation}")
        await follow(line, reader, self.places, pause_seconds)

    # Blows

    def _flush_seconds(self) -> float:
        """Most files share the wait of the one before; between the others a power cut may come."""
        if self._flushes.random() < 0.5:
            return 0.0
        return self._flushes.uniform(0.0, self.plan.flush_seconds) * self._flush_factor

    async def _keep_alive(self) -> None:
        """What an init system does: start the broker again when it is gone."""
        broker = self.broker
        while True:
            await broker.ended()
            if broker.failure is not None and not self._is_expected(broker.failure):
                self.outcome.broken.append(f"the broker died: {broker.failure!r}")
            await nap(self._down_seconds)
            self._stopping = self._stopped_when_full = False
            alive = await broker.start()
            self.tell("the broker is up" if alive else "the broker dies at its start")
            if alive and broker.node is not None:
                self.outcome.broken += epochs_ahead(broker.node)
            elif not self._down_seconds:
                await nap(AGAIN_SECONDS)

    _down_seconds = 0.0

    async def _operate(self) -> None:
        """What an operator does when all is calm again: a partition that is offline needs a start."""
        for _ in range(5):
            await nap(0.5)
            if self.broker.node is not None and self.broker.node.partitions.offline():
                if not self._flushes_failed:
                    self.outcome.broken.append(
                        "a partition is offline, and no flush has failed: a full disk is no cause"
                    )
                self.tell("a partition is offline: the broker is started again")
                self.broker.kill()

    def _is_expected(self, failure: BaseException) -> bool:
        if isinstance(failure, BaseExceptionGroup):
            return all(self._is_expected(one) for one in failure.exceptions)
        if isinstance(failure, OSError) and failure.errno == errno.ENOSPC and self._stopped_when_full:
            return True  # what an orderly stop writes did not fit: it must not be called clean
        if isinstance(failure, FlushFailed) and self._expected_failures:
            self._expected_failures -= 1
            return True
        return False

    async def _strike(self, event: Event) -> None:
        await nap(event.at_seconds)
        broker = self.broker
        if event.kind == "clock jump":
            self.tell(f"the wall clock is set by {event.amount:+.0f} s")
            broker.clock.jump(event.amount)
        elif event.kind == "slow flushes":
            self.tell("flushes become slow")
            self._flush_factor = 30.0
            await nap(event.amount)
            self._flush_factor = 1.0
        elif event.kind == "failed flush":
            if broker.node is not None:
                self.tell("the next fdatasync fails")
                self._expected_failures += 1
                self._flushes_failed += 1
                broker.disk.faults = [Fault(0, kinds=("fdatasync",))]
        elif event.kind == "full disk":
            await self._fill(event)
        elif event.kind == "restart":
            self.tell("the broker is stopped in order")
            self._down_seconds = event.down_seconds
            self._stopping, self._stopped_when_full = True, broker.disk.room_bytes is not None
            await broker.stop()
        else:
            await self._kill_amid(event)

    async def _fill(self, event: Event) -> None:
        """The disk has room for some more bytes, and then for none; some time later there is space again."""
        room_bytes = self.random.choice((0, 0, 60, 300, 1000))
        self.tell(f"the disk has room for {room_bytes} bytes")
        self.broker.disk.room_bytes = room_bytes
        self._stopped_when_full |= self._stopping
        await nap(event.amount)
        self.tell("the disk has space again")
        self.broker.disk.room_bytes = None

    async def _kill_amid(self, event: Event) -> None:
        broker = self.broker

        def strike() -> None:
            self.tell(f"{event.kind} in life {broker.lives}")
            self._down_seconds = event.down_seconds
            if event.kind == "kill":
                broker.kill()
            else:
                broker.power_cut(self.random.choice((everything, nothing, sampled, sampled)))

        await self.strike_amid(strike, event.after_calls, flushes_only=event.amid_flushes, passes=event.after_passes)

    # The end

    async def _look_back(self) -> None:
        """What is there at the end, seen live, after another crash, and built anew from the logs alone."""
        node = self.broker.node
        if node is None:
            self.outcome.broken.append("there is no broker at the end")
            return
        self.outcome.still_open = open_transactions(node)
        await self._read_everything("live")
        self.outcome.live = await state_of(node)
        await self.crash()
        await self._read_everything("after a crash")
        self.broker.kill()
        self.outcome.rebuilt = await rebuilt_state(self.broker)

    async def _read_everything(self, name: str) -> None:
        line = self.line(name)
        everywhere = [*self.places, *(("out", number) for number in range(self.plan.partitions))]
        for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
            logs, raw = await read_all(line, everywhere, isolation == READ_COMMITTED)
            if isolation == READ_UNCOMMITTED:
                self.outcome.raw = raw
            self.history.finals[isolation][name] = logs
        line.close()


def run_world(seed: int, version: int | None = None, never_late: Collection[str] = ()) -> Outcome:
    """The world of a seed, from beginning to end."""
    return run_seeded(seed, WholeWorld(seed, version, never_late).run)
