"""Runs the programs of examples/ as processes, and counts what they wrote."""

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from fencepost.sync import Client
from tests.architecture.project_files import ROOT

SURVIVORS = {
    "bank_transfer": ("bank-bookings", r"400 transfers, 800 bookings, sum of all accounts 0\n"),
    "enrichment": ("enrich-enriched", r"600 orders, 600 enriched orders\n"),
    "dead_letter": (
        "dead-celsius",
        r"600 readings, 588 converted, 12 dead letters\n  error: .*\n  origin: .*-\d@\d+\n",
    ),
    "chargeback": ("sale-chargebacks", r"200 sales, 50 disputed, 250 lines charged back\n"),
    "outbox": ("outbox-events", r"300 orders in the database, 300 events in the topic\n"),
}
"""What each program that survives kills writes to, and the end of what it prints."""
OTHERS = {"spark_etl", "parallel_consumer", "audit", "test_billing"}
"""The other programs of a page; each has a test of its own."""


def start(example: str, *arguments: str) -> subprocess.Popen[str]:
    """The process, in a session of its own."""
    command = [sys.executable, f"examples/{example}.py", *arguments]
    # Spark takes the first python3 on the PATH for its workers.
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, env=environment, start_new_session=True
    )


def run(example: str, *arguments: str) -> tuple[int, str]:
    """The exit code, and what it wrote to standard output and error."""
    with start(example, *arguments) as process:
        out, error = process.communicate(timeout=200)
    return process.returncode, out + error


def kill_at_work(example: str, *arguments: str) -> None:
    """Start it, and kill it a moment after it reported its second transaction."""
    with start(example, *arguments) as process:
        assert process.stdout is not None
        for _ in range(2):
            line = process.stdout.readline()
            assert re.match(r"[a-z ]+ \d+ [a-z]+\n", line), line
        time.sleep(0.002)  # so that the kill falls anywhere in a transaction; it is right wherever it falls
        process.kill()
        assert process.wait(100) == -signal.SIGKILL, "it was over before it was killed"


def killed_and_run_again(
    example: str, topic: str, says: str, address: str, *more: str
) -> Counter[tuple[bytes | None, bytes | None]]:
    """What it wrote to its topic in both lives; raises AssertionError where the second does not end as it says."""
    kill_at_work(example, address, *more)
    part = values(address, topic).total()
    code, out = run(example, address, *more)
    assert code == 0, out
    assert re.search(says + r"\Z", out), out
    whole = values(address, topic)
    assert 0 < part < whole.total(), "the kill fell into the work"
    return whole


def values(address: str, topic: str) -> Counter[tuple[bytes | None, bytes | None]]:
    """Each committed record of a topic, counted."""
    with Client(address, timeout=60) as kafka, kafka.consumer(topic) as consumer:
        return Counter((record.key, record.value) for batch in consumer.read_to_end() for record in batch)


def send(address: str, topic: str, *records: tuple[bytes | None, bytes | None]) -> None:
    """Write records that the program under test knows nothing of."""
    with Client(address, timeout=60) as kafka, kafka.producer() as producer:
        producer.send_many(topic, records)
