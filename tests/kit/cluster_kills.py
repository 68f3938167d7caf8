"""Kill -9 in a loop on a cluster over PostgreSQL and S3, under load; a checker judges what clients were told and read.

    python -m tests.kit.cluster_kills --cycles 200 --seed 7 [--brokers 3]

A cycle kills the active broker at a random moment or at a named step of a commit, or the next one at a step of its
takeover. After every tenth PostgreSQL is killed (with --standby, its synchronous standby is promoted after another
tenth), after every second something else fails: an answer of COMMIT is lost, a commit comes late, S3 fails, a broker is
paused or cut off for longer than its lease. All clients are librdkafka
(or with --all-clients others, too), and the checker (history.py) sees only what they noted: neither shares code with
fencepost.
"""

import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.broker.cluster.engine import SLOTS
from tests.kit.cluster_workload import ClusterPlan
from tests.kit.history import READ_COMMITTED, READ_UNCOMMITTED, History, Log, Place, Verdict, check
from tests.kit.http_faults import Fault
from tests.kit.kill_cluster import KillCluster, SteppedBroker
from tests.kit.postgres_pair import PostgresPair
from tests.kit.postgres_proxy import CommitFault
from tests.kit.postgres_server import PostgresServer, find_binaries
from tests.kit.stepped_broker import BEFORE_LATE_COMMITS, BETWEEN_PARTS, COMMIT_STEPS, TAKEOVER_STEPS
from tests.kit.whole_logs import SERVE_SECONDS, read_all, read_ends
from tests.kit.workload_command import carry_out, parser_of
from tests.kit.workload_roles import WRITERS
from tests.kit.workload_run import Run
from tests.kit.workload_writers import LOOSE_TOPIC, TRANSACTION_TOPIC

