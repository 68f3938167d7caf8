"""One chaos run: its processes, the faults that meet them, the settling and the reading of everything at the end."""

import multiprocessing
import os
import random
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import trio

from tests.kit.broker_process import BrokerProcess
from tests.kit.history import READ_COMMITTED, History, Log, Place, Reader, Verdict, Writer, check
from tests.kit.wire import Wire
from tests.kit.workload_proxy import relay
from tests.kit.workload_readers import fetch_places, read_all_by_wire, read_everything
from tests.kit.workload_roles import READERS, TRANSFORMS, WRITERS, play, topics
from tests.kit.workload_writers import FENCED, GAVE_UP, LOOSE_TOPIC, TRANSACTION_TOPIC, Task

NETWORK = "network"
SEGMENT_BYTES = 40_000
SETTLE_SECONDS = 120.0
STALL_SECONDS = 10.0
OPEN_SECONDS_MAX = 60.0
_FORKS = multiprocessing.get_context("fork")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run is made of. `transactional` producers speak each protocol; the timeout is theirs."""

    seconds: float
    seed: str
    durability: str = "fsync"
    partitions: int = 3
    timeout_ms: int = 4000
    transactional: int = 2
    transforms: int = 2
    """Members of each transform's group; only the first is a static one, the others make it rebalance."""
    bad_network: bool = True
    raw: int = 0
    """Producers without idempotence, who never send twice."""
    readers: tuple[str, ...] = READERS
    settings: Mapping[str, str] = field(default_factory=dict)
    """The broker's."""

    @property
    def roles(self) -> list[tuple[str, str]]:
        """(role, name) of every process."""
        several = [(role, f"{role}-{number}") for role in ("tv1", "tv2") for number in range(self.transactional)]
        several += [(role, f"{role}-{number}") for role in TRANSFORMS for number in range(self.transforms)]
        several += [("raw", f"raw-{number}") for number in range(self.raw)]
        return [*several, *((role, role) for role in ("loose1", "loose2", *self.readers))]

    @property
    def places(self) -> list[Place]:
        """All partitions."""
        return [(topic, number) for topic in topics() for number in range(self.partitions)]


