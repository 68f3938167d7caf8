"""Kill -9 of the cores of one broker in a loop under load: one of them, all at once, or frozen for a while.

    python -m tests.kit.cores_kills --cycles 1000 --seed 7 --cores 3 --most 5

Idempotent, transactional and raw producers write to partitions of all cores, transforms commit offsets in transactions.
Before most faults some partitions begin to move to other cores, those of internal topics, too. With `--most` the number
of cores changes meanwhile, a topic is made again, and the supervisor dies, too. After each fault every partition must
take records again. A cycle that kills all of them reads the files, as
`kill_loop.py` does; at the end everything is read by two clients, over crashes.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP
from typing import Any

import trio
from confluent_kafka import KafkaException

from fencepost.protocol.topics import GROUP_TOPIC, TRANSACTION_TOPIC, TopicPartition
from tests.kit.broker_process import BrokerProcess
from tests.kit.consecutive_ports import reserve_consecutive
from tests.kit.cores_broker import Cores
from tests.kit.cores_clocks import ShiftedBroker
from tests.kit.cores_moves import ongoing, reassign
from tests.kit.cores_number import NumberChanges
from tests.kit.cores_planted import PlantedBroker
from tests.kit.history import READ_COMMITTED, READ_UNCOMMITTED, Log, Place, Verdict
from tests.kit.kill_loop import LONGEST_LIFE_MS, SETTINGS, SHORTEST_LIFE_MS, KillLoop
from tests.kit.whole_logs import read_all, read_ends
from tests.kit.wire import ConnectionEnded
from tests.kit.workload_command import carry_out, parser_of
from tests.kit.workload_readers import REBUILT_SUFFIXES, RECOVERY_POINTS, read_all_by_own
from tests.kit.workload_roles import TRANSFORMS, WRITERS
from tests.kit.workload_run import Plan
from tests.kit.workload_writers import LOOSE_TOPIC
from tests.kit.workload_writers import TRANSACTION_TOPIC as WORK_TOPIC

SESSION_SECONDS = 6.0
"""Of the members of groups that are not static."""
SERVED_SECONDS = 60.0
"""Longer than a client waits for a broker that has died."""
ENOUGH_COMMITS = 1
INTERNAL, INTERNAL_PARTITIONS = (GROUP_TOPIC, TRANSACTION_TOPIC), 50


class NotServed(Exception):
    """Some partition has taken no record for a long time, though all faults were over."""


@dataclass
class CoresKills(KillLoop):
    """A kill loop over the cores of one broker."""

    cores: int = 3
    most: int = 0
    """Up to this number of cores while they run; 0: the number stays."""
    wrong_clocks: bool = False
    """Whether the wall clocks of cores jump."""
    planted: str = ""
    recovery_seconds: list[float] = field(default_factory=list)
    """From the end of a fault until every partition took records."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._read_from: dict[Path, int] = {}
        self._acked: Counter[int] = Counter()
        """By partition of the loose topics."""
        self._committed = 0
        self._number = NumberChanges(self._broker, self._chance, self.most, self.faults)

    def _make_broker(self, work_dir: Path, **words: Any) -> BrokerProcess:
        words["settings"] = {**words["settings"], "metrics.listen": "127.0.0.1:0"}
        words["cores"] = self.cores
        shifted = ShiftedBroker(work_dir, **words) if self.wrong_clocks else None
        self._shifts = shifted.shifts if shifted else None
        broker = shifted or PlantedBroker(self.planted, work_dir, **words)
        broker.port = reserve_consecutive(broker, broker.host, max(self.cores, self.most))
        return broker

    @property
    def _address(self) -> str:
        return ",".join("{}:{}".format(*self._broker.core_address(number)) for number in range(self.cores))

    # Faults

    def _break_things(self, until: float) -> None:
        kinds: dict[Callable[[], None], int] = {
            self._kill_one: 50,
            self._kill_again: 10,
            self._kill_two: 8,
            self._kill_all: 14,
            self._pause_one: 8,
            self._pause_long: 2,
            self._pause_and_kill: 4,
            self._kill_some_frozen: 2,
            self._stop_all: 4,
            self._kill_supervisor: 8,
        }
        try:
            self._work()
            for number in range(self.cycles):
                self._rest(self._chance.uniform(SHORTEST_LIFE_MS, self.longest_life_ms) / 1000)
                if self._chance.random() < 0.1:
                    self._kill_producer()
                (fault,) = self._chance.choices(list(kinds), list(kinds.values()))
                self._cycle = f"cycle {number}"
                if self._shifts is not None:
                    self._shifts.jump(self._any_core(), self._chance)
                    self.faults["clock jumped"] += 1
                self._move_some()
                if self.most:
                    self._note_all(self._number.change())
                fault()
                began = time.monotonic()
                self._work()
                self.recovery_seconds.append(time.monotonic() - began)
                if number % 50 == 49:
                    print(f"{number + 1} cycles: {dict(self.faults)}", flush=True)
            for number in self._running():
                self._cycle, fault = f"at the end, core {number}", self._kill_some_frozen
                self._kill_frozen(number)
                self._work()
            self._end_moves()
            if self.most:
                self._cycle = "at the end"
                self._note_all(self._number.end())
        except (NotServed, AssertionError) as error:
            self.failures.append(f"{self._cycle}: not served after {fault.__name__}: {error}")

    def _note_all(self, problems: Sequence[str]) -> None:
        self.failures += [f"{self._cycle}: {problem}" for problem in problems]

    # Moves

    def _move_some(self) -> None:
        """Have partitions move, which the fault that follows may interrupt anywhere; at times cancel some."""
        if self._chance.random() < 0.2:
            return
        cores = Cores(self._broker)
        places = [
            *self.plan.places,
            *self._number.remade.places,
            *((name, number) for name in INTERNAL for number in range(INTERNAL_PARTITIONS)),
        ]
        with suppress(OSError, ConnectionEnded):
            if self._chance.random() < 0.15:
                self.faults["moves cancelled"] += len(reassign(cores, dict.fromkeys(ongoing(cores))))
            wanted = {TopicPartition(*one): [self._any_core()] for one in self._chance.sample(places, 6)}
            answers = reassign(cores, wanted, asked=0 if self.most else self._any_core())
            self.faults["moves begun"] += sum(not error for error in answers.values())
        self._rest(self._chance.choice([0, 0.02, 0.1, 0.5]) * self._chance.random())

    def _end_moves(self) -> None:
        deadline = time.monotonic() + SERVED_SECONDS
        while left := ongoing(Cores(self._broker)):
            if time.monotonic() > deadline:
                raise NotServed(f"moves do not end: {left}")
            self._rest(0.1)

    # Which cores

    def _running(self) -> list[int]:
        return self._number.running() if self.most else list(range(self.cores))

    def _any_core(self) -> int:
        return self._chance.choice(self._running())

    def _two_cores(self) -> list[int]:
        running = self._running()
        return self._chance.sample(running, 2) if len(running) > 1 else running * 2

    def _kill_supervisor(self) -> None:
        """The cores stop by themselves; the next start waits for them."""
        self._broker.signal(SIGKILL)
        self._broker.wait()
        self._start_again()
        self.faults["supervisor killed"] += 1

    def _start_again(self) -> None:
        if self.most:
            self._number.begin()
        else:
            self._broker.start()

    def _kill_one(self) -> None:
        number = self._any_core()
        self._broker.kill_core(number)
        self.faults["controller killed" if number == 0 else "core killed"] += 1

    def _kill_again(self) -> None:
        """While it starts, or has just done so."""
        number = self._any_core()
        self._broker.kill_core(number)
        self._rest(self._chance.uniform(0.1, 0.6))
        self._broker.kill_core(number)
        self.faults["core killed twice"] += 1

    def _kill_two(self) -> None:
        for number in self._two_cores():
            self._broker.kill_core(number)
            self._rest(self._chance.uniform(0, 0.2))
        self.faults["two cores killed"] += 1

    def _kill_all(self) -> None:
        self._broker.kill()
        self._note(self._cycle, self._watch.look(self.plan.places))
        began = time.monotonic()
        self._start_again()
        self.restart_seconds.append(time.monotonic() - began)
        self.faults["all killed"] += 1

    def _pause_one(self) -> None:
        self._pause(self._any_core(), self._chance.uniform(0.2, 2.5))
        self.faults["core paused"] += 1

    def _pause_long(self) -> None:
        self._pause(self._any_core(), self._chance.uniform(SESSION_SECONDS + 1, SESSION_SECONDS + 4))
        self.faults["core paused longer than a session"] += 1

    def _pause(self, number: int, seconds: float) -> None:
        self._broker.signal_core(number, SIGSTOP)
        self._rest(seconds)
        self._broker.signal_core(number, SIGCONT)

    def _pause_and_kill(self) -> None:
        """What was sent to the paused one is from before the restart of the other."""
        paused, killed = self._two_cores()
        self._broker.signal_core(paused, SIGSTOP)
        self._rest(self._chance.uniform(0, 0.3))
        self._broker.kill_core(killed)
        self._rest(self._chance.uniform(0.3, 1.5))
        self._broker.signal_core(paused, SIGCONT)
        self.faults["core paused while another is killed"] += 1

    def _kill_some_frozen(self) -> None:
        self._kill_frozen(self._any_core())

    def _kill_frozen(self, number: int) -> None:
        """A frozen core is killed while markers wait for it, of transactions whose producers are gone."""
        self._broker.signal_core(number, SIGSTOP)
        for process in self._processes.values():
            if process.role.startswith(("tv", "copy")):
                process.signal(SIGKILL)  # the next one with its transactional id has the transaction aborted
        self._rest(self.plan.timeout_ms / 1000 / 2)
        self._broker.kill_core(number)
        self.faults["frozen core killed"] += 1

    def _stop_all(self) -> None:
        code = self._broker.stop()
        if code != 0:
            self.failures.append(f"{self._cycle}: the broker ended with {code}")
        self._start_again()
        self.faults["stopped in order"] += 1

    # What is served

    def _work(self) -> None:
        """Until every partition of a loose topic has taken a record more, and some transactions were committed."""
        self._take_in()
        before, commits, deadline = Counter(self._acked), self._committed, time.monotonic() + SERVED_SECONDS
        while True:
            self._rest(0.05)
            self._take_in()
            late = [number for number in range(self.plan.partitions) if self._acked[number] <= before[number]]
            if not late and self._committed >= commits + ENOUGH_COMMITS:
                return
            if time.monotonic() > deadline:
                raise NotServed(f"nothing acknowledged in partitions {late}, {self._committed - commits} commits")

    def _take_in(self) -> None:
        for path in (self.work_dir / "writers").glob("*.jsonl"):
            with path.open("rb") as file:
                file.seek(self._read_from.get(path, 0))
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._read_from[path] = self._read_from.get(path, 0) + len(line)
                    if line.startswith(b'["ack"'):
                        self._acked[json.loads(line)[2]] += 1
                    elif line.startswith(b'["committed"'):
                        self._committed += 1

    # The end

    def _until(self, done: Callable[[], bool], complaint: str, stalled: Callable[[], None] = lambda: None) -> None:
        """As for one core; but after a failure nothing more is waited for."""
        if not self.failures:
            super()._until(done, complaint, stalled)

    def _nothing_open(self, places: Sequence[Place]) -> bool:
        try:
            ends = [read_ends(self._address, places, one) for one in (READ_COMMITTED, READ_UNCOMMITTED)]
        except KafkaException:  # a core starts
            return False
        return ends[0] == ends[1]

    def _copied(self) -> bool:
        logs, _ = read_all(
            self._address, [place for place in self.plan.places if place[0] != WORK_TOPIC], READ_COMMITTED
        )
        made = {topic: sum(len(log) for place, log in logs.items() if place[0] == topic) for topic, _ in logs}
        self._made.update({output: made[output] - self._made[output] for output in TRANSFORMS})
        return all(made[output] >= made[LOOSE_TOPIC] for output in TRANSFORMS)

    def _read_everything(self) -> dict[str, dict[str, dict[Place, Log]]]:
        """By librdkafka and the own client, after a crash, and after one that left only the batches."""
        finals: dict[str, dict[str, dict[Place, Log]]] = {READ_COMMITTED: {}, READ_UNCOMMITTED: {}}
        self._read_once("librdkafka", finals)
        for isolation, views in finals.items():
            views["own client"] = trio.run(read_all_by_own, self._address, views["librdkafka"], isolation, 60.0)
        self._broker.restart()
        self._read_once("librdkafka, after a crash", finals)
        self._broker.kill()
        for path in (self.work_dir / "data").rglob("*"):
            if path.suffix in REBUILT_SUFFIXES or path.name == RECOVERY_POINTS:
                path.unlink()
        self._broker.start()
        self._read_once("librdkafka, from the batches alone", finals)
        return finals

    def _read_once(self, name: str, finals: dict[str, dict[str, dict[Place, Log]]]) -> None:
        for isolation, views in finals.items():
            views[name], problems = read_all(self._address, self.plan.places, isolation)
            self.failures += [f"{name}, {isolation}: {problem}" for problem in problems]

    def _open_logs(self) -> None:
        read_all(self._address, self.plan.places, READ_COMMITTED)

    def _kill_producer(self) -> None:
        names = [name for role, name in self.plan.roles if role in WRITERS or role in TRANSFORMS]
        self._processes[self._chance.choice(names)].signal(SIGKILL)
        self.faults["client killed"] += 1


