"""`fencepost txn` against a running broker, as an operator types it (rows T18, T19, T20)."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fencepost.cli.main import cli
from fencepost.protocol.errors import ErrorCode
from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import command, command_json
from tests.kit.wire import NOW_MS, Wire, batch_of

HOUR_MS = 3_600_000
Identity = tuple[int, int]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all; it does not check old clients' writes, so that a transaction can hang."""
    settings = {"transaction.partition.verification.enable": "false", "storage": "memory"}
    with BrokerProcess(tmp_path_factory.mktemp("txn"), settings=settings) as running:
        yield running


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    """A producer's connection."""
    with Wire(broker.connect(), client_id="billing") as connected:
        yield connected


def txn(broker: BrokerProcess, *words: str) -> Result:
    """One command."""
    return command(broker, "txn", *words)


def told(broker: BrokerProcess, *words: str) -> Any:
    """One command's JSON."""
    return command_json(broker, "txn", *words)


def write(wire: Wire, topic: str, name: str, held: Identity, timestamp_ms: int = NOW_MS) -> None:
    header = {"transactional": True, "producer_id": held[0], "producer_epoch": held[1], "base_sequence": 0}
    answer = wire.produce(topic, batch_of(b"a", timestamp_ms=timestamp_ms, **header), transactional_id=name)
    assert answer.error_code == ErrorCode.NONE


def begin(wire: Wire, topic: str, name: str) -> Identity:
    """Open a transaction on the first partition of a new topic, with a record before it."""
    wire.create_topic(topic, partitions=2)
    wire.produce(topic, batch_of(b"before"))
    held = wire.init_producer_id(name)
    wire.add_partitions(name, held, topic, 0)
    write(wire, topic, name, held)
    return held


def test_why_names_holder_client_groups_and_remedy(broker: BrokerProcess, wire: Wire) -> None:
    """What S3 asks for and nobody has: which producer holds the LSO, whose it is, who waits, what to do."""
    held = begin(wire, "why", "why-1")
    wire.produce("why", batch_of(b"b", b"c", b"d"))
    assert wire.commit_offsets("waiting", "why", 0) is ErrorCode.NONE
    assert wire.commit_offsets("uncommitted", "why", 4) is ErrorCode.NONE
    result = txn(broker, "why", "why:0")
    assert result.exit_code == 0, result.output
    text = result.stdout
    assert "why:0: last stable offset 1, high watermark 5" in text
    assert "held back by 4 offsets" in text
    assert f"Held by producer {held[0]} epoch {held[1]}, transactional.id why-1" in text
    assert "billing at 127.0.0.1" in text
    assert "Ongoing, times out in" in text
    assert f"fencepost txn abort why-1 --bootstrap {broker.host}:{broker.port}" in text
    assert "uncommitted" not in text
    found = told(broker, "why", "why:0")
    assert (found["last_stable_offset"], found["high_watermark"]) == (1, 5)
    [holder] = found["holders"]
    assert (holder["verdict"], holder["first_offset"]) == ("open", 1)
    assert holder["transaction"]["blocks"] == ["why:0"]
    [group] = found["groups"]
    assert (group["group_id"], group["committed"], group["own_lag"], group["held_back"]) == ("waiting", 0, 1, 4)
    assert "nothing holds readers back" in txn(broker, "why", "why:1").stdout


def test_list_and_producers(broker: BrokerProcess, wire: Wire) -> None:
    """Rows T18 (with KIP-994's and KIP-1152's filters) and T19."""
    held = begin(wire, "listed", "list-1")
    wire.init_producer_id("list-2")
    by_name = told(broker, "list", "--pattern", "list-.*")
    assert [(line["transactional_id"], line["state"]) for line in by_name] == [
        ("list-1", "Ongoing"),
        ("list-2", "Empty"),
    ]
    assert told(broker, "list", "--pattern", "list-.*", "--state", "empty")[0]["transactional_id"] == "list-2"
    assert told(broker, "list", "--producer-id", str(held[0]))[0]["transactional_id"] == "list-1"
    assert told(broker, "list", "--pattern", "list-.*", "--longer-than", "3600") == []
    assert told(broker, "list", "--pattern", "list-.*", "--longer-than", "2w1d") == []
    assert [line["started"] is None for line in by_name] == [False, True]
    [head, opened, empty] = txn(broker, "list", "--pattern", "list-.*").stdout.splitlines()
    assert head.split() == ["TRANSACTIONAL.ID", "PRODUCER", "STATE", "OPEN", "FOR"]
    assert re.fullmatch(rf"list-1 +{held[0]}  Ongoing  [\d.]+ m?s", opened), opened
    assert empty.split() == ["list-2", str(held[0] + 1), "Empty", "-"]
    [producer] = told(broker, "producers", "listed:0", "--open")
    assert (producer["producer_id"], producer["transaction_start_offset"]) == (held[0], 1)
    assert "OPEN SINCE OFFSET" in txn(broker, "producers", "listed:0").stdout


