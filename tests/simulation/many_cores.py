"""The world of several cores: they, their clients, and what strikes them."""

import dataclasses
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

import trio

from fencepost.broker.cores import place
from fencepost.broker.node import Node
from fencepost.coordinator.partitioning import partition_for
from fencepost.protocol.messages.api26_end_txn import EndTxnRequest
from tests.kit.determinism import nap
from tests.kit.disk_nodes import everything, nothing, sampled
from tests.kit.history import READ_COMMITTED, READ_UNCOMMITTED, Place
from tests.kit.sim_broker import filter_of
from tests.kit.sim_cores import SimCore, SimCores, register_cores, run_sync
from tests.kit.sim_network import Fate, Request, SimNetwork
from tests.simulation.cluster_lines import ClusterLine
from tests.simulation.core_moves import Moves
from tests.simulation.cores_weather import MOVE_KINDS, CoreWeather, Event, blow, markers_in
from tests.simulation.lines import Line
from tests.simulation.node_state import epochs_ahead, open_transactions, state_of_all, strip
from tests.simulation.watch import Watch
from tests.simulation.whole_world import (
    AGAIN_SECONDS,
    LONGEST_TIMEOUT_SECONDS,
    PROGRAMS_END_SECONDS,
    SWEEP_SECONDS,
    Fence,
    Outcome,
    WholeWorld,
)

INTERNAL_PARTITIONS = 3
MOVING = (2, 4, 5, 6, 10, 12, 13, 15)
"""In half of the worlds partitions move: those whose seeds have these remainders by 16."""


class CoresLine(ClusterLine):
    """Asks the core that leads; looks at the transaction when EndTxn is answered."""

    world: "CoresWorld"  # type: ignore[assignment]

    async def ask(self, version: int, request: Any, timeout_seconds: float = 1.0) -> Any:
        answer = await super().ask(version, request, timeout_seconds)
        if isinstance(request, EndTxnRequest) and not answer.error_code:
            self.world.end_answered(request)
        return answer


