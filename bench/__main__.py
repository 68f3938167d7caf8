"""`make bench`: fencepost under load, beside a Kafka in the same run where one is named."""

import argparse
import shlex
import sys
import tempfile
from pathlib import Path

from bench import cases, memory
from bench.cases import CASES, CORES_CASES, LARGE_CASES, Case
from bench.report import Measured, circumstances, table, write
from bench.target import ClusterBroker, OwnBroker, Target

OUT = Path(__file__).parent / "out"
START_UPS = 3


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="make bench", description="Load against fencepost, and a Kafka beside it.")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="another broker, measured in the same run")
    parser.add_argument("--kafka-pid", type=int, help="its process id, for CPU and memory")
    parser.add_argument(
        "--kafka-fsync",
        metavar="HOST:PORT",
        help="a Kafka with log.flush.interval.messages=1, measured where fencepost's answers wait for the disk",
    )
    parser.add_argument("--kafka-fsync-pid", type=int, help="its process id")
    parser.add_argument("--name", default="Kafka", help="what to call it in the table")
    parser.add_argument("--scale", type=float, default=1.0, help="share of each case's load")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each case; the order turns round each time")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--large", action="store_true", help="write 10 GB to each broker as well, one at a time")
    parser.add_argument(
        "--durability",
        default="os,fsync",
        help="fencepost's settings to measure; os is what Kafka does (default %(default)s)",
    )
    parser.add_argument(
        "--store", metavar="postgresql://...", help="measure a broker of a cluster on this database, too"
    )
    parser.add_argument("--objects", metavar="file:///DIRECTORY", help="where that cluster keeps its records")
    parser.add_argument(
        "--cores",
        type=int,
        default=0,
        metavar="N",
        help="measure a broker on N cores beside that on one, by cases of its own",
    )
    parser.add_argument("--all-cases", action="store_true", help="all cases with fsync and in the cluster, too")
    return parser.parse_args()


def order(targets: list[Target], round_number: int) -> list[Target]:
    """A B, then B A: what drifts on the machine hits all alike."""
    return targets if round_number % 2 == 0 else targets[::-1]


def run_case(case: Case, targets: list[Target], rounds: int, scale: float) -> list[Measured]:
    """All runs of one case."""
    found = []
    for round_number in range(rounds):
        for target in order(targets, round_number):
            if case.fills_memory:
                memory.warm()
            result = case.run(target, scale)
            shown = ", ".join(f"{value:,.4g} {metric}" for metric, value in result.items())
            print(f"{case.name:<42} {target.name:<18} {shown}", flush=True)
            found += [Measured(case.name, metric, target.name, value) for metric, value in result.items()]
    return found


def run_start_ups(brokers: list[OwnBroker]) -> list[Measured]:
    """How long until the first acknowledged record; each start on a fresh directory."""
    found = []
    for broker in brokers:

        def start(broker: OwnBroker = broker) -> Target:
            broker.start()
            return broker

        for _ in range(START_UPS):
            result = cases.start_up(start, broker.stop)
            found += [Measured("start-up", metric, broker.name, value) for metric, value in result.items()]
    return found


def targets_of(options: argparse.Namespace, brokers: list[OwnBroker]) -> tuple[list[Target], list[tuple[str, str]]]:
    """Who is measured, and who is compared with whom: what acknowledges from the disk with what does so too."""
    targets: list[Target] = list(brokers)
    pairs = []
    for durability, name, address, pid in (
        ("os", options.name, options.kafka, options.kafka_pid),
        ("fsync", f"{options.name} (fsync)", options.kafka_fsync, options.kafka_fsync_pid),
    ):
        if address:
            targets.append(Target(name, address, pid, durability))
            pairs += [(broker.name, name) for broker in brokers if broker.durability == durability]
    return targets, pairs


def run_cases(options: argparse.Namespace, targets: list[Target]) -> list[Measured]:
    """Every case that was asked for, on everybody whom it concerns."""
    measured = []
    for case in CORES_CASES if options.cores else [*CASES, *(LARGE_CASES if options.large else [])]:
        if options.only in case.name:
            whom = [one for one in targets if one.durability == "os" or case.with_fsync or options.all_cases]
            measured += run_case(case, whom or targets, 1 if case.once else options.rounds, options.scale)
    return measured


def main() -> int:
    """Measure and write the table."""
    options = parse_options()
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-") as directory:
        brokers = [
            OwnBroker(f"fencepost ({durability})", Path(directory), durability)
            for durability in options.durability.split(",")
        ]
        alone = list(brokers)
        for one in alone if options.cores else ():
            brokers.append(OwnBroker(f"{one.name} on {options.cores} cores", Path(directory), one.durability))
            brokers[-1].arguments = ["--cores", str(options.cores)]
        if options.store:
            brokers.append(ClusterBroker(Path(directory), options.store, options.objects))
        targets, pairs = targets_of(options, brokers)
        pairs += [(f"{one.name} on {options.cores} cores", one.name) for one in alone]
        pairs += [("fencepost (cluster)", "fencepost (fsync)")] if options.store else []
        measured = run_start_ups(brokers) if options.only in "start-up" else []
        try:
            for broker in brokers:
                broker.start()
            for target in targets:
                cases.warm_up(target, options.scale, on_cores=options.cores > 0)
            measured += run_cases(options, targets)
        finally:
            for broker in brokers:
                broker.stop()
    command = shlex.join(["python", "-m", "bench", *sys.argv[1:]])
    text = f"{table(measured, pairs)}\n\n{circumstances(command)}"
    path = write(OUT, measured, text)
    print(f"\n{text}\n\nWritten to {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
