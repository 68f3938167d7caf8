"""Asynchronous failovers of a cluster's database under load; a checker judges what clients were told and read.

    python -m tests.kit.failover_plays --plays 50 --seed 7 [--kind copied --kind streaming --kind pitr]

Three brokers lead, over PostgreSQL and a directory or an S3 server. In a play the database gets a server that will take
its place, and that has all commits up to an instant. Clients work on, then the primary is killed, and the other server
takes over: a copy of the data directory, a standby that lags, or a backup that is recovered to the instant (PITR).
Commits after the instant are lost: those of all brokers, of one broker, or only what ends then, and a new topic. All
else must hold: what the promoted database has is served unchanged, and what was acknowledged later is there once, with
its bytes; a transaction is whole or absent; brokers agree on the metadata; and every broker serves again within its
lease and --serve-seconds. At the end of a cluster, all is read twice: as the brokers have it, and after a kill of all
brokers, from the stores alone. All clients are librdkafka.
"""

import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from rich.progress import Progress

from fencepost.testing.reserved_port import reserve_port
from tests.kit.broker_process import BrokerFailed
from tests.kit.cluster_processes import ClusterProcesses
from tests.kit.failover_brokers import PastBroker, agree, disagreement, kept_by, metadata_of, socket_of
from tests.kit.failover_check import Kept, Played, View, check
from tests.kit.failover_load import SILENT, TRANSACTION_TIMEOUT_MS, Load
from tests.kit.failover_planted import PLANTED
from tests.kit.history import READ_COMMITTED, READ_UNCOMMITTED, Place, Verdict
from tests.kit.postgres_past import KINDS
from tests.kit.postgres_server import PostgresServer, find_binaries
from tests.kit.s3_server import S3Server
from tests.kit.whole_logs import read_all
from tests.kit.workload_command import carry_out, parser_of

BROKERS = (1, 2, 3)
TOPICS = ("transactions", "loose")
PLAYS_MAX = 5
"""Of one cluster: the next ones begin with an empty one."""
ANSWERS_SECONDS = 0.5
"""So long no answer has come, when the answers of the old primary are taken to have come."""
LEASE_SECONDS = ClusterProcesses.LEASE_MS / 1000
SETTLE_SECONDS = 30.0
AFTER_ACKS = 40


