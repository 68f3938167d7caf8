"""A share group of a cluster while its brokers and its database are killed; nothing accepted comes again or is lost.

    python -m tests.kit.share_cluster_kills --cycles 300 --seed 7 [--transactions]

Three brokers all lead partitions. Each cycle kills the leader of a partition, the group's coordinator, the broker that
keeps the state of a share partition, any broker, PostgreSQL, or two of them at once, and starts it again. Members are
librdkafka's ShareConsumer; with --transactions fencepost's client moves each record to another topic, exactly once.
"""

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from fencepost.coordinator.partitioning import partition_for
from fencepost.coordinator.share.key_text import key_text
from fencepost.coordinator.share.values import ShareKey
from tests.kit.history import Verdict
from tests.kit.many_brokers import BROKERS, PARTITIONS, SECONDS, ManyBrokers
from tests.kit.postgres_server import PostgresServer, find_binaries
from tests.kit.share_members import topic_id_of
from tests.kit.share_transactions import UNSTABLE
from tests.kit.share_txn_workload import OUTPUT, ShareTxnWorkload
from tests.kit.share_workload import ShareWorkload
from tests.kit.wire import Wire
from tests.kit.workload_command import carry_out

TOPIC, GROUP, MEMBERS = "jobs", "workers", 2
STATE_TOPIC, GROUP_TOPIC, INTERNAL_PARTITIONS = "__share_group_state", "__consumer_offsets", 50
PROGRESS = 40
"""How many records are accepted between two faults, and after the last one of a cycle."""
PATIENCE_SECONDS = 120.0


class Unstable(ManyBrokers):
    """Brokers whose transactions take acknowledgements."""

    def settings_of(self, number: int) -> dict[str, str]:
        return UNSTABLE


@dataclass
class ShareClusterKills:
    """One run in `work_dir`."""

    work_dir: Path
    seed: str
    cycles: int
    transactions: bool = False
    faults: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._kinds: dict[str, Callable[[], int | None]] = {
            "leader": self._leader,
            "coordinator": self._coordinator,
            "keeper of a state": self._keeper,
            "any broker": lambda: self._chance.choice(BROKERS),
            "database": lambda: None,
        }

    def go(self) -> Verdict:
        """Work, break things, settle, judge."""
        binaries = find_binaries()
        if binaries is None:
            raise SystemExit("there is no PostgreSQL on this machine")
        with PostgresServer(binaries) as self._server, Unstable(self.work_dir, self._server) as self._cluster:
            self._cluster.start_all()
            self._cluster.make(TOPIC)
            self._begin_at_the_first_record()
            with Wire(self._cluster.brokers[1].connect()) as wire:
                wire.create_topic(OUTPUT)
                self._topic_id = topic_id_of(wire, TOPIC)
            work_of = ShareTxnWorkload if self.transactions else ShareWorkload
            work = work_of(self._cluster.bootstrap, TOPIC, PARTITIONS, GROUP)
            verdict, stuck = Verdict(), list[str]()
            try:
                with work.running(MEMBERS):
                    work.go_on(PROGRESS, PATIENCE_SECONDS)
                    for number in range(self.cycles):
                        self._cycle(number, work)
                    work.finish(PATIENCE_SECONDS)
            except AssertionError as error:
                stuck = [str(error)]
            except KeyboardInterrupt:
                print("judged as far as it came", flush=True)
        verdict.add("stuck or lost", stuck)
        verdict.add("accepted or moved, and then again", work.again)
        twice = [str(place) for place, times in work.accepted.items() if times > 1]
        verdict.add("accepted twice", twice)
        verdict.counts.update(
            sent=len(work.sent),
            accepted=len(work.accepted),
            uncertain=len(work.uncertain),
            refused=sum(work.refused.values()),
        )
        return verdict

    def _begin_at_the_first_record(self) -> None:
        begins = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
        changed = ConfigResource(ConfigResource.Type.GROUP, GROUP, incremental_configs=[begins])
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap})
        for future in admin.incremental_alter_configs([changed]).values():
            future.result(SECONDS)

    # Faults

    def _cycle(self, number: int, work: ShareWorkload | ShareTxnWorkload) -> None:
        """One or two kills, some work without what was killed, and their new start."""
        chance = self._chance
        kinds = chance.sample(sorted(self._kinds), k=chance.choice((1, 1, 2)))
        victims = {kind: self._kinds[kind]() for kind in kinds}
        for kind, broker in victims.items():
            self.faults[kind] += 1
            if broker is None:
                self._server.crash()
                self._server.start()
            elif self._cluster.brokers[broker].running:
                self._cluster.brokers[broker].kill()
        if len({broker for broker in victims.values() if broker is not None}) < 2 and chance.random() < 0.7:
            work.go_on(chance.randrange(PROGRESS), PATIENCE_SECONDS)
        for one in self._cluster.brokers.values():
            if not one.running:
                one.start()
        work.go_on(PROGRESS, PATIENCE_SECONDS)
        if number % 10 == 9:
            print(f"{number + 1} cycles, {len(work.accepted)} accepted", flush=True)

    def _leader(self) -> int:
        return self._chance.choice(sorted(self._cluster.leaders(TOPIC).values()))

    def _coordinator(self) -> int:
        return self._cluster.leaders(GROUP_TOPIC)[partition_for(GROUP, INTERNAL_PARTITIONS)]

    def _keeper(self) -> int:
        key = ShareKey(GROUP, self._topic_id, self._chance.randrange(PARTITIONS))
        return self._cluster.leaders(STATE_TOPIC)[partition_for(key_text(key), INTERNAL_PARTITIONS)]


def _report(run: ShareClusterKills, verdict: Verdict, seconds: float) -> str:
    word = "VIOLATED" if verdict.violations else "nothing was lost, doubled or stuck"
    facts = [f"faults: {dict(run.faults)}", f"checked: {dict(verdict.counts)}", f"took {seconds:.0f} s"]
    again = f"again: python -m tests.kit.share_cluster_kills --cycles {run.cycles} --seed {run.seed}"
    again += " --transactions" if run.transactions else ""
    return "\n".join([word, *verdict.violations, *facts, again])


def main(argv: Sequence[str] | None = None) -> int:
    """The command line: a run and its verdict; 1 on a violation."""
    parser = argparse.ArgumentParser(prog="python -m tests.kit.share_cluster_kills", description=__doc__)
    parser.add_argument("--cycles", type=int, default=10)
    parser.add_argument("--seed", default=str(random.randrange(10**6)))
    parser.add_argument("--transactions", action="store_true", help="move the records to another topic, exactly once")
    parser.add_argument("--directory", type=Path, default=None, help="kept; else one that goes unless it is needed")
    arguments = parser.parse_args(argv)
    make = partial(ShareClusterKills, seed=arguments.seed, cycles=arguments.cycles, transactions=arguments.transactions)
    return carry_out(make, arguments.directory, _report)


if __name__ == "__main__":
    sys.exit(main())
