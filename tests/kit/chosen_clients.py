"""A part of tests/interop, with brokers that keep their logs elsewhere than in one directory (stores.py)."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHOSEN = (
    "test_confluent_transactions.py",
    "test_confluent_kafka.py::test_a_group_shares_partitions_and_goes_on_where_it_stood",
    "test_confluent_admin.py",
    "test_aiokafka.py::test_transactions_commit_abort_and_carry_offsets",
    "test_kafka_python.py::test_transactions_commit_abort_and_carry_offsets",
    "test_kcat.py::test_produces_in_a_transaction_of_its_own",
)


def run_chosen(engine: str, *others: str) -> None:
    """Run them and `others` with FENCEPOST_ENGINE=`engine`; fails if one of them does."""
    tests = [f"tests/interop/{name}" for name in (*CHOSEN, *others)]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        cwd=ROOT,
        env={**os.environ, "FENCEPOST_ENGINE": engine},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-8000:]
