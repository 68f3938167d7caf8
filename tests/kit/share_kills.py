"""Kill -9 in a loop under members of a share group and producers; a judge of its own says whether KIP-932 held.

    python -m tests.kit.share_kills --cycles 300 --seed 7 [--planted FAULT]

Members (librdkafka's ShareConsumer, and others over the wire) accept, release, reject, renew and forget records.
Meanwhile the broker is killed and started again, members are killed or frozen for longer than their locks hold, and
sessions, connections and memberships end. The journals of all of them go to share_check.py.
"""

import multiprocessing
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.context import ForkProcess
from pathlib import Path

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages.api44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from fencepost.protocol.messages.api90_describe_share_group_offsets import AskedGroup, DescribeShareGroupOffsetsRequest
from tests.kit.broker_process import BrokerProcess
from tests.kit.history import Journal, Verdict
from tests.kit.share_check import Story, judge
from tests.kit.share_planted import PLANTED
from tests.kit.share_workers import GROUP, TOPIC, Work, consume, produce, share
from tests.kit.wire import Wire
from tests.kit.workload_command import carry_out, parser_of

LOCK_S, COUNT_LIMIT = 1.0, 10
SETTINGS = {
    "group.share.record.lock.duration.ms": "1000",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.delivery.count.limit": str(COUNT_LIMIT),
    "group.share.session.timeout.ms": "1500",
    "group.share.min.session.timeout.ms": "1500",
    "group.share.heartbeat.interval.ms": "300",
    "group.share.min.heartbeat.interval.ms": "300",
    "group.share.assignment.interval.ms": "0",
    "share.coordinator.snapshot.update.records.per.snapshot": "20",
    "share.coordinator.state.topic.num.partitions": "3",
    "share.coordinator.state.topic.prune.interval.ms": "500",
    "share.coordinator.cold.partition.snapshot.interval.ms": "700",
}
SHORTEST_LIFE_S, LONGEST_LIFE_S = 0.05, 1.5
SETTLE_SECONDS = 60.0
GROUP_RESOURCE = 32
_FORKS = multiprocessing.get_context("fork")


