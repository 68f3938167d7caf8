"""`fencepost consume` and `produce` beside kcat: whole processes, in turns, on the same topics.

    python -m bench.records [--records 1000000] [--bytes 100] [--rounds 5]

Each row has the median of the rounds, and the lowest and highest: seconds from the start of the process to its end, and
CPU seconds of the process. The last rows are ratios of medians: below 1, fencepost is quicker. kcat sends with
idempotence and acks=all, as fencepost always does.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from bench.target import OwnBroker


def commands(address: str, topic: str, records: int) -> dict[str, list[str]]:
    """What is measured, by its name."""
    ours = [sys.executable, "-m", "fencepost"]
    kcat = ["kcat", "-F", os.devnull, "-b", address, "-t", topic]
    return {
        "produce kcat": [*kcat, "-P", "-X", "enable.idempotence=true"],
        "produce fencepost": [*ours, "produce", topic, "-b", address],
        "consume kcat": [*kcat, "-C", "-e", "-q", "-c", str(records)],
        "consume fencepost": [*ours, "consume", topic, "-b", address, "-e", "-q", "-c", str(records)],
    }


def run(command: list[str], lines: Path) -> tuple[float, float]:
    """Seconds and CPU seconds of one process. Raises CalledProcessError."""
    before, began = os.times(), time.perf_counter()
    with lines.open("rb") as source:
        subprocess.run(command, stdin=source, stdout=subprocess.DEVNULL, check=True)
    seconds, after = time.perf_counter() - began, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, cpu


def one_round(address: str, records: int, lines: Path) -> dict[str, tuple[float, float]]:
    """Each command once, on a topic of their own; both read what both have written."""
    admin, topic = AdminClient({"bootstrap.servers": address}), f"records-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    measured = {name: run(command, lines) for name, command in commands(address, topic, records).items()}
    admin.delete_topics([topic])[topic].result()
    return measured


def main() -> int:
    """The command; 1 without kcat."""
    parser = argparse.ArgumentParser(prog="python -m bench.records", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="records of each run (1000000)")
    parser.add_argument("--bytes", type=int, default=100, help="bytes of a record (100)")
    parser.add_argument("--rounds", type=int, default=5, help="measured runs of each command (5)")
    arguments = parser.parse_args()
    if shutil.which("kcat") is None:
        print("kcat is not installed: there is nothing to compare with", file=sys.stderr)
        return 1
    found: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as directory:
        lines = Path(directory) / "lines"
        width = arguments.bytes
        lines.write_text("".join(f"{number:0{width}d}\n" for number in range(arguments.records)), encoding="ascii")
        target = OwnBroker("fencepost", Path(directory), "os")
        target.start()
        try:
            for number in range(arguments.rounds + 1):
                for name, measured in one_round(target.address, arguments.records, lines).items():
                    if number:
                        found.setdefault(name, []).append(measured)  # the first round is warm-up
        finally:
            target.stop()
    medians = {}
    for name, runs in found.items():
        row: dict[str, object] = {"row": name}
        for figure, values in (("seconds", [one[0] for one in runs]), ("cpu_seconds", [one[1] for one in runs])):
            row[figure] = [round(value, 2) for value in (statistics.median(values), min(values), max(values))]
        medians[name] = statistics.median(one[0] for one in runs)
        print(json.dumps(row), flush=True)
    for what in ("produce", "consume"):
        ratio = medians[f"{what} fencepost"] / medians[f"{what} kcat"]
        print(json.dumps({"row": f"{what}: fencepost / kcat", "seconds": round(ratio, 2)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
