"""Kafka's TransactionsCommand (kafka-transactions.sh) against a running broker (rows T18, T19, T20)."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from fencepost.protocol.errors import ErrorCode
from tests.interop.java.kafka_jvm import KafkaJvm, ToolFailed
from tests.kit.broker_process import BrokerProcess
from tests.kit.cores_broker import Cores, wire_to
from tests.kit.leaders import Leaders
from tests.kit.wire import NOW_MS, Wire, batch_of

OLD_MS = NOW_MS - 3_600_000
UNVERIFIED = {"transaction.partition.verification.enable": "false"}


@pytest.fixture
def broker(kafka: KafkaJvm, tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that does not check old clients' writes, so that a transaction can hang; `t` has two partitions."""
    with BrokerProcess(tmp_path, settings=UNVERIFIED) as running, Wire(running.connect()) as wire:
        wire.create_topic("t", partitions=2)
        yield running


def rows(printed: str) -> list[dict[str, str]]:
    """The table that the command prints, by its heads."""
    head, *lines = [[cell.strip() for cell in line.split("\t")] for line in printed.splitlines() if line.strip()]
    return [dict(zip(head, line, strict=True)) for line in lines]


def begin(broker: BrokerProcess, name: str, timestamp_ms: int = NOW_MS, *, add: bool = True) -> tuple[int, int]:
    """Open a transaction on t-0; without `add` its coordinator never hears of it."""
    with at_coordinator(broker, name) as wire:
        held = wire.init_producer_id(name)
        if add:
            wire.add_partitions(name, held, "t", 0)
    header = {"transactional": True, "producer_id": held[0], "producer_epoch": held[1], "base_sequence": 0}
    with Leaders(broker.address) as leaders:
        leaders.produce("t", batch_of(b"a", timestamp_ms=timestamp_ms, **header), transactional_id=name)
    return held


def at_coordinator(broker: BrokerProcess, name: str) -> AbstractContextManager[Wire]:
    """A connection to the broker that coordinates a transactional id."""
    return wire_to(broker, Cores(broker).coordinator(name))


def test_it_lists_and_describes(kafka: KafkaJvm, broker: BrokerProcess) -> None:
    """list (with KIP-994's and KIP-1152's filters) and describe."""
    where = f"{broker.host}:{broker.port}"
    held = begin(broker, "orders-1")
    with at_coordinator(broker, "billing-1") as wire:
        wire.init_producer_id("billing-1")
    listed = {row["TransactionalId"]: row for row in rows(kafka.transactions(where, "list"))}
    assert {name: row["TransactionState"] for name, row in listed.items()} == {
        "orders-1": "Ongoing",
        "billing-1": "Empty",
    }
    assert listed["orders-1"]["ProducerId"] == str(held[0])
    long_ago = kafka.transactions(where, "list", "--duration-filter", "3600000")
    assert rows(long_ago) == []
    by_name = rows(kafka.transactions(where, "list", "--transactional-id-pattern", "bill.*"))
    assert [row["TransactionalId"] for row in by_name] == ["billing-1"]
    [described] = rows(kafka.transactions(where, "describe", "--transactional-id", "orders-1"))
    assert described["ProducerEpoch"] == str(held[1])
    assert (described["TransactionState"], described["TopicPartitions"]) == ("Ongoing", "t-0")
    with pytest.raises(ToolFailed):
        kafka.transactions(where, "describe", "--transactional-id", "nobody")
    assert "orders-1" in kafka.transactions(where, "list"), "a failure does not end the JVM"


def test_it_describes_producers(kafka: KafkaJvm, broker: BrokerProcess) -> None:
    held = begin(broker, "orders-1")
    where = f"{broker.host}:{broker.port}"
    [told] = rows(kafka.transactions(where, "describe-producers", "--topic", "t", "--partition", "0"))
    assert (told["ProducerId"], told["ProducerEpoch"]) == (str(held[0]), str(held[1]))
    assert told["CurrentTransactionStartOffset"] == "0"


def test_it_finds_what_hangs_and_aborts_it(kafka: KafkaJvm, broker: BrokerProcess) -> None:
    """find-hanging names the one without a coordinator, not the old one that lives; abort writes the marker."""
    where = f"{broker.host}:{broker.port}"
    lost = begin(broker, "lost", OLD_MS, add=False)
    begin(broker, "alive", OLD_MS)
    find = ("find-hanging", "--broker-id", str(1 + Cores(broker).leaders("t")[0]))
    found = rows(kafka.transactions(where, *find))
    assert [(row["Topic"], row["Partition"], row["ProducerId"]) for row in found] == [("t", "0", str(lost[0]))]
    kafka.transactions(where, "abort", "--topic", "t", "--partition", "0", "--start-offset", "0")
    assert rows(kafka.transactions(where, *find)) == []
    open_ones = [
        row["ProducerId"]
        for row in rows(kafka.transactions(where, "describe-producers", "--topic", "t", "--partition", "0"))
        if row["CurrentTransactionStartOffset"] != "None"
    ]
    assert str(lost[0]) not in open_ones
    assert len(open_ones) == 1
    assert "MARKERS_WRITTEN principal=User:ANONYMOUS" in broker.log()


def test_it_fences_whoever_holds_an_id(kafka: KafkaJvm, broker: BrokerProcess) -> None:
    """forceTerminateTransaction takes the id by InitProducerId, which the broker knows for a tool's doing."""
    where = f"{broker.host}:{broker.port}"
    held = begin(broker, "orders-1")
    kafka.transactions(where, "forceTerminateTransaction", "--transactionalId", "orders-1")
    [described] = rows(kafka.transactions(where, "describe", "--transactional-id", "orders-1"))
    assert described["TransactionState"] != "Ongoing"
    with at_coordinator(broker, "orders-1") as wire:
        assert wire.end_txn("orders-1", held, commit=True).error_code == ErrorCode.PRODUCER_FENCED
    assert "reason=tool" in broker.log()
