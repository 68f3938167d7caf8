"""Kill -9 in a loop under load, on one data directory that is never reset; after each, the files are read and judged.

    python -m tests.kit.kill_loop --cycles 200 --seed 7 --durability fsync --partitions 3

Idempotent, transactional and raw producers write while the broker is killed at random moments. While it is dead, a
reader that has nothing in common with the broker goes on in its files where it stood: what was acknowledged is there.
At the end, everything: each acknowledged record once and at its offset, order, no torn and no aborted transaction seen.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from tests.kit.history import READ_COMMITTED, READ_UNCOMMITTED, History, Log, Place, Verdict
from tests.kit.kill_check import FilesWatch, directory_of, read_files, trimmed_problems
from tests.kit.wire import Wire
from tests.kit.workload_command import carry_out, parser_of
from tests.kit.workload_readers import fetch_places
from tests.kit.workload_run import Plan, Run
from tests.kit.workload_writers import COMPACTED_TOPIC, RETAINED_TOPIC, TRIMMED, TRIMMED_TOPICS

RETAINED_BYTES, TRIMMED_SEGMENT_BYTES = 2000, 2000
SETTINGS = {
    "log.retention.check.interval.ms": "300",
    "log.cleaner.backoff.ms": "100",
    "log.write.thread.min.bytes": "120",
    "log.unflushed.max.bytes": "20000",
}
"""Of the batches some are written by the event loop, some by a thread; with `--durability os` so few bytes would not be
brought to the disk else."""
VERIFY_EVERY = 20
"""After so many kills `fencepost verify` looks at all of it, too."""
SHORTEST_LIFE_MS, LONGEST_LIFE_MS = 50, 1500
"""Of a broker, between its start and its death."""


@dataclass
class KillLoop(Run):
    """A chaos run with one kind of fault, many times over, and a look at the files after each."""

    cycles: int = 10
    longest_life_ms: int = LONGEST_LIFE_MS
    restart_seconds: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        (self.work_dir / TRIMMED).mkdir(parents=True, exist_ok=True)
        self._watch = FilesWatch(self.work_dir / "data", self.work_dir / "writers")

    def go(self) -> Verdict:
        """The cycles, and the verdict over all of them."""
        verdict = super().go()
        verdict.add("in the files", self.problems)
        verdict.counts["batches read from the files of a dead broker"] = self._watch.batches
        verdict.counts["acknowledged records found there"] = self._watch.found
        return verdict

    def _create_topics(self) -> None:
        super()._create_topics()
        small = {"internal_segment_bytes": str(TRIMMED_SEGMENT_BYTES)}
        with Wire(self._broker.connect()) as wire:
            wire.create_topic(RETAINED_TOPIC, 1, retention_bytes=str(RETAINED_BYTES), **small)
            wire.create_topic(COMPACTED_TOPIC, 1, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", **small)

    def _break_things(self, until: float) -> None:
        """Not until a time, but so many times."""
        self._rest(1.0)
        for number in range(self.cycles):
            self._rest(self._chance.uniform(SHORTEST_LIFE_MS, self.longest_life_ms) / 1000)
            self._broker.kill()
            self._note(f"cycle {number}", self._watch.look(self.plan.places))
            if number % VERIFY_EVERY == VERIFY_EVERY - 1:
                self._verify(f"cycle {number}")
            began = time.monotonic()
            self._broker.start()
            self.restart_seconds.append(time.monotonic() - began)
            self.faults["broker killed"] += 1

    def _history(self, finals: dict[str, dict[str, dict[Place, Log]]]) -> History:
        """With one more reader of everything: after a stop in order, out of the files."""
        self._broker.start()
        self._open_logs()
        self._note("at the end", [] if self._broker.stop() == 0 else ["the broker did not stop in order"])
        self._note("at the end", self._watch.look(self.plan.places))
        self._verify("at the end")
        view, problems = read_files(self.work_dir / "data", self.plan.places)
        self._note("at the end", problems)
        finals[READ_COMMITTED]["the files"] = view.committed
        finals[READ_UNCOMMITTED]["the files"] = view.everything
        for topic in TRIMMED_TOPICS:
            journals = sorted((self.work_dir / TRIMMED).glob(f"{topic}-*.jsonl"))
            compacted = topic == COMPACTED_TOPIC
            directory = directory_of(self.work_dir / "data", (topic, 0))
            self._note(topic, trimmed_problems(directory, journals, compacted=compacted))
        return super()._history(finals)

    def _open_logs(self) -> None:
        """A log is opened, and its indexes made good, when it is asked for."""
        with Wire(self._broker.connect()) as wire:
            fetch_places(wire, dict.fromkeys(self.plan.places, 0), READ_COMMITTED, 1)

    def _verify(self, when: str) -> None:
        data = self.work_dir / "data"
        for directory in (data, *data.glob("cores/[0-9]*")):
            command = [sys.executable, "-m", "fencepost", "verify", str(directory)]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            said = f"fencepost verify: {run.stdout[-2000:]}{run.stderr[-500:]}"
            self._note(when, [] if run.returncode == 0 else [said])

    def _note(self, when: str, found: Sequence[str]) -> None:
        self.problems += [f"{when}: {problem}" for problem in found]


def _report(run: KillLoop, verdict: Verdict, seconds: float) -> str:
    plan, restarts = run.plan, sorted(run.restart_seconds)
    facts = [f"faults: {dict(run.faults)}", f"checked: {dict(verdict.counts)}"]
    if restarts:
        facts.append(f"ready again after {restarts[len(restarts) // 2]:.2f} s (median), {restarts[-1]:.2f} s (longest)")
    facts.append(f"took {seconds:.0f} s")
    word = "VIOLATED" if verdict.violations else "nothing was lost"
    again = f"python -m tests.kit.kill_loop --cycles {run.cycles} --seed {plan.seed}"
    again += f" --durability {plan.durability} --partitions {plan.partitions} --longest-life-ms {run.longest_life_ms}"
    return "\n".join([f"{word} durability={plan.durability}", *verdict.violations, *facts, f"again: {again}"])


def main(argv: Sequence[str] | None = None) -> int:
    """The command line: a run and its verdict; 1 on a violation."""
    parser = parser_of("tests.kit.kill_loop", __doc__)
    parser.add_argument("--cycles", type=int, default=10)
    parser.add_argument("--longest-life-ms", type=int, default=LONGEST_LIFE_MS)
    arguments = parser.parse_args(argv)
    plan = Plan(
        seconds=0,
        seed=arguments.seed,
        durability=arguments.durability,
        partitions=arguments.partitions,
        transactional=2,
        transforms=0,
        raw=1,
        readers=("wire",),
        bad_network=False,
        settings=SETTINGS,
    )
    make = partial(KillLoop, plan, cycles=arguments.cycles, longest_life_ms=arguments.longest_life_ms)
    return carry_out(make, arguments.directory, _report)


if __name__ == "__main__":
    sys.exit(main())