@dataclass
class Plays:
    """One cluster, and its plays. `first` numbers the first one, so that a long run plays all kinds in turn."""

    work_dir: Path
    seed: str
    kinds: Sequence[str]
    plays: int
    first: int = 0
    seconds: float = 0.7
    """How long clients work between two steps, in the mean."""
    serve_seconds: float = 5.0
    partitions: int = 12
    planted: str = ""
    s3: bool = False
    played: Callable[[], None] = lambda: None
    """Called after each play."""
    recovery_seconds: list[float] = field(default_factory=list)
    lost: int = 0
    """Acknowledged records that failovers lost, as they may."""
    done: int = 0
    """Plays so far. The first violation that a play shows is the end."""

    def go(self) -> Verdict:
        """The plays, and the verdict over all of them."""
        binaries = find_binaries()
        assert binaries is not None, "PostgreSQL is missing"
        self._binaries, self._chance, self._failures = binaries, random.Random(f"{self.seed}/{self.first}"), Verdict()
        self._kept: list[Kept] = []
        with ExitStack() as stack:
            self._servers = stack.enter_context(ExitStack())
            self._primary = self._servers.enter_context(PostgresServer(binaries))
            self._cluster = stack.enter_context(ClusterProcesses(self.work_dir, self._primary))
            self._start_brokers(stack)
            self._create(*TOPICS)
            self._probe_places = [(TOPICS[1], number) for number in range(self.partitions)]
            with Load(self._bootstrap, TOPICS, self.partitions, f"{self.seed}-{self.first}") as self._load:
                self._work()
                while self.done < self.plays and not self._failures.violations:
                    number = self.first + self.done
                    self._play(self.kinds[number % len(self.kinds)], number)
                    self.done += 1
                    self.played()
                self._load.stop()
            views = self._read_twice()
        for one in self._load.sent:
            later = [kept.ends.get(one.place, 0) for kept in self._kept[one.era :]]
            self.lost += one.offset is not None and bool(later) and one.offset >= min(later)
        verdict = check(Played(self._load.sent, self._load.transactions, self._kept, views))
        verdict.violations += self._failures.violations
        return verdict

    # The cluster

    def _start_brokers(self, stack: ExitStack) -> None:
        environment, objects = {}, f"file://{self._cluster.objects}"
        if self.s3:
            bucket = stack.enter_context(S3Server())
            options, objects = bucket.options(), bucket.url
            environment = {
                "AWS_ENDPOINT_URL": options["endpoint"],
                "AWS_ACCESS_KEY_ID": options["access_key_id"],
                "AWS_SECRET_ACCESS_KEY": options["secret_access_key"],
                "AWS_REGION": options["region"],
            }
        self._brokers: list[PastBroker] = []
        for node_id in BROKERS:
            where = self.work_dir / f"broker-{node_id}"
            broker = PastBroker(where, node_id, self._cluster.store, objects, environment)
            stack.enter_context(broker.database)
            broker.port = reserve_port(broker, broker.host)
            self._brokers.append(stack.enter_context(broker))

    @property
    def _bootstrap(self) -> str:
        return ",".join(broker.address for broker in self._brokers)

    def _create(self, *topics: str, partitions: int = 0) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap}, logger=SILENT)
        made = admin.create_topics([NewTopic(topic, partitions or self.partitions, 1) for topic in topics])
        for one in made.values():
            one.result(SETTLE_SECONDS)

    def _work(self) -> None:
        """Until some more records have been acknowledged."""
        wanted = self._load.acknowledged() + AFTER_ACKS
        deadline = time.monotonic() + SETTLE_SECONDS
        while self._load.acknowledged() < wanted and time.monotonic() < deadline:
            time.sleep(0.05)

    # A play

    def _play(self, kind: str, number: int) -> None:
        past = KINDS[kind](self._binaries, self._primary)
        self._servers.enter_context(past)
        time.sleep(self._chance.uniform(0, self.seconds))
        past.hold()
        try:
            self._lose()
            if self._chance.random() < 0.5:
                self._create(f"late-{number}", partitions=3)
        except KafkaException as error:
            self._failures.add(f"play {number} ({kind}): the cluster does not work before the failover", [error])
        time.sleep(self._chance.uniform(0.2, 2 * self.seconds))
        gone = self._primary
        gone.crash()
        self._hear_answers()
        past.take_over()
        self._primary = past
        self._cluster.store = self._cluster.store.replace(str(gone.directory), str(past.directory))
        self._kept.append(kept_by(self._cluster.store))
        self._load.promoted()
        for broker in self._brokers:
            broker.database.upstream = socket_of(self._cluster.store)
        gone.__exit__(None, None, None)
        self._load.allowed = range(self.partitions)
        self._serve_again(kind, number)
        self._work()

    def _hear_answers(self) -> None:
        """Nothing can be committed now. Wait until clients have what was committed before: a busy machine is slow."""
        known, deadline = -1, time.monotonic() + SETTLE_SECONDS
        while known != self._load.answers() and time.monotonic() < deadline:
            known = self._load.answers()
            time.sleep(ANSWERS_SECONDS)

    def _lose(self) -> None:
        """Choose whose commits the other server will not have: those of all brokers, of one, or what ends now."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap}, logger=SILENT)
        leaders = {one.id: one.leader for one in admin.list_topics(TOPICS[1], 10).topics[TOPICS[1]].partitions.values()}
        writer = self._chance.choice(BROKERS)
        one_broker = [partition for partition, leader in leaders.items() if leader == writer]
        self._load.allowed = self._chance.choice((range(self.partitions), one_broker, ()))

    def _serve_again(self, kind: str, number: int) -> None:
        """Every partition takes records, and all brokers have the same metadata, in time."""
        began = time.monotonic()
        limit = LEASE_SECONDS + self.serve_seconds
        silent = self._load.probe(self._probe_places, limit)
        took = time.monotonic() - began
        self.recovery_seconds.append(took)
        what = f"play {number} ({kind}): after {limit:g} s"
        self._failures.add(f"{what} partitions take no record", silent)
        self._failures.add(f"{what} producers have ended", self._load.problems)
        self._failures.add(f"{what} a broker has ended", [one.node_id for one in self._brokers if not one.running])
        try:
            self._create(f"new-{number}", partitions=3)
        except KafkaException as error:
            self._failures.add(f"{what} no topic can be created", [error])
        views = metadata_of(self._brokers)
        while not agree(views) and time.monotonic() < began + took + limit:
            time.sleep(0.1)
            views = metadata_of(self._brokers)
        if not agree(views):
            self._failures.add(f"{what} brokers disagree on the metadata", [disagreement(views)])

    # The end

    def _read_twice(self) -> dict[str, View]:
        """As the brokers have it; and after a kill of all brokers, from the stores alone."""
        places = [(topic, number) for topic in TOPICS for number in range(self.partitions)]
        views = {"from brokers": self._read("from brokers", places)}
        if self.planted:
            PLANTED[self.planted](self._cluster)
        for broker in self._brokers:
            if broker.running:
                broker.kill()
        for broker in self._brokers:
            try:
                broker.start()
            except BrokerFailed as error:
                said = str(error).splitlines()[-1]
                self._failures.add("after a kill of all brokers one cannot start", [f"broker {broker.node_id}: {said}"])
        if all(broker.running for broker in self._brokers):
            views["from the stores"] = self._read("from the stores", places)
        return views

    def _read(self, name: str, places: Sequence[Place]) -> View:
        """When no transaction is open any more."""
        deadline = time.monotonic() + SETTLE_SECONDS + TRANSACTION_TIMEOUT_MS / 1000
        while (open_ := self._open(places)) and time.monotonic() < deadline:
            time.sleep(0.2)
        self._failures.add(f"{name}: transactions stay open", open_)
        view = {}
        for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
            view[isolation], problems = read_all(self._bootstrap, places, isolation)
            self._failures.add(f"{name}: logs cannot be read ({isolation})", problems)
        return view

    def _open(self, places: Sequence[Place]) -> list[str]:
        """The partitions with an open transaction, or why that is unknown."""
        try:
            ends = [self._ends(places, level) for level in IsolationLevel]
        except KafkaException as error:
            return [str(error)]
        return [str(place) for place in places if len({end[place] for end in ends}) > 1]

    def _ends(self, places: Sequence[Place], level: IsolationLevel) -> dict[Place, int]:
        admin = AdminClient({"bootstrap.servers": self._bootstrap}, logger=SILENT)
        wanted = {TopicPartition(*place): OffsetSpec.latest() for place in places}
        asked = admin.list_offsets(wanted, isolation_level=level, request_timeout=10)
        return {(place.topic, place.partition): answer.result().offset for place, answer in asked.items()}


@dataclass
class LongRun:
    """As many clusters as the plays need, one after the other; a cluster that shows a violation is not used again."""

    work_dir: Path
    plays: int
    words: Mapping[str, object]
    seed: str
    kinds: Sequence[str]
    counts: Counter[str] = field(default_factory=Counter)
    recovery_seconds: list[float] = field(default_factory=list)
    lost: int = 0
    violated: int = 0
    """Clusters with a violation."""

    def go(self) -> Verdict:
        """All plays, with a bar."""
        total = Verdict()
        with Progress() as progress:
            task = progress.add_task("plays", total=self.plays)
            first = 0
            while first < self.plays:
                run = Plays(
                    self.work_dir / f"from-{first}",
                    self.seed,
                    self.kinds,
                    min(PLAYS_MAX, self.plays - first),
                    first,
                    played=partial(progress.advance, task),
                    **self.words,  # type: ignore[arg-type]
                )
                found = run.go()
                self.recovery_seconds += run.recovery_seconds
                self.lost += run.lost
                total.counts.update(found.counts)
                total.violations += [f"plays from {first}: {one}" for one in found.violations]
                self.violated += bool(found.violations)
                word = "VIOLATED" if found.violations else "well"
                progress.console.print(
                    "\n".join([f"plays {first} to {first + run.done - 1}: {word}", *found.violations])
                )
                first += run.done
        return total


def _report(run: LongRun, verdict: Verdict, seconds: float) -> str:
    waits = sorted(run.recovery_seconds)
    facts = [f"checked: {dict(verdict.counts)}", f"failovers lost {run.lost} acknowledged records, as they may"]
    facts.append(f"{run.violated} clusters with a violation")
    facts.append(
        f"all partitions took records after {waits[len(waits) // 2]:.1f} s (median), {waits[-1]:.1f} s (longest)"
    )
    facts.append(f"took {seconds:.0f} s")
    word = "VIOLATED" if verdict.violations else "nothing else was lost"
    kinds = "".join(f" --kind {kind}" for kind in run.kinds)
    again = f"python -m tests.kit.failover_plays --plays {run.plays} --seed {run.seed}{kinds}"
    return "\n".join([word, *verdict.violations, *facts, f"again: {again}"])


def main(argv: Sequence[str] | None = None) -> int:
    """The command line: the plays and their verdict; 1 on a violation."""
    parser = parser_of("tests.kit.failover_plays", __doc__)
    parser.add_argument("--plays", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.7, help="of work between two steps of a play")
    parser.add_argument("--serve-seconds", type=float, default=5.0, help="beyond a lease, until every broker serves")
    parser.add_argument("--kind", action="append", default=[], choices=sorted(KINDS), help="may be repeated")
    parser.add_argument("--planted", default="", choices=["", *PLANTED], help="a fault that the run has to find")
    parser.add_argument("--s3", action="store_true", help="an S3 server instead of a directory")
    arguments = parser.parse_args(argv)
    words = {
        "seconds": arguments.seconds,
        "serve_seconds": arguments.serve_seconds,
        "planted": arguments.planted,
        "s3": arguments.s3,
    }
    # PITR is the rarest: one of ten plays.
    kinds = arguments.kind or ["copied", "streaming"] * 4 + ["pitr", "streaming"]
    make = partial(LongRun, plays=arguments.plays, words=words, seed=arguments.seed, kinds=kinds)
    return carry_out(make, arguments.directory, _report)


if __name__ == "__main__":
    sys.exit(main())
