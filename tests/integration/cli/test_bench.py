"""`fencepost bench`: its figures are those of what it did."""

from typing import Any

import pytest

from fencepost.cli.bench.measuring import Result
from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import command, command_json


@pytest.fixture(scope="module")
def filled(broker: BrokerProcess) -> dict[str, Any]:
    """What `bench produce` measured."""
    assert command(broker, "topic", "create", "load").exit_code == 0
    found: dict[str, Any] = command_json(broker, "bench", "produce", "load", "-n", "5000", "--bytes", "1000")
    return found


def offsets(broker: BrokerProcess) -> int:
    """How many offsets the topic has."""
    return sum(one["offsets"] for one in command_json(broker, "topic", "offsets", "load"))


def test_produce_counts_what_it_sends(broker: BrokerProcess, filled: dict[str, Any]) -> None:
    assert filled["records"] >= 5000
    assert filled["records"] <= offsets(broker) <= filled["records"] + 2, "one before, one that was not waited for"
    assert filled["mb_per_second"] == pytest.approx(filled["records_per_second"] / 1000, rel=0.02)
    assert 0 < filled["p50_ms"] <= filled["p99_ms"]


def test_consume_reads_them(broker: BrokerProcess, filled: dict[str, Any]) -> None:
    found = command_json(broker, "bench", "consume", "load")
    assert found["records"] >= filled["records"]
    text = command(broker, "bench", "consume", "load", "-n", "10").stdout
    assert " MB a second" in text
    assert "p50" not in text, "a consumer has no latencies here"


def test_transactions_are_committed(broker: BrokerProcess, filled: dict[str, Any]) -> None:
    before = offsets(broker)
    found = command_json(broker, "bench", "txn", "load", "-n", "20", "--size", "3")
    assert found["transactions"] == 20
    assert offsets(broker) - before == 20 * (3 + 1) + 2, "records and markers; the first transaction is warm-up"


def test_errors_are_those_of_other_commands(broker: BrokerProcess) -> None:
    done = command(broker, "bench", "produce", "load", "--bytes", "2000000", "-n", "1")
    assert (done.exit_code, "MESSAGE_TOO_LARGE" in done.stderr) == (1, True)


def test_percentiles_are_the_nearest_rank() -> None:
    found = Result(4, 0, 2.0, [0.001, 0.002, 0.003, 0.004])
    assert (found.percentile(50), found.percentile(99)) == (0.002, 0.004)
    assert found.facts("transactions") == {
        "transactions": 4,
        "seconds": 2.0,
        "transactions_per_second": 2.0,
        "p50_ms": 2.0,
        "p99_ms": 4.0,
    }
