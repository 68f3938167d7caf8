"""Everything is killed with -9 while Spark's pipelines run. The one question: is each output the input, exactly once?

    python -m tests.spark.pipeline_kills --cycles 300

A writer commits and aborts transactions on one broker all the time. Each cycle runs a pipeline (PIPELINES) in a driver
(tests/spark/pipeline_driver.py) and lets a fault (FAULTS) happen, at a point or at any time: the driver is killed with
its JVM and workers, or its Python workers alone, or the broker, which is started again; or a driver is frozen, a
successor runs the same pipeline, and the zombie wakes. In "lost" and "old" a checkpoint is deleted, or is an old copy:
that is to be refused. At the end everything finishes in peace, and readers without fencepost and Spark compare.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.kit.broker_process import BrokerProcess
from tests.spark.conftest import new_topic, prepare_spark
from tests.spark.driver_process import Driver, no_worker
from tests.spark.output_check import faults, torn, transactions
from tests.spark.pipeline_driver import POINTS_AT, Places
from tests.spark.pipeline_writer import PARTITIONS, Writer
from tests.spark.sink_kills import TWO_PHASE, committed_messages
from tests.spark.sink_points import LANE_POINTS, POINTS
from tests.spark.tables_kit import FORMATS, rows_in

_STREAM = ("planning", "planned", "reading")
_TABLE = ("planning", "reading", "staged", "committed")
PIPELINES = {
    "source": (*_STREAM, "staged", "committed"),
    "sink": (*_STREAM, "prepared", *POINTS),
    "sink-lanes": (*_STREAM, *LANE_POINTS),
    **{f"{kind}-{name}": _TABLE for kind in ("export", "append") for name in FORMATS},
}
"""The points of each."""
FAULTS = ("driver", "workers", "broker", "zombie")
CHECKED = ("sink", "sink-lanes", *(f"append-{name}" for name in FORMATS))
"""Pipelines whose target notices that the checkpoint is lost. An export has none, and a plain source has only that."""
REFUSALS = {"lost": "its checkpoint was deleted", "old": "old copy"}
NEVER = (*REFUSALS.values(), "has no commit marker", "are missing", "DataLoss", "was deleted and created again")
"""What no pipeline may say while its checkpoint and its topic are there."""
ANSWER_SECONDS = 300.0
MOST_STARTS = 10
MOST_FAULTS = 6
"""In one run of a pipeline, which goes on while its broker or its workers are killed."""
ROWS_EACH = 10
"""Each cycle adds at least this number of rows."""
_LOOK_SECONDS = 0.02
_CAUSE = re.compile(r"^(?!org\.|java\.|py4j\.)[\w.]*(Error|Exception|Loss|Fenced\w*): .")
Row = tuple[int, int, bytes, bytes]


class PipelineDriver(Driver):
    """A tests.spark.pipeline_driver, and its end of the files in its directory."""

    def __init__(self, places: Places, directory: Path, log: Path) -> None:
        self._directory = directory
        self.had_workers_killed = False
        directory.mkdir()
        super().__init__("tests.spark.pipeline_driver", places.text(), log, {POINTS_AT: str(directory)})

    def run(self, pipeline: str, point: str = "", times: int = 1) -> None:
        """Begin to run a pipeline, which stops when it comes to the point for that time."""
        for left in self._directory.iterdir():
            left.unlink()
        if point:
            fresh = self._directory / "fresh"
            fresh.write_text(json.dumps([point, times]))
            fresh.replace(self._directory / "wanted")
        self.say(pipeline)

    def stopped(self) -> bool:
        """Wait until it stops at the point; False where its run ended before."""
        return self._until(lambda: (self._directory / "reached").exists() or None) is True

    def go_on(self) -> None:
        """From the point."""
        (self._directory / "wanted").unlink(missing_ok=True)

    @property
    def has_answered(self) -> bool:
        """Whether the run has ended."""
        return (self._directory / "answer").exists()

    def answer(self) -> str:
        """How the run ended: nothing, or an error. Raises TimeoutError."""
        self._until(lambda: None)
        return (self._directory / "answer").read_text()

    def _until(self, found: Callable[[], Any]) -> Any:
        """What is found before the run ends; None where it ends."""
        until = time.monotonic() + ANSWER_SECONDS
        while (seen := found()) is None and not self.has_answered:
            assert not self.ended, f"the driver ended by itself: {self.printed()[-2000:]}"
            if time.monotonic() > until:
                raise TimeoutError(f"no answer of the driver in {ANSWER_SECONDS} s: {self.printed()[-2000:]}")
            time.sleep(_LOOK_SECONDS)
        return seen


class World:
    """A broker, a writer, the pipelines' outputs, the driver that runs them, and what has been killed."""

    def __init__(self, stack: ExitStack, broker: BrokerProcess, work_dir: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.broker = broker
        self._work_dir, self._stack = work_dir, stack
        topic = new_topic(broker.address, f"in-{os.urandom(4).hex()}", PARTITIONS)
        self.places = Places(broker.address, topic, str(work_dir))
        for name in PIPELINES:
            self.places.output(name).mkdir()
            if name.startswith("sink"):
                new_topic(broker.address, self.places.topic(name), PARTITIONS)
        self.writer = Writer(broker.address, topic, seed)
        self.kills: Counter[tuple[str, str]] = Counter()
        self.points: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.restarts = self.missed = self._drivers = 0
        self._driver: PipelineDriver | None = None
        self._spare: PipelineDriver | None = None
        self._faults: dict[str, Callable[[PipelineDriver], None]] = {
            "driver": self._kill_driver,
            "workers": self._kill_workers,
            "broker": self._kill_broker,
        }

    @property
    def driver(self) -> PipelineDriver:
        """The one that lives. Where there is none, the spare takes its place, and a new spare starts meanwhile."""
        for _ in range(MOST_STARTS):
            if self._driver is not None:
                return self._driver
            found, self._spare = self._spare or self._new_driver(), self._new_driver()
            if found.started():
                self._driver = found
            else:
                self.restarts += 1
        raise TimeoutError(f"{MOST_STARTS} drivers did not start")

    def _new_driver(self) -> PipelineDriver:
        self._drivers += 1
        directory = self._work_dir / f"driver-{self._drivers}"
        return self._stack.enter_context(PipelineDriver(self.places, directory, self._work_dir / "drivers.log"))

    def finish(self, pipeline: str, wanted: str = "") -> str:
        """Run a pipeline in peace; its error, if it has the wanted words or nothing excuses it."""
        for _ in range(MOST_STARTS):
            self.driver.run(pipeline)
            failure = self.driver.answer()
            if not failure or (wanted and wanted in failure) or not self._excused(pipeline, failure):
                return failure
        return failure

    def _excused(self, pipeline: str, failure: str) -> bool:
        """Whether a run that nothing disturbed may have failed.

        Spark did not wait for a worker, or its pool has one of those that were killed, which it finds at its next use.
        """
        if no_worker(failure):
            self.restarts += 1
            return True
        self._look_at(pipeline, failure)
        return self.driver.had_workers_killed

    def cycle(self, pipeline: str, fault: str, *, at_point: bool) -> list[str]:
        """One run of a pipeline, and the faults that happened in it; none where it ended before."""
        self.writer.wait_for(self.writer.rows + ROWS_EACH)
        if fault in REFUSALS:
            return [fault] if self._checkpoint_is_missed(pipeline, fault) else []
        driver = self.driver
        point = self.random.choice(PIPELINES[pipeline]) if at_point else ""
        driver.run(pipeline, point, self.random.choice((1, 1, 1, 2)))
        if not (driver.stopped() if point else self._is_running_later(driver)):
            failure = driver.answer()
            excused = not failure or self._excused(pipeline, failure)
            assert excused, f"{pipeline} failed, and nothing had disturbed it: {failure[-3000:]}"
            return []
        self.points[point or "any time"] += 1
        if fault == "zombie":
            self._freeze_driver(pipeline, driver)
            return [fault]
        happened = [fault]
        self._faults[fault](driver)
        while fault != "driver" and len(happened) < MOST_FAULTS and self._is_running_later(driver):
            fault = self.random.choice(("broker", "broker", "broker", "workers", "driver"))
            self.points["any time"] += 1
            self._faults[fault](driver)
            happened.append(fault)
        if fault != "driver":
            self._look_at(pipeline, driver.answer())
        return happened

    def _is_running_later(self, driver: PipelineDriver) -> bool:
        """Whether a driver's run has not ended after some time."""
        time.sleep(self.random.uniform(0, 1.5))
        return not driver.has_answered

    def _kill_driver(self, driver: PipelineDriver) -> None:
        driver.kill()
        self._driver = None

    def _kill_workers(self, driver: PipelineDriver) -> None:
        driver.kill_workers()
        driver.had_workers_killed = True
        driver.go_on()

    def _kill_broker(self, driver: PipelineDriver) -> None:
        self.broker.kill()
        if self.random.random() < 0.5:
            driver.go_on()
            time.sleep(self.random.uniform(0, 1.5))
        self.broker.start()
        driver.go_on()

    def _freeze_driver(self, pipeline: str, old: PipelineDriver) -> None:
        old.signal(signal.SIGSTOP)
        self._driver = None
        self.driver.run(pipeline)
        if self.random.random() < 0.5:
            self._look_at(pipeline, self.driver.answer())
        else:
            time.sleep(self.random.uniform(3, 9))
        old.go_on()
        old.signal(signal.SIGCONT)
        for failure in (old.answer(), self.driver.answer()):
            if REFUSALS["old"] not in failure:  # both run at once: one of them finds the other one ahead
                self._look_at(pipeline, failure)
        old.kill()

    def _checkpoint_is_missed(self, pipeline: str, how: str) -> bool:
        """The pipeline refuses to go on without its checkpoint, or with an old copy of it."""
        checkpoint = self.places.checkpoint(pipeline)
        kept = checkpoint.with_name("kept")
        last = last_batch(checkpoint)
        if last < (0 if how == "lost" else 2):
            failure = self.finish(pipeline)
            assert not failure, f"{pipeline} failed, and nothing had disturbed it: {failure[-3000:]}"
            return False
        checkpoint.rename(kept)
        if how == "old":
            shutil.copytree(kept, checkpoint)
            for path in [*checkpoint.glob("offsets/*"), *checkpoint.glob("commits/*")]:
                if path.name.isdigit() and int(path.name) >= last - 1:
                    path.unlink()
                    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        failure = self.finish(pipeline, REFUSALS[how])
        assert REFUSALS[how] in failure, f"{pipeline} did not notice that its checkpoint is {how}: {failure[-3000:]!r}"
        shutil.rmtree(checkpoint)
        kept.rename(checkpoint)
        return True

    def _look_at(self, pipeline: str, failure: str) -> None:
        """Count the error of a run that was disturbed; errors that no disturbance may cause end the play."""
        wrong = [text for text in NEVER if text in failure]
        assert not wrong, f"{pipeline} refused to go on: {failure[-3000:]}"
        if no_worker(failure):
            self.restarts += 1
        elif failure:
            self.errors[f"{pipeline}: {first_cause(failure)}"] += 1

    def check(self) -> dict[str, int]:
        """The rows of each output, which are those of the input. Raises AssertionError with all that differs."""
        self.writer.end()
        for name in PIPELINES:
            failure = self.finish(name)
            assert not failure, f"{name} does not finish in peace: {failure[-3000:]}"
        rows = [row_of(one) for one in committed_messages(self.places.bootstrap, self.places.input, PARTITIONS)]
        values = [row[3] for row in rows]
        found = [f"input: {one}" for one in torn(values)]
        seen = transactions(values)
        if self.writer.committed - seen or self.writer.aborted & seen:
            found.append("input: a transaction did not end as its writer was answered")
        counts = {"input": len(rows)}
        for name in PIPELINES:
            there = list(self.rows_of(name))
            counts[name] = len(there)
            wanted = [row[2:] for row in rows] if name.startswith("sink") else rows
            found += [f"{name}: {one}" for one in [*faults(wanted, there), *torn(row[-1] for row in there)]]
        assert not found, "\n".join(found)
        return counts

    def rows_of(self, name: str) -> Iterator[Any]:
        """The rows of an output, as a library that is neither fencepost's nor Spark's reads them."""
        if name.startswith("sink"):
            for message in committed_messages(self.places.bootstrap, self.places.topic(name), PARTITIONS):
                yield row_of(message)[2:]
        elif name == "source":
            changed = list(self.places.output(name).glob("changed-*"))
            assert not changed, f"a micro-batch had other rows when it was run again: {changed}"
            for path in self.places.output(name).glob("batch-*.json"):
                for partition, offset, key, value in json.loads(path.read_text()):
                    yield partition, offset, key.encode(), value.encode()
        else:
            for row in rows_in(self.places.output(name), name.partition("-")[2]):
                yield row["partition"], row["offset"], row["key"], row["value"]

    def table(self) -> str:
        """The kills by pipeline and fault."""
        kinds = (*FAULTS, *REFUSALS)
        lines = [f"{'':16}" + "".join(f"{kind:>9}" for kind in kinds)]
        for name in PIPELINES:
            lines.append(f"{name:16}" + "".join(f"{self.kills[name, kind]:9}" for kind in kinds))
        lines.append(f"{'all':16}" + "".join(f"{sum(self.kills[n, kind] for n in PIPELINES):9}" for kind in kinds))
        return "\n".join(lines)


def row_of(message: Any) -> Row:
    """A record of librdkafka."""
    return message.partition(), message.offset(), message.key(), message.value()


def last_batch(checkpoint: Path) -> int:
    """The last micro-batch that Spark knows to be done; -1 if there is none."""
    return max((int(path.name) for path in checkpoint.glob("commits/*") if path.name.isdigit()), default=-1)


def first_cause(failure: str) -> str:
    """The line of an error that tells most, without numbers."""
    lines = [line.strip() for line in failure.splitlines() if line.strip()]
    causes = [line for line in lines if _CAUSE.match(line)]
    return re.sub(r"[0-9a-f-]{8,}|\d+", "N", (causes or lines)[-1 if causes else 0])[:160]


def deck(chance: random.Random) -> Iterator[tuple[str, str, bool]]:
    """Pipelines and their faults, most at a point and some at any time; all of them, and again in another order."""
    kills = [(fault, at) for fault in ("driver", "workers", "broker") for at in (True, True, False)]
    cards = [(name, *how) for name in PIPELINES for how in (*kills, ("zombie", True))]
    cards += [(name, how, False) for name in CHECKED for how in REFUSALS]
    while True:
        yield from chance.sample(cards, len(cards))


def play(world: World, cycles: int, minutes: float = float("inf")) -> dict[str, int]:
    """So many faults, or those of so much time; then the rows of each output, which were compared."""
    world.writer.start()
    cards = deck(world.random)
    began = time.monotonic()
    while (done := world.kills.total()) < cycles and time.monotonic() < began + 60 * minutes:
        pipeline, fault, at_point = next(cards)
        while not (happened := world.cycle(pipeline, fault, at_point=at_point)):
            world.missed += 1
        world.kills.update((pipeline, one) for one in happened)
        done += len(happened)
        so_far = f"{world.writer.rows} rows, {world.restarts} slow starts, {world.missed} missed"
        rate = (time.monotonic() - began) / done
        print(f"{time.strftime('%H:%M:%S')} {done}: {pipeline} {happened}; {so_far}; {rate:.1f} s each", flush=True)
    return world.check()


def main() -> None:
    """The long run, from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=300)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no further cycle after these")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(2)))
    given = parser.parse_args()
    prepare_spark()
    print(f"seed {given.seed}", flush=True)
    with ExitStack() as stack:
        work_dir = Path(tempfile.mkdtemp(prefix="pipeline-kills-"))
        print(f"in {work_dir}, which is kept if a fault is found", flush=True)
        broker = BrokerProcess(work_dir / "broker", data_dir=work_dir / "data", settings=TWO_PHASE)
        world = World(stack, stack.enter_context(broker), work_dir, given.seed)
        try:
            rows = play(world, given.cycles, given.minutes)
        finally:
            print(world.table(), flush=True)
            print("points:", dict(world.points.most_common()))
            for failure, times in world.errors.most_common():
                print(f"{times} x {failure}")
            print(f"{world.restarts} slow starts, {world.missed} runs ended before the fault", flush=True)
    shutil.rmtree(work_dir)
    print(f"rows: {rows}\n{world.kills.total()} cycles: each output is the input, exactly once")


if __name__ == "__main__":
    main()
