"""Other people's clients on a broker with PostgreSQL and objects: a part of tests/interop.

All of it, and Spark's tests: `FENCEPOST_ENGINE=cluster make test ARGS="tests/interop tests/spark"`.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CHOSEN = (
    "test_confluent_transactions.py",
    "test_confluent_kafka.py::test_a_group_shares_partitions_and_goes_on_where_it_stood",
    "test_confluent_admin.py",
    "test_aiokafka.py::test_transactions_commit_abort_and_carry_offsets",
    "test_kafka_python.py::test_transactions_commit_abort_and_carry_offsets",
    "test_kcat.py::test_produces_in_a_transaction_of_its_own",
)


@pytest.mark.interop
@pytest.mark.timeout(400)
@pytest.mark.usefixtures("server")
def test_clients_of_others_work_with_a_shared_store() -> None:
    """Transactions, groups and administration; skipped where there is no PostgreSQL."""
    tests = [f"tests/interop/{name}" for name in CHOSEN]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        cwd=ROOT,
        env={**os.environ, "FENCEPOST_ENGINE": "cluster"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-8000:]