def _report(run: CoresKills, verdict: Verdict, seconds: float) -> str:
    plan, waits, starts = run.plan, sorted(run.recovery_seconds), sorted(run.restart_seconds)
    facts = [f"faults: {dict(run.faults)}", f"checked: {dict(verdict.counts)}"]
    if waits:
        facts.append(
            f"all partitions served after {waits[len(waits) // 2]:.2f} s (median), {waits[-1]:.2f} s (longest)"
        )
    if starts:
        facts.append(f"all cores ready after {starts[len(starts) // 2]:.2f} s (median), {starts[-1]:.2f} s (longest)")
    facts.append(f"took {seconds:.0f} s")
    word = "VIOLATED" if verdict.violations else "nothing was lost"
    again = f"python -m tests.kit.cores_kills --cycles {run.cycles} --seed {plan.seed} --cores {run.cores}"
    again += f" --durability {plan.durability} --partitions {plan.partitions} --longest-life-ms {run.longest_life_ms}"
    again += f" --transactional {plan.transactional}"
    again += f" --most {run.most}" if run.most else ""
    again += " --wrong-clocks" if run.wrong_clocks else ""
    again += f" --planted {run.planted}" if run.planted else ""
    return "\n".join([f"{word} cores={run.cores}", *verdict.violations, *facts, f"again: {again}"])