@dataclass
class ShareKills:
    """One run in `work_dir`."""

    work_dir: Path
    seed: str
    cycles: int
    partitions: int
    durability: str
    planted: str = ""
    wire_members: int = 4
    clients: int = 2
    producers: int = 2
    longest_life_s: float = LONGEST_LIFE_S
    faults: Counter[str] = field(default_factory=Counter)
    settle_seconds: float = 0.0

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        launcher = [sys.executable, "-m", "tests.kit.share_planted", self.planted] if self.planted else []
        self._broker = BrokerProcess(
            self.work_dir / "broker",
            data_dir=self.work_dir / "data",
            settings=SETTINGS,
            arguments=["--durability", self.durability],
            launcher=launcher,
        )
        (self.work_dir / "journals").mkdir(parents=True, exist_ok=True)
        self._journal = Journal(self.work_dir / "journals" / "run.jsonl")
        self._processes: dict[str, tuple[ForkProcess, Callable[[Work], None], str]] = {}
        self._frozen: list[tuple[float, ForkProcess]] = []
        self._incarnations: Counter[str] = Counter()
        self._failures: list[str] = []

    def go(self) -> Verdict:
        """Work, break things, settle, judge."""
        self._broker.start()
        try:
            self._prepare()
            for number in range(self.producers):
                self._start(f"producer{number}", produce)
            for number in range(self.clients):
                self._start(f"client{number}", consume)
            for number in range(self.wire_members):
                self._start(f"member{number}", share)
            self._rest(1.0)
            for number in range(self.cycles):
                self._cycle(number)
            stuck = self._settle()
        finally:
            for process, _, _ in self._processes.values():
                process.kill()
                process.join()
            self._broker.__exit__(None, None, None)
        story = Story(lock_s=LOCK_S, count_limit=COUNT_LIMIT)
        verdict = judge(story.read(sorted((self.work_dir / "journals").glob("*.jsonl"))))
        verdict.add("stuck", stuck)
        verdict.add("a process failed", self._failures)
        return verdict

    def _prepare(self) -> None:
        with Wire(self._broker.connect()) as wire:
            wire.create_topic(TOPIC, self.partitions, internal_segment_bytes="40000")
            earliest = AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
            resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=GROUP, configs=[earliest])
            request = IncrementalAlterConfigsRequest(resources=[resource])
            [done] = wire.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
            assert not done.error_code, done

    # Processes

    def _start(self, name: str, role: Callable[[Work], None]) -> None:
        self._incarnations[name] += 1
        label = f"{name}.{self._incarnations[name]}"
        work = Work(
            host=self._broker.host,
            port=self._broker.port,
            label=label,
            seed=self.seed,
            partitions=self.partitions,
            lock_s=LOCK_S,
            journal=self.work_dir / "journals" / f"{label}.jsonl",
        )
        process = _FORKS.Process(target=_be, args=(role, work, self.work_dir / f"{label}.err"), daemon=True)
        process.start()
        self._processes[name] = (process, role, label)

    def _look_after(self) -> None:
        now = time.monotonic()
        for until, process in list(self._frozen):
            if now >= until:
                self._signal(process, signal.SIGCONT)
                self._frozen.remove((until, process))
        for name, (process, role, label) in list(self._processes.items()):
            if process.exitcode is not None:
                if process.exitcode != -signal.SIGKILL:
                    said = (self.work_dir / f"{label}.err").read_text(errors="replace")[-1500:]
                    self._failures.append(f"{label} ended with {process.exitcode}: {said}")
                self._start(name, role)

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._look_after()
            time.sleep(min(left, 0.05))

    @staticmethod
    def _signal(process: ForkProcess, number: signal.Signals) -> None:
        if process.exitcode is None and process.pid is not None:
            os.kill(process.pid, number)

    # Faults

    def _cycle(self, number: int) -> None:
        """A life of the broker, something that happens to a member in it, and the broker's end."""
        chance = self._chance
        self._rest(chance.uniform(SHORTEST_LIFE_S, self.longest_life_s))
        [hit] = chance.choices((None, signal.SIGKILL, signal.SIGSTOP), (4, 3, 3))
        if hit is not None:
            name = chance.choice([name for name in self._processes if not name.startswith("producer")])
            process, _, label = self._processes[name]
            self._journal.write("member hit", label, time.monotonic())
            self._signal(process, hit)
            if hit == signal.SIGSTOP:
                self._frozen.append((time.monotonic() + chance.uniform(1.1, 2.5) * LOCK_S, process))
            self.faults[f"member {hit.name}"] += 1
            self._rest(chance.choice((0, 0.3, 1.5)))
        if number % 25 == 24:
            assert self._broker.stop() == 0
            self._journal.write("broker killed", time.monotonic())
            self.faults["broker stopped"] += 1
        else:
            self._journal.write("broker killed", time.monotonic())
            self._broker.kill()
            self.faults["broker killed"] += 1
        self._broker.start()

    # The end

    def _settle(self) -> list[str]:
        """Without producers and faults the members come to the end; what is left when they do not."""
        for name in [name for name in self._processes if name.startswith("producer")]:
            process, _, _ = self._processes.pop(name)
            process.kill()
            process.join()
        began = time.monotonic()
        while lags := self._lags():
            self.settle_seconds = time.monotonic() - began
            if self.settle_seconds > SETTLE_SECONDS:
                return lags
            self._rest(0.2)
        return []

    def _lags(self) -> list[str]:
        with Wire(self._broker.connect()) as wire:
            request = DescribeShareGroupOffsetsRequest(groups=[AskedGroup(group_id=GROUP, topics=None)])
            [group] = wire.call(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, request).groups
        found = [part for topic in group.topics for part in topic.partitions]
        lags = [f"{part.partition_index}: from {part.start_offset}, lag {part.lag}" for part in found if part.lag]
        return lags or ([] if len(found) == self.partitions else [f"{len(found)} partitions: {group}"])


def _be(role: Callable[[Work], None], work: Work, errors: Path) -> None:
    descriptor = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    role(work)


def _report(run: ShareKills, verdict: Verdict, seconds: float) -> str:
    word = "VIOLATED" if verdict.violations else "nothing was lost, doubled or stuck"
    facts = [f"faults: {dict(run.faults)}", f"checked: {dict(verdict.counts)}"]
    facts.append(f"took {seconds:.0f} s, of which {run.settle_seconds:.1f} s until nothing was left")
    again = f"python -m tests.kit.share_kills --cycles {run.cycles} --seed {run.seed} --durability {run.durability}"
    planted = f" --planted {run.planted}" if run.planted else ""
    return "\n".join([word, *verdict.violations, *facts, f"again: {again} --partitions {run.partitions}{planted}"])


def main(argv: Sequence[str] | None = None) -> int:
    """The command line: a run and its verdict; 1 on a violation."""
    parser = parser_of("tests.kit.share_kills", __doc__)
    parser.add_argument("--cycles", type=int, default=10)
    parser.add_argument("--longest-life-ms", type=int, default=int(LONGEST_LIFE_S * 1000))
    parser.add_argument("--planted", choices=sorted(PLANTED), default="")
    arguments = parser.parse_args(argv)
    make = partial(
        ShareKills,
        seed=arguments.seed,
        cycles=arguments.cycles,
        partitions=arguments.partitions,
        durability=arguments.durability,
        planted=arguments.planted,
        longest_life_s=arguments.longest_life_ms / 1000,
    )
    return carry_out(make, arguments.directory, _report)


if __name__ == "__main__":
    sys.exit(main())