class CoresWorld(WholeWorld):
    """The world of one seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        random = self.fork()
        self.count = random.choice((2, 3, 3))
        versions = tuple(random.choice((2, 1)) for _ in self.plan.versions)
        self.plan = dataclasses.replace(self.plan, versions=versions, own_client=False, own_copier=False, events=())
        self._moves = Moves(self, Random(seed)) if seed % 16 in MOVING else None
        moves = self._moves is not None
        blows = random.choice((1, 2, 3, 5))
        self.blows = [blow(random, self.plan.seconds, self.count, moves=moves) for _ in range(blows)]
        if seed % 4 == 3:  # late markers of TV1, which only the coordinator's epoch keeps out
            self.plan = dataclasses.replace(self.plan, versions=(1,) * len(versions), partitions=1, transactions=20)
            self.places = [("in", 0), ("side", 0)]
            self.blows = [one._replace(kind="sender dies, marker late") for one in 2 * self.blows]
        self.cores = SimCores(
            {
                **self._write_threads(),
                **filter_of(seed),
                "offsets.topic.num.partitions": str(INTERNAL_PARTITIONS),
                "transaction.state.log.num.partitions": str(INTERNAL_PARTITIONS),
                "share.coordinator.state.topic.num.partitions": "1",
            },
            self.count,
            one_disk=moves,
        )
        self._waiting: list[Event] = []
        """Blows that wait for a request with markers."""
        self._slow: dict[int, float] = {}
        self._healed = SimpleNamespace(calm=False)
        """Calm when nothing goes wrong any more, and all cores are there."""

    # What lines and programs ask

    @property
    def cluster(self) -> SimCores:
        return self.cores

    def line(self, client_id: str, *, spared: bool = False) -> Line:
        if spared:
            self.weather.spared.add(client_id)
        self._lines.append(CoresLine(self, client_id))  # type: ignore[arg-type]
        return self._lines[-1]

    def leader(self, topic: str, partition: int) -> SimCore | None:
        """The core that leads a partition."""
        return self.cores.leader(topic, partition)

    def coordinator(self, topic: str, name: str) -> SimCore | None:
        """The core that coordinates a group or a transactional id."""
        return self.leader(topic, partition_for(name, INTERNAL_PARTITIONS))

    def knows_topics(self, core: SimCore) -> bool:
        """One that has just been reached for the first time may not have read of the topics yet."""
        return core.node is not None and (not self._created or "in" in core.node.metadata.image.topics_by_name)

    _created = False

    def note_fence(self, transactional_id: str, identity: tuple[int, int], version: int) -> None:
        ends = {
            (log.tp.topic, log.tp.partition): log.log_end_offset
            for node in self.cores.nodes
            for log in node.logs.logs()
        }
        self.outcome.fences.append(Fence(transactional_id, *identity, ends, version))

    def end_answered(self, request: EndTxnRequest) -> None:
        """EndTxn is answered when its markers are durable and visible, within the client's patience (decision 0005)."""
        for node in self.cores.nodes:
            epoch = _open_producers(node, self._everywhere).get(request.producer_id, request.producer_epoch + 1)
            if epoch <= request.producer_epoch:
                identity = request.producer_id, request.producer_epoch
                self.outcome.broken.append(
                    f"EndTxn of {request.transactional_id} {identity} is answered, and a log of core"
                    f" {node.place.node_id - 1} waits for its marker"
                )

    @property
    def _everywhere(self) -> list[tuple[str, int]]:
        return [*self.places, *(("out", number) for number in range(self.plan.partitions))]

    # The course of the world

    async def run(self) -> Outcome:
        with _simulated(self.cores):
            try:
                async with trio.open_nursery() as nursery:
                    await self._run(nursery)
                    nursery.cancel_scope.cancel()
            finally:
                self.close_lines()
                self.cores.close()
        return self.outcome

    async def _run(self, nursery: trio.Nursery) -> None:
        cores = self.cores
        for number, config in enumerate(cores.configs):
            network = SimNetwork(nursery, self.weather, self.tell)
            inner = SimNetwork(nursery, CoreWeather(self, number, self.fork()), self.tell)
            flushes = partial(self._flush_seconds_of, number)
            cores.members.append(
                SimCore(cores, number, inner, nursery, network, self.fork(), config, flushes, self.fork())
            )
        self.broker, self.network = cores.members[0], cores.members[0].network
        self.weather.calm, self._flush_factor = True, 1.0
        for core in cores.members:
            assert await core.start(), core.failure
        admin = self.line("admin")
        await self.create_topics(admin, {"in": self.plan.partitions, "side": 1, "out": self.plan.partitions})
        self._created = True
        admin.close()
        async with trio.open_nursery() as side:
            for core in cores.members:
                side.start_soon(self._keep_core_alive, core)
                facade = SimpleNamespace(broker=core, weather=self._healed, outcome=self.outcome)
                side.start_soon(Watch(facade).run)  # type: ignore[arg-type]
            side.start_soon(self._follow, READ_COMMITTED, 0.2)
            side.start_soon(self._follow, READ_UNCOMMITTED, 0.7)
            side.start_soon(self._strike_all)
            if self._moves is not None:
                side.start_soon(self._moves.run)
                side.start_soon(self._moves.watch)
            with trio.move_on_after(PROGRAMS_END_SECONDS) as limit:
                await self._run_programs()
            if limit.cancelled_caught:
                self.outcome.broken.append("the programs do not end")
            await nap(LONGEST_TIMEOUT_SECONDS + SWEEP_SECONDS)
            side.cancel_scope.cancel()
        await self._look_back()
        self.outcome.seconds = trio.current_time()
        self.outcome.requests = sum(one.network.frames + one.inner.frames for one in cores.members)
        self.outcome.lives = sum(one.lives for one in cores.members)
        for core in cores.members:
            core.kill()
            await core.ended()

    def _flush_seconds_of(self, number: int) -> float:
        return self._flush_seconds() * (1.0 if self.weather.calm else self._slow.get(number, 1.0))

    async def _keep_core_alive(self, core: SimCore) -> None:
        """What the supervisor does."""
        while True:
            await core.ended()
            if core.failure is not None:
                self.outcome.broken.append(f"core {core.number} died: {core.failure!r}")
            await nap(core.down_seconds)
            core.down_seconds = 0.0
            alive = await core.start()
            self.tell(f"core {core.number} {'is up' if alive else 'dies at its start'}")
            if alive and core.node is not None:
                others = [node for node in self.cores.nodes if node is not core.node]
                self.outcome.broken += epochs_ahead(core.node, others)
            else:
                await nap(AGAIN_SECONDS)

    # Blows

    async def _strike_all(self) -> None:
        async with trio.open_nursery() as self._striking:
            for event in self.blows:
                self._striking.start_soon(self._blow, event)
            while not self.weather.calm:
                await nap(0.05)
        while len(self.cores.nodes) < self.count:
            await nap(0.02)
        self._healed.calm = True

    async def _blow(self, event: Event) -> None:
        await nap(event.at_seconds)
        cores, core = self.cores, self.cores.members[event.core]
        if self.weather.calm:
            return
        self.tell(f"{event.kind}, core {event.core}")
        if event.kind in ("kill", "power cut", "power cut of all"):
            await self.strike_amid(
                partial(self.strike_core, event),
                event.after_calls,
                flushes_only=event.amid_flushes,
                passes=event.after_passes,
                broker=core,
            )
        elif event.kind in MOVE_KINDS:
            assert self._moves is not None
            await self._moves.strike(event)
        elif event.kind == "restart":
            core.down_seconds = event.down_seconds
            await core.stop()
        elif event.kind == "controller down":
            cores.members[0].down_seconds = event.amount
            cores.members[0].kill()
        elif event.kind == "clock jump":
            for one in cores.members:
                one.clock.jump(3600.0 if event.amount > 1 else -3600.0)
        elif event.kind == "slow flushes":
            self._slow[event.core] = 30.0
            await nap(event.amount)
            self._slow.pop(event.core, None)
        else:
            self._waiting.append(event)

    def strike_core(self, event: Event) -> None:
        """End the life of a core, or at a power cut of all cores: what was not synced is left as chance wants."""
        if self.weather.calm:
            return
        fate = self.random.choice((everything, nothing, sampled, sampled))
        all_cores = event.kind == "power cut of all" or (event.kind == "power cut" and self._moves is not None)
        self.tell(f"{event.kind} strikes core {event.core}")
        struck = self.cores.members if all_cores else [self.cores.members[event.core]]
        for core in struck:
            core.down_seconds = event.down_seconds
        for core in struck[:1] if self._moves is not None else struck:  # on one disk they lose their power together
            if event.kind == "kill":
                core.kill()
            else:
                core.power_cut(fate)
        if all_cores:
            self.cores.forget_metadata_end()

    def markers_leave(self, request: Request, receiver: int) -> Fate | None:
        """A request with markers leaves a core: a blow may have waited for that. What becomes of it then."""
        if not self._waiting:
            return None
        event = self._waiting.pop(0)
        sender = int((request.client_id or "").removeprefix("core "))
        dying = self.cores.members[sender if event.kind.startswith("sender") else receiver]
        dying.down_seconds = event.down_seconds
        self.tell(f"{event.kind}: core {sender} sends {len(markers_in(request).markers)} markers to core {receiver}")
        if event.kind == "receiver dies, marker written":
            self._striking.start_soon(self._die_soon, dying, event.amount / 100)
            return Fate(0.001, "after")
        self._die(dying)
        if event.kind == "sender dies, marker late":
            self._striking.start_soon(self._deliver_late, request, dying, receiver, event)
        return Fate(0.0, "before")

    def _die(self, core: SimCore) -> None:
        if core.is_up and not self.weather.calm:
            if self.random.random() < 0.5:
                core.kill()
            else:
                core.power_cut(self.random.choice((everything, nothing, sampled)))

    async def _die_soon(self, core: SimCore, seconds: float) -> None:
        life = core.lives
        await nap(seconds)
        if core.lives == life:
            self._die(core)

    async def _deliver_late(self, request: Request, sender: SimCore, receiver: int, event: Event) -> None:
        """An older life's request comes in the producer's next transaction, if one begins soon: KAFKA-17754's class."""
        life, core, was_closed = sender.lives, self.cores.members[receiver], False
        while sender.node is None or sender.lives == life:
            await nap(0.01)
        ids = {marker.producer_id for marker in markers_in(request).markers}
        with trio.move_on_after(2 * event.amount):
            while not self.weather.calm:
                is_open = core.node is not None and not ids.isdisjoint(_open_producers(core.node, self._everywhere))
                if is_open and was_closed:
                    break
                was_closed |= core.node is not None and not is_open
                await nap(0.002)
        await core.inner._send_copy(request, 0.0)

    # The end

    async def _look_back(self) -> None:
        """What is there at the end, seen live, after the death of all cores, and built anew from the logs alone."""
        cores = self.cores
        if len(cores.nodes) < self.count:
            self.outcome.broken.append(f"{self.count - len(cores.nodes)} cores are not there at the end")
            return
        if self._moves is not None:
            await self._moves.settle()
        self.outcome.still_open = [what for node in cores.nodes for what in open_transactions(node)]
        metadata = {str(sorted(node.metadata.image.topics_by_name.items())) for node in cores.nodes}
        if len(metadata) > 1:
            self.outcome.broken.append("cores differ in their metadata")
        with trio.move_on_after(PROGRAMS_END_SECONDS) as limit:
            await self._read_everything("live")
            self.outcome.live = await state_of_all(cores.nodes)
            await self._start_anew(stripped=False)
            await self._read_everything("after a crash")
            await self._start_anew(stripped=True)
            self.outcome.rebuilt = await state_of_all(cores.nodes)
        if limit.cancelled_caught:
            self.outcome.broken.append("the logs cannot be read at the end")

    async def _start_anew(self, stripped: bool) -> None:
        cores = self.cores
        for core in cores.members:
            core.kill()
            await core.ended()
        for core in cores.members if stripped else ():
            strip(core.disk)
        cores.forget_metadata_end()
        for core in cores.members:
            assert await core.start(), core.failure
        await nap(1.0)  # coordinators load


def _open_producers(node: Node, places: Collection[Place]) -> dict[int, int]:
    """The producers with an open transaction in one of these partitions of a broker, with their epochs there."""
    return {
        entry.producer_id: entry.epoch
        for log in node.logs.logs()
        if (log.tp.topic, log.tp.partition) in places
        for entry in log.producers.entries()
        if entry.txn_first_offset >= 0
    }


@contextmanager
def _simulated(cores: SimCores) -> Iterator[None]:
    """What of the product a simulation replaces."""
    before, sleep, to_thread = (place.register_cores, place.next_start), trio.sleep, trio.to_thread.run_sync
    place.register_cores, place.next_start = register_cores, lambda root: cores.next_start()  # type: ignore[misc]
    trio.sleep, trio.to_thread.run_sync = nap, run_sync  # type: ignore[assignment]
    try:
        yield
    finally:
        place.register_cores, place.next_start = before
        trio.sleep, trio.to_thread.run_sync = sleep, to_thread