def main(argv: Sequence[str] | None = None) -> int:
    """The command line: a run and its verdict; 1 on a violation."""
    parser = parser_of("tests.kit.cores_kills", __doc__)
    parser.add_argument("--cycles", type=int, default=10)
    parser.add_argument("--cores", type=int, default=3)
    parser.add_argument("--most", type=int, default=0, help="change the number of cores meanwhile, up to this one")
    parser.add_argument("--wrong-clocks", action="store_true", help="let the wall clocks of cores jump")
    parser.add_argument("--transactional", type=int, default=2, help="producers of each protocol")
    parser.add_argument("--longest-life-ms", type=int, default=LONGEST_LIFE_MS)
    parser.add_argument("--planted", default="", help="a function of cores_planted.py: the run has to find it")
    arguments = parser.parse_args(argv)
    plan = Plan(
        seconds=0,
        seed=arguments.seed,
        durability=arguments.durability,
        partitions=arguments.partitions,
        transactional=arguments.transactional,
        transforms=1,
        raw=1,
        readers=("reads1", "reads2"),
        bad_network=False,
        settings=SETTINGS,
    )
    make = partial(
        CoresKills,
        plan,
        cycles=arguments.cycles,
        longest_life_ms=arguments.longest_life_ms,
        cores=arguments.cores,
        most=arguments.most,
        wrong_clocks=arguments.wrong_clocks,
        planted=arguments.planted,
    )
    return carry_out(make, arguments.directory, _report)


if __name__ == "__main__":
    sys.exit(main())