CYCLES_MAX = 10
"""Of one cluster: the next ones begin with an empty one."""
DATABASE_EVERY, OTHER_EVERY = 10, 2
STEP_SECONDS = 40.0
LONGEST_LIFE_S, ENOUGH_ACKS = 1.5, 20
S3_FAULTS: dict[str, tuple[str, Fault, int]] = {
    "S3 answers puts with 500": ("PUT", Fault(500), 3),
    "S3 answers puts with 503": ("PUT", Fault(503, "SlowDown"), 3),
    "S3 resets puts": ("PUT", Fault(reset=True), 2),
    "S3 takes 5 s for a put": ("PUT", Fault(slow_answer_s=5), 1),
    "S3 loses the answer to a put": ("PUT", Fault(lost_answer=True), 2),
    "S3 succeeds after the timeout": ("PUT", Fault(slow_answer_s=21), 1),
    "S3 answers gets with 500": ("GET", Fault(500), 3),
    "S3 truncates a body": ("GET", Fault(body=lambda body: body[: len(body) // 2]), 3),
    "S3 tears a body": ("GET", Fault(torn=True), 3),
}
"""Those of gets are for the broker that takes over: the active one is killed with them."""


class NotServed(Exception):
    """For a long time no record was acknowledged, though all faults were over."""


@dataclass
class ClusterKills(Run):
    """One cluster, and its cycles. `first` numbers the first cycle, so that a long run plays all kinds in turn."""

    cycles: int = 10
    first: int = 0
    planted: str = ""
    brokers: int = 2
    standby: bool = False
    chosen: Sequence[str] = ()
    """Play these faults only, in turn."""
    recovery_seconds: list[float] = field(default_factory=list)
    """From a fault until clients worked again, and both brokers lived."""

    def go(self) -> Verdict:
        """The cycles, and the verdict over all of them."""
        binaries = find_binaries()
        assert binaries is not None, "PostgreSQL is missing"
        database = PostgresPair(binaries) if self.standby else PostgresServer(binaries)
        with database as server, self._cluster_over(server) as made:
            self._cluster = made
            try:
                self._create_topics()
                for role, name in self.plan.roles:
                    self._start(role, name)
                try:
                    self._break_things(0)
                except NotServed:
                    self.failures.append(f"no broker acknowledges anything any more: {dict(self.faults)}")
                finals = self._settle()
            finally:
                for process in [*self._processes.values(), *self._zombies]:
                    process.end()
        verdict = check(self._history(finals))
        verdict.add("a process failed", self.failures)
        return verdict

    def _cluster_over(self, server: PostgresServer | PostgresPair) -> KillCluster:
        return KillCluster(self.work_dir / "cluster", server, self.planted, self.brokers)

    @property
    def _address(self) -> str:
        return self._cluster.bootstrap

    def _create_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._address})
        topics = sorted({topic for topic, _ in self.plan.places})
        for made in admin.create_topics([NewTopic(topic, self.plan.partitions, 1) for topic in topics]).values():
            made.result(SERVE_SECONDS)

    # Faults

    def _break_things(self, until: float) -> None:
        """The cycles, each followed by what belongs to it."""
        kinds = self._kinds()
        self._work()
        kills = ["killed at a random moment", *(f"killed {step}" for step in (*COMMIT_STEPS, *TAKEOVER_STEPS))]
        alone = ("cut off from brokers",) if self.brokers == 2 else ()
        others = [name for name in kinds if not name.startswith(("killed", "database", "standby", *alone))]
        for number in range(self.first, self.first + self.cycles):
            if self.chosen:
                self._play(kinds, self.chosen[number % len(self.chosen)])
                continue
            # Every second kill comes at a random moment.
            self._play(kinds, kills[0] if number % 2 else kills[1 + number // 2 % (len(kills) - 1)])
            if number % OTHER_EVERY == 0:
                self._play(kinds, others[number // OTHER_EVERY % len(others)])
            if number % DATABASE_EVERY == DATABASE_EVERY - 1:
                self._play(kinds, "database killed")
            if self.standby and number % DATABASE_EVERY == DATABASE_EVERY // 2:
                self._play(kinds, "standby promoted")

    def _kinds(self) -> Mapping[str, Callable[[], None]]:
        kinds: dict[str, Callable[[], None]] = {"killed at a random moment": self._kill_some_time}
        planted = (BETWEEN_PARTS, BEFORE_LATE_COMMITS)
        kinds |= {f"killed {step}": partial(self._kill_at, step) for step in (*COMMIT_STEPS, *planted)}
        kinds |= {f"killed {step}": partial(self._kill_next_at, step) for step in TAKEOVER_STEPS}
        kinds |= {f"commit: {fault.value}": partial(self._break_commit, fault) for fault in CommitFault}
        kinds |= {name: partial(self._break_s3, name, *words) for name, words in S3_FAULTS.items()}
        return kinds | {
            "paused": self._pause_active,
            "cut off": self._cut_off,
            "cut off from brokers": self._cut_off_from_brokers,
            "garbage collected": self._collect,
            "database killed": self._kill_the_database,
            "standby promoted": self._cluster.fail_over_database,
        }

    def _play(self, kinds: Mapping[str, Callable[[], None]], name: str) -> None:
        """One fault; then both brokers live, and clients work."""
        self._cluster.slot = self._chance.randrange(SLOTS) if self.brokers > 2 else 0
        kinds[name]()
        began = time.monotonic()
        for broker in self._cluster.brokers.values():
            broker.take_back()
            broker.database.forget()
            if not broker.running:
                broker.start()
        self._cluster.objects.heal()
        self.faults[name] += 1
        self._work()
        self.recovery_seconds.append(time.monotonic() - began)

    def _work(self) -> None:
        """Until some records more have been acknowledged."""
        wanted = self._acknowledged() + ENOUGH_ACKS
        deadline = time.monotonic() + SERVE_SECONDS
        while self._acknowledged() < wanted:
            if time.monotonic() > deadline:
                raise NotServed
            self._rest(0.05)

    def _acknowledged(self) -> int:
        journals = (self.work_dir / "writers").glob("loose*.jsonl")
        return sum(path.read_bytes().count(b'["ack"') for path in journals)

    def _reached(self, what: str, happened: Callable[[], object]) -> bool:
        """Wait for a step; a machine with other work may not come so far, and the report says so."""
        deadline = time.monotonic() + STEP_SECONDS
        while not happened():
            if time.monotonic() > deadline:
                self.faults[f"not reached: {what}"] += 1
                return False
            self._rest(0.02)
        return True

    def _kill_some_time(self) -> None:
        self._rest(self._chance.uniform(0, LONGEST_LIFE_S))
        self._cluster.active().kill()

    def _kill_at(self, step: str) -> None:
        active = self._cluster.active()
        active.order("kill", step, self._chance.randint(1, 5))
        self._reached(step, lambda: not active.running)
        if step == BETWEEN_PARTS or self._chance.random() < 0.3:  # else the producer ends its transaction by itself
            self._kill_producers()

    def _kill_producers(self) -> None:
        for process in self._processes.values():
            slow = process.role in ("java", "kafka-python")  # to begin: so it lives longer
            if process.role in WRITERS and not process.role.startswith("loose") and self._chance.random() > slow * 0.7:
                process.signal(signal.SIGKILL)
        self.faults["producers killed with the broker"] += 1

    def _kill_next_at(self, step: str) -> None:
        active = self._cluster.active()
        following = self._cluster.other(active)
        following.order("kill", step)
        active.kill()
        self._reached(step, lambda: not following.running)

    def _break_commit(self, fault: CommitFault) -> None:
        proxy = self._cluster.active().database
        before = proxy.played
        proxy.spoil(fault)
        self._reached(fault.value, lambda: proxy.played > before)

    def _break_s3(self, name: str, method: str, fault: Fault, times: int) -> None:
        seen = self._cluster.objects.requests.count(method)
        self._cluster.objects.spoil(method, fault, times)
        if method == "GET":
            self._cluster.active().kill()
        self._reached(name, lambda: self._cluster.objects.requests.count(method) > seen + times)

    def _pause_active(self) -> None:
        """Longer than its lease."""
        active = self._cluster.active()
        active.pause()
        self._taken_from(active)
        active.signal(signal.SIGCONT)

    def _cut_off(self) -> None:
        """From the database only: clients and the object store are reached."""
        active = self._cluster.active()
        active.database.cut()
        self._taken_from(active)
        active.database.heal()

    def _cut_off_from_brokers(self) -> None:
        """One can ask no other broker any more; clients and the stores are reached."""
        broker = self._cluster.active()
        broker.cut_from_brokers(True)
        self._rest(self._chance.uniform(1, 8))
        broker.cut_from_brokers(False)

    def _taken_from(self, active: SteppedBroker) -> None:
        self._reached("take-over", lambda: self._cluster.active() is not active)
        self._kill_producers()  # their successors find the new one, and others still know the old one
        self._rest(self._chance.uniform(0, 1))

    def _collect(self) -> None:
        """Between a put and its commit, with claims of any age."""
        active = self._cluster.active()
        active.order("hold", "after put")
        if self._reached("hold after put", active.is_held):
            self._cluster.collect_garbage()

    def _kill_the_database(self) -> None:
        self._rest(self._chance.uniform(0, 0.5))
        self._cluster.kill_database()

    # The end

    def _until(self, done: Callable[[], bool], complaint: str, stalled: Callable[[], None] = lambda: None) -> None:
        """As for files; but after a failure nothing more is waited for."""
        if not self.failures:
            super()._until(done, complaint, stalled)

    def _nothing_open(self, places: Sequence[Place]) -> bool:
        try:
            ends = [read_ends(self._address, places, one) for one in (READ_COMMITTED, READ_UNCOMMITTED)]
            return ends[0] == ends[1]
        except KafkaException:  # no broker is active yet
            return False

    def _copied(self) -> bool:
        places = [place for place in self.plan.places if place[0] != TRANSACTION_TOPIC]
        logs, _ = read_all(self._address, places, READ_COMMITTED)
        made = {topic: sum(len(log) for place, log in logs.items() if place[0] == topic) for topic, _ in places}
        for output in self._plan.outputs:
            self._made[output] = made[output]
        return all(made[output] >= made[LOOSE_TOPIC] for output in self._plan.outputs)

    @property
    def _plan(self) -> ClusterPlan:
        assert isinstance(self.plan, ClusterPlan)
        return self.plan

    def _read_everything(self) -> dict[str, dict[str, dict[Place, Log]]]:
        """From the broker that wrote it, as far as it did, and from one that has it from the stores alone."""
        finals: dict[str, dict[str, dict[Place, Log]]] = {READ_COMMITTED: {}, READ_UNCOMMITTED: {}}
        active = self._cluster.active()
        for name in ("at the end", "after a last take-over"):
            for isolation, views in finals.items():
                views[name], problems = read_all(self._address, self.plan.places, isolation)
                self.failures += [f"{name}, {isolation}: {problem}" for problem in problems]
            if active.running:
                active.kill()
                self._until(lambda: self._cluster.active() is not active, "nobody takes over")
        return finals

    def _history(self, finals: dict[str, dict[str, dict[Place, Log]]]) -> History:
        return replace(super()._history(finals), transforms=[(LOOSE_TOPIC, one) for one in self._plan.outputs])


@dataclass
class LongRun:
    """As many clusters as the cycles need, one after the other."""

    plan: ClusterPlan
    work_dir: Path
    cycles: int
    planted: str = ""
    brokers: int = 2
    standby: bool = False
    chosen: Sequence[str] = ()
    faults: Counter[str] = field(default_factory=Counter)
    recovery_seconds: list[float] = field(default_factory=list)

    def go(self) -> Verdict:
        """All runs; ends with the first that shows a violation."""
        total = Verdict()
        for first in range(0, self.cycles, CYCLES_MAX):
            run = ClusterKills(
                replace(self.plan, seed=f"{self.plan.seed}/{first}"),
                self.work_dir / f"from-{first}",
                cycles=min(CYCLES_MAX, self.cycles - first),
                first=first,
                planted=self.planted,
                brokers=self.brokers,
                standby=self.standby,
                chosen=self.chosen,
            )
            found = run.go()
            self.faults += run.faults
            self.recovery_seconds += run.recovery_seconds
            total.counts += found.counts
            total.violations += found.violations
            print(f"{first + run.cycles} of {self.cycles} cycles: {dict(run.faults)}", flush=True)
            if total.violations:
                break
        return total


def _report(run: LongRun, verdict: Verdict, seconds: float) -> str:
    waits = sorted(run.recovery_seconds)
    facts = [f"faults: {dict(sorted(run.faults.items()))}", f"checked: {dict(verdict.counts)}"]
    if waits:
        facts.append(f"clients worked again after {waits[len(waits) // 2]:.1f} s (median), {waits[-1]:.1f} s (longest)")
    facts.append(f"took {seconds:.0f} s")
    word = "VIOLATED" if verdict.violations else "nothing was lost"
    again = f"python -m tests.kit.cluster_kills --cycles {run.cycles} --seed {run.plan.seed} --brokers {run.brokers}"
    again += " --all-clients" * run.plan.all_clients + " --standby" * run.standby
    again += "".join([f" --planted {run.planted}"] * bool(run.planted) + [f" --fault '{name}'" for name in run.chosen])
    return "\n".join([word, *verdict.violations, *facts, f"again: {again}"])


def main(argv: Sequence[str] | None = None) -> int:
    """The command line: a run and its verdict; 1 on a violation."""
    parser = parser_of("tests.kit.cluster_kills", __doc__)
    parser.add_argument("--cycles", type=int, default=10)
    parser.add_argument("--planted", default="", help="a function of planted_faults.py: the run has to find it")
    parser.add_argument("--brokers", type=int, default=2, help="of two one is active, of more all are; default: 2")
    parser.add_argument("--all-clients", action="store_true", help="not only librdkafka")
    parser.add_argument("--standby", action="store_true", help="PostgreSQL has a synchronous standby: promote it")
    parser.add_argument("--fault", action="append", default=[], help="play only this one; may be repeated")
    arguments = parser.parse_args(argv)
    plan = ClusterPlan(
        seconds=0,
        seed=arguments.seed,
        partitions=arguments.partitions,
        timeout_ms=8000,
        transactional=2,
        transforms=1,
        bad_network=False,
        readers=("reads1",),
        all_clients=arguments.all_clients,
    )
    words = {"planted": arguments.planted, "brokers": arguments.brokers, "standby": arguments.standby}
    words |= {"chosen": arguments.fault}
    make = partial(LongRun, plan, cycles=arguments.cycles, **words)
    return carry_out(make, arguments.directory, _report)


if __name__ == "__main__":
    sys.exit(main())
