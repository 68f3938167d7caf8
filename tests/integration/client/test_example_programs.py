"""The programs of a page each in examples/, as processes: run, killed in the middle, and run on a broken topic."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.sync import Client
from tests.architecture.project_files import ROOT
from tests.kit.broker_process import BrokerProcess
from tests.kit.example_programs import SURVIVORS, kill_at_work, killed_and_run_again, run, send, values
from tests.kit.postgres_server import postgres_or_skip


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("examples")) as process:
        yield process


def assert_survives_a_kill(example: str, address: str, *more: str) -> None:
    topic, says = SURVIVORS[example]
    whole = killed_and_run_again(example, topic, says, address, *more)

    # One record twice, as a program without transactions would leave it after a kill: the program's own check fails.
    send(address, topic, next(iter(whole)))
    code, out = run(example, address, *more)
    assert code == 1, out
    assert "Traceback" not in out
    assert values(address, topic).total() == whole.total() + 1, "there was nothing left to do"


@pytest.mark.parametrize("example", sorted(SURVIVORS.keys() - {"outbox"}))
def test_a_program_that_is_killed_finishes_when_it_runs_again(broker: BrokerProcess, example: str) -> None:
    assert_survives_a_kill(example, broker.address)


def test_the_outbox_is_published_once_whoever_is_killed(broker: BrokerProcess) -> None:
    with postgres_or_skip() as server:
        assert_survives_a_kill("outbox", broker.address, server.conninfo)


def test_the_parallel_consumer_keeps_the_order_of_each_key(broker: BrokerProcess) -> None:
    kill_at_work("parallel_consumer", broker.address)
    code, out = run("parallel_consumer", broker.address)
    assert code == 0, out
    assert re.search(r"clicks in .* s, one after the other at least .* s\n(\d+) of \1 customers in order\n\Z", out), out
    send(broker.address, "parallel-clicks", (b"customer-x", b"1"), (b"customer-x", b"0"))
    code, out = run("parallel_consumer", broker.address)
    assert (code, "20 of 21 customers in order" in out) == (1, True), out


def test_the_audit_finds_what_is_missing_and_what_is_there_too_often(broker: BrokerProcess) -> None:
    code, out = run("audit", broker.address)
    assert (code, out) == (0, "1000 records in audit-source, 0 problems in audit-copy\n")

    pair = ("audit-source", "audit-copy")
    send(broker.address, "audit-source", (b"order-1000", b"5 EUR"))
    send(broker.address, "audit-copy", (b"order-7", b"7 EUR"))
    with (
        Client(broker.address, timeout=60) as kafka,
        kafka.transactional_producer("clerk") as producer,
        producer.transaction() as txn,
    ):
        txn.send("audit-source", b"not decided", partition=0)
        producer.flush()
        code, out = run("audit", broker.address, *pair)
    assert code == 1, out
    held, missing, often, end = out.splitlines()
    assert held == "clerk is open in audit-source"
    assert re.fullmatch(r"missing: \(b'order-1000', b'5 EUR'\), in the source at audit-source-\d@\d+", missing)
    assert re.fullmatch(r"too often: \(b'order-7', b'7 EUR'\), at (audit-copy-\d@\d+), audit-copy-\d@\d+", often)
    assert end == "1001 records in audit-source, 3 problems in audit-copy"


def pytest_process(suite: Path) -> subprocess.CompletedProcess[str]:
    words = ["-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"), str(suite)]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=ROOT, capture_output=True, text=True, timeout=200, check=False
    )


def test_the_pytest_suite_passes_and_fails_where_the_program_is_wrong(tmp_path: Path) -> None:
    suite = ROOT / "examples" / "test_billing.py"
    right = pytest_process(suite)
    assert right.returncode == 0, right.stdout
    assert "11 passed" in right.stdout

    text = suite.read_text(encoding="utf-8")
    wrong = tmp_path / "test_billing.py"
    wrong.write_text(text.replace("txn.send_offsets(consumer)", "pass"), encoding="utf-8")
    assert wrong.read_text(encoding="utf-8") != text
    failed = pytest_process(wrong)
    assert failed.returncode == 1
    assert "too often b'invoice for tea'" in failed.stdout