@dataclass(slots=True)
class _Process:
    role: str
    name: str
    incarnation: int
    process: ForkProcess
    errors: Path
    resume_at: float | None = None

    def signal(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        if self.process.exitcode is None:
            os.kill(self.process.pid, number)

    def end(self) -> None:
        self.process.kill()
        self.process.join()


@dataclass
class Run:
    """One run in `work_dir`. `go` gives the verdict."""

    plan: Plan
    work_dir: Path
    faults: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    settle_seconds: float = 0.0
    """From the death of all writers until no transaction was open any more."""

    def __post_init__(self) -> None:
        self._chance = random.Random(self.plan.seed)
        self._listener = socket.create_server(("127.0.0.1", 0)) if self.plan.bad_network else None
        advertise = [] if self._listener is None else ["--advertise", f"127.0.0.1:{self._listener.getsockname()[1]}"]
        self._broker = self._make_broker(
            self.work_dir / "broker",
            data_dir=self.work_dir / "data",
            settings={"group.initial.rebalance.delay.ms": "0", **self.plan.settings},
            arguments=["--durability", self.plan.durability, *advertise],
        )
        self._processes: dict[str, _Process] = {}
        self._zombies: list[_Process] = []
        self._incarnations: Counter[str] = Counter()
        self._ends_at = 0.0
        self._made: Counter[str] = Counter()
        self._made_before: Counter[str] = Counter()
        for kind in ("writers", "readers", "errors"):
            (self.work_dir / kind).mkdir(parents=True, exist_ok=True)

    def _make_broker(self, work_dir: Path, **words: Any) -> BrokerProcess:
        return BrokerProcess(work_dir, **words)

    def go(self) -> Verdict:
        """Work, break things, settle, check."""
        self._broker.start()
        try:
            self._create_topics()
            if self._listener is not None:
                self._start(NETWORK, NETWORK)
            for role, name in self.plan.roles:
                self._start(role, name)
            self._break_things(time.monotonic() + self.plan.seconds)
            finals = self._settle()
        finally:
            for process in [*self._processes.values(), *self._zombies]:
                process.end()
            self._broker.__exit__(None, None, None)
            if self._listener is not None:
                self._listener.close()
        verdict = check(self._history(finals))
        verdict.add("a process failed", self.failures)
        bound = self.plan.timeout_ms / 1000 + OPEN_SECONDS_MAX
        verdict.add("transactions stayed open", [self.settle_seconds] if self.settle_seconds > bound else [])
        return verdict

    @property
    def _address(self) -> str:
        """What clients are told: the broker's own address, or that of the bad network before it."""
        return self._broker.address if self._listener is None else f"127.0.0.1:{self._listener.getsockname()[1]}"

    def _create_topics(self) -> None:
        with Wire(self._broker.connect()) as wire:
            for topic in topics():
                wire.create_topic(topic, self.plan.partitions, internal_segment_bytes=str(SEGMENT_BYTES))

    # Processes

    def _start(self, role: str, name: str) -> None:
        self._incarnations[name] += 1
        label = f"{name}.{self._incarnations[name]}"
        errors = self.work_dir / "errors" / f"{label}.txt"
        if role == NETWORK:
            work: Callable[[], object] = partial(trio.run, relay, self._listener, self._broker.port, self.plan.seed)
        else:
            work = partial(play, self._task(role, name, label), role, self.plan.places)
        process = _FORKS.Process(target=_work, args=(work, errors), daemon=True)
        process.start()
        self._processes[name] = _Process(role, name, self._incarnations[name], process, errors)

    def _task(self, role: str, name: str, label: str) -> Task:
        return Task(
            address=self._broker.address if role == "wire" else self._address,
            name=name,
            label=label,
            seed=self.plan.seed,
            partitions=self.plan.partitions,
            timeout_ms=self.plan.timeout_ms,
            target=role,
            journal=self.work_dir / ("readers" if role in READERS else "writers") / f"{label}.jsonl",
        )

    def _look_after(self) -> None:
        """Start again who was killed or fenced; wake who has slept enough; whoever else ended has failed."""
        now = time.monotonic()
        for process in [*self._processes.values(), *self._zombies]:
            if process.resume_at is not None and now >= process.resume_at:
                process.signal(signal.SIGCONT)
                process.resume_at = None
            code = process.process.exitcode
            if code is None:
                continue
            said = process.errors.read_text(errors="replace")[-2000:]
            gave_up = code == FENCED or (code == -signal.SIGABRT and GAVE_UP in said)  # librdkafka's end may crash
            if not gave_up and code != -signal.SIGKILL:
                self.failures.append(f"{process.name}.{process.incarnation} ended with {code}: {said}")
            elif gave_up:
                self.faults["producers that gave up"] += 1
            if process in self._zombies:
                self._zombies.remove(process)
            else:
                self._start(process.role, process.name)

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._look_after()
            time.sleep(min(left, 0.05))

    def _victim(self) -> _Process:
        names = [name for role, name in self.plan.roles if role in WRITERS or role in TRANSFORMS]
        return self._processes[self._chance.choice(names)]

    # Faults

    def _break_things(self, until: float) -> None:
        kinds = {
            self._kill_broker: 50,
            self._stop_broker: 4,
            self._pause_broker: 6,
            self._kill_producer: 12,
            self._freeze_producer: 10,
            self._replace_producer: 8,
            self._calm: 10,
        }
        self._ends_at = until
        self._rest(1.5)
        while time.monotonic() < until:
            (fault,) = self._chance.choices(list(kinds), list(kinds.values()))
            fault()

    def _kill_broker(self) -> None:
        self._rest(self._chance.uniform(0.05, 1.5))
        self._broker.kill()
        self._broker.start()
        self.faults["broker killed"] += 1

    def _stop_broker(self) -> None:
        code = self._broker.stop()
        if code != 0:
            self.failures.append(f"the broker ended with {code}")
        self._broker.start()
        self.faults["broker stopped"] += 1

    def _pause_broker(self) -> None:
        self._broker.pause()
        time.sleep(self._chance.uniform(0.1, 1.0))
        self._broker.resume()
        self.faults["broker paused"] += 1

    def _kill_producer(self) -> None:
        self._victim().signal(signal.SIGKILL)
        self.faults["producer killed"] += 1

    def _freeze_producer(self) -> None:
        victim = self._victim()
        victim.signal(signal.SIGSTOP)
        victim.resume_at = time.monotonic() + self.plan.timeout_ms / 1000 * self._chance.uniform(0.2, 1.7)
        self.faults["producer frozen"] += 1

    def _replace_producer(self) -> None:
        """A successor under the same transactional id while the old one is frozen, which then wakes up: a zombie."""
        old = self._victim()
        old.signal(signal.SIGSTOP)
        old.resume_at = time.monotonic() + self._chance.uniform(0.3, 4.0)
        self._zombies.append(old)
        self._start(old.role, old.name)
        self.faults["producer replaced"] += 1

    def _calm(self) -> None:
        """Now and then long enough for a group to give up a member that was killed."""
        seconds = self._chance.choice((0.5, 1.0, 2.0, 9.0))
        self._rest(min(seconds, max(0.0, self._ends_at - time.monotonic())))

    # The end

    def _settle(self) -> dict[str, dict[str, dict[Place, Log]]]:
        """Kill all writers, wait until nothing is open and the transforms are done, and read everything in all ways."""
        self._look_after()
        for process in [*self._processes.values(), *self._zombies]:
            if process.role in WRITERS or process in self._zombies:
                process.end()
            else:
                process.signal(signal.SIGCONT)
                process.resume_at = None
        self._zombies.clear()
        for role, name in self.plan.roles:
            if role in WRITERS:
                del self._processes[name]
        began = time.monotonic()
        written = [place for place in self.plan.places if place[0] not in TRANSFORMS]
        self._until(partial(self._nothing_open, written), "transactions are still open")
        self.settle_seconds = time.monotonic() - began
        if self.plan.transforms:
            self._until(self._copied, "the transforms do not finish", stalled=self._kill_the_stalled)
        for role, name in self.plan.roles:
            if role in TRANSFORMS:
                self._processes.pop(name).end()
        self._until(partial(self._nothing_open, self.plan.places), "transactions of transforms are still open")
        self._rest(1.0)
        for role, name in self.plan.roles:
            if role in READERS:
                self._processes.pop(name).end()
        return self._read_everything()

    def _read_everything(self) -> dict[str, dict[str, dict[Place, Log]]]:
        return read_everything(self._broker, self._address, self.plan.places, SETTLE_SECONDS)

    def _until(self, done: Callable[[], bool], complaint: str, stalled: Callable[[], None] = lambda: None) -> None:
        """Wait until `done`, calling `stalled` now and then while it is not; give up after SETTLE_SECONDS."""
        began = time.monotonic()
        next_help = began + STALL_SECONDS
        while not done():
            now = time.monotonic()
            if now > began + SETTLE_SECONDS:
                self.failures.append(complaint)
                return
            if now > next_help:
                next_help = now + STALL_SECONDS
                stalled()
            self._rest(0.2)

    def _kill_the_stalled(self) -> None:
        """librdkafka may sit on an offset commit until a broker comes or goes, whatever timeout it was given."""
        for process in list(self._processes.values()):
            if process.role in TRANSFORMS and self._made[process.role] == self._made_before[process.role]:
                process.signal(signal.SIGKILL)
                self.faults["stalled transforms killed"] += 1
        self._made_before = Counter(self._made)

    def _nothing_open(self, places: Sequence[Place]) -> bool:
        with Wire(self._broker.connect()) as wire:
            answers = fetch_places(wire, dict.fromkeys(places, 0), READ_COMMITTED, 1)
        return all(answer.last_stable_offset == answer.high_watermark for answer in answers.values())

    def _copied(self) -> bool:
        with Wire(self._broker.connect()) as wire:
            logs, _ = read_all_by_wire(
                wire, [place for place in self.plan.places if place[0] != TRANSACTION_TOPIC], READ_COMMITTED
            )
        for output in TRANSFORMS:
            self._made[output] = sum(len(log) for (topic, _), log in logs.items() if topic == output)
        wanted = sum(len(log) for (topic, _), log in logs.items() if topic == LOOSE_TOPIC)
        return all(self._made[output] >= wanted for output in TRANSFORMS)

    def _history(self, finals: dict[str, dict[str, dict[Place, Log]]]) -> History:
        return History(
            writers=[Writer.read(path) for path in sorted((self.work_dir / "writers").glob("*.jsonl"))],
            readers=[Reader.read(path) for path in sorted((self.work_dir / "readers").glob("*.jsonl"))],
            finals=finals,
            transforms=[(LOOSE_TOPIC, output) for output in TRANSFORMS] if self.plan.transforms else [],
        )


def _work(work: Callable[[], object], errors: Path) -> None:
    """Be one process of a run."""
    descriptor = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    work()