def test_abort_fences_and_the_fenced_one_is_explained(broker: BrokerProcess, wire: Wire) -> None:
    """A dry run changes nothing; the abort is a fence, which `describe` then explains to whoever was shut out."""
    held = begin(wire, "aborted", "abort-1")
    assert (
        "Would abort the transaction of 'abort-1' on aborted:0" in txn(broker, "abort", "abort-1", "--dry-run").stdout
    )
    assert told(broker, "describe", "abort-1")["state"] == "Ongoing"
    result = txn(broker, "abort", "abort-1")
    assert (result.exit_code, f"producer {held[0]}:{held[1]} is fenced" in result.stdout) == (0, True)
    assert wire.end_txn("abort-1", held, commit=True).error_code == ErrorCode.PRODUCER_FENCED
    found = told(broker, "describe", "abort-1")
    assert found["state"] == "Empty"
    changed, refused = found["history"]["lines"]
    assert (changed["reason"], changed["code"]) == ("tool", None)
    assert (refused["reason"], refused["code"], refused["client_id"]) == ("tool", "PRODUCER_FENCED", "billing")
    assert (found["history"]["owner_client_id"], found["history"]["writer_client_id"]) == ("fencepost-txn", "")
    text = txn(broker, "describe", "abort-1").stdout
    assert "refused PRODUCER_FENCED, tool" in text
    assert "client 'fencepost-txn' at 127.0.0.1 took the id over" in text
    again = txn(broker, "abort", "abort-1")
    assert (again.exit_code, "has no open transaction" in again.stdout) == (0, True)
    assert "nothing holds readers back" in txn(broker, "why", "aborted:0").stdout


def test_hanging_is_found_and_repaired_and_the_living_is_not(broker: BrokerProcess, wire: Wire) -> None:
    """Row T20: an old record of a living transaction is no proof; the marker is written only for what hangs."""
    wire.create_topic("hung")
    lost, alive = wire.init_producer_id("lost"), wire.init_producer_id("alive")
    wire.add_partitions("alive", alive, "hung", 0)
    write(wire, "hung", "lost", lost, NOW_MS - HOUR_MS)
    write(wire, "hung", "alive", alive, NOW_MS - HOUR_MS)
    assert "It hangs: nothing will end it" in txn(broker, "why", "hung:0").stdout
    [found] = told(broker, "hanging", "--topic", "hung")
    assert (found["producer"]["producer_id"], found["first_offset"], found["aborted"]) == (lost[0], 0, False)
    shown = txn(broker, "hanging", "--topic", "hung", "--partition", "0")
    assert "fencepost txn hanging --repair --topic hung --partition 0" in shown.stdout
    repaired = txn(broker, "hanging", "--repair")
    assert (repaired.exit_code, "aborted" in repaired.stdout) == (0, True)
    assert "No transaction hangs." in txn(broker, "hanging").stdout
    [still] = told(broker, "producers", "hung:0", "--open")
    assert still["producer_id"] == alive[0]
    assert wire.end_txn("alive", alive, commit=True).error_code == ErrorCode.NONE
    assert "MARKERS_WRITTEN principal=User:ANONYMOUS" in broker.log()


def test_watch_shows_the_open_ones(broker: BrokerProcess, wire: Wire) -> None:
    begin(wire, "watched", "watch-1")
    text = txn(broker, "watch", "--count", "2", "--interval", "0.1").stdout
    [line] = [line for line in text.splitlines() if "watch-1" in line][:1]
    assert "Ongoing" in line
    assert "watched:0" in line
    looks = [
        json.loads(line)
        for line in txn(broker, "watch", "--count", "2", "--interval", "0.1", "--json").stdout.splitlines()
    ]
    assert [look["open"][-1]["transactional_id"] for look in looks] == ["watch-1"] * 2


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        (("describe", "nobody"), 1, "`fencepost txn list` shows the transactional ids"),
        (("why", "nowhere:0"), 1, "the topic or partition does not exist"),
        (("why", "orders"), 2, "write it as TOPIC:PARTITION"),
        (("list", "--pattern", "("), 1, "the pattern must match the whole id"),
        (("hanging", "--partition", "0"), 2, "--partition needs --topic"),
        (("list", "--state", "Sleeping"), 2, "preparecommit"),
        (("producers", "nowhere:0"), 1, "the topic or partition does not exist"),
    ],
)
def test_errors_say_what_to_do_next(broker: BrokerProcess, words: tuple[str, ...], code: int, hint: str) -> None:
    result = txn(broker, *words, "--timeout", "60")
    assert (result.exit_code, hint in result.output) == (code, True), result.output


def test_no_broker() -> None:
    result = CliRunner().invoke(cli, ["txn", "list", "--bootstrap", "127.0.0.1:1", "--timeout", "3"])
    assert result.exit_code == 1
    assert "is a broker running at 127.0.0.1:1?" in result.output


@pytest.mark.parametrize("command", ["", "list", "describe", "producers", "why", "abort", "hanging", "watch"])
def test_every_command_explains_itself(command: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["txn", *([command] if command else []), "--help"])
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) > 8
