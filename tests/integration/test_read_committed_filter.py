"""`read.committed.filter`: where the broker leaves aborted records out, and who decides it (row I4)."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.protocol.admin_enums import ConfigResourceType
from fencepost.protocol.batch_header import iter_headers
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from fencepost.protocol.messages.api44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.kit.broker_process import BrokerProcess
from tests.kit.wire import Wire, batch_of, committed_values

READ_COMMITTED = 1
SETTING = "read.committed.filter"
NAMES = "PLAINTEXT:PLAINTEXT,LEAN:PLAINTEXT,FULL:PLAINTEXT"
ABORTED = 40
EVERYTHING = list(range(ABORTED + 2))
"""The aborted batches, their marker, and one record that is not in a transaction."""
WITHOUT = EVERYTHING[ABORTED:]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """PLAINTEXT leaves it to the topic, LEAN and FULL do not."""
    process = BrokerProcess(
        tmp_path_factory.mktemp("filter"),
        settings={
            "listener.security.protocol.map": NAMES,
            f"listener.name.lean.{SETTING}": "broker",
            f"listener.name.full.{SETTING}": "client",
            f"{SETTING}.client.ids": "phone,watch",
        },
        arguments=["--listen", "LEAN://127.0.0.1:0", "--listen", "FULL://127.0.0.1:0"],
    )
    with process:
        yield process


@pytest.fixture
def topic(broker: BrokerProcess, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name)
    with Wire(broker.connect()) as wire:
        wire.create_topic(name)
        abort_many(wire, name)
        assert wire.produce(name, batch_of(b"seen")).error_code == 0
    return name


def abort_many(wire: Wire, topic: str) -> None:
    """One transaction of many batches."""
    producer = wire.init_producer_id(topic)
    wire.add_partitions(topic, producer, topic, 0)
    for sequence in range(ABORTED):
        header = {"producer_id": producer[0], "producer_epoch": producer[1], "base_sequence": sequence}
        batch = batch_of(b"aborted", transactional=True, **header)
        assert wire.produce(topic, batch, version=8, transactional_id=topic).error_code == 0
    assert wire.end_txn(topic, producer, commit=False).error_code == 0


def fetched(broker: BrokerProcess, topic: str, listener: str | None = None, client: str = "wire") -> list[int]:
    """The base offsets of the batches that a read_committed fetch returns."""
    connected = broker.connect() if listener is None else socket.create_connection(broker.listeners[listener], 10)
    with Wire(connected, client) as wire:
        answer = wire.fetch(topic, isolation=READ_COMMITTED)
        assert committed_values(answer) == [b"seen"]
        assert [entry.first_offset for entry in answer.aborted_transactions] == [0]
        everyone = wire.fetch(topic)
    assert len(list(iter_headers(bytes(everyone.records)))) == len(EVERYTHING), "read_uncommitted gets all"
    return [header.base_offset for _, header in iter_headers(bytes(answer.records))]


def alter(broker: BrokerProcess, topic: str, value: str) -> ErrorCode:
    config = AlterableConfig(name=SETTING, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=ConfigResourceType.TOPIC, resource_name=topic, configs=[config])
    with Wire(broker.connect()) as wire:
        answer = wire.call(44, 1, IncrementalAlterConfigsRequest(resources=[resource]))
    return ErrorCode(answer.responses[0].error_code)


def described(broker: BrokerProcess, topic: str) -> str | None:
    resource = DescribeConfigsResource(
        resource_type=ConfigResourceType.TOPIC, resource_name=topic, configuration_keys=[SETTING]
    )
    with Wire(broker.connect()) as wire:
        answer = wire.call(32, 4, DescribeConfigsRequest(resources=[resource]))
    (config,) = answer.results[0].configs
    return None if config.value is None else str(config.value)


def test_by_default_the_client_does_it_as_in_kafka(broker: BrokerProcess, topic: str) -> None:
    assert fetched(broker, topic) == EVERYTHING
    assert described(broker, topic) == "client"


def test_a_topic_asks_for_it_at_run_time(broker: BrokerProcess, topic: str) -> None:
    assert alter(broker, topic, "broker") is ErrorCode.NONE
    assert fetched(broker, topic) == WITHOUT
    assert described(broker, topic) == "broker"
    assert alter(broker, topic, "client") is ErrorCode.NONE
    assert fetched(broker, topic) == EVERYTHING


def test_another_value_is_refused(broker: BrokerProcess, topic: str) -> None:
    assert alter(broker, topic, "both") is ErrorCode.INVALID_CONFIG
    assert fetched(broker, topic) == EVERYTHING


def test_a_listener_overrules_the_topic(broker: BrokerProcess, topic: str) -> None:
    assert fetched(broker, topic, "LEAN") == WITHOUT
    assert alter(broker, topic, "broker") is ErrorCode.NONE
    assert fetched(broker, topic, "FULL") == EVERYTHING


def test_a_named_client_overrules_both(broker: BrokerProcess, topic: str) -> None:
    assert fetched(broker, topic, client="phone") == WITHOUT
    assert fetched(broker, topic, "FULL", client="watch") == WITHOUT
    assert fetched(broker, topic, client="tablet") == EVERYTHING


def test_the_brokers_own_setting_is_the_default_of_topics(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, settings={SETTING: "broker"}) as process, Wire(process.connect()) as wire:
        wire.create_topic("lean")
        wire.create_topic("full", **{SETTING: "client"})
        for name, expected in (("lean", WITHOUT), ("full", EVERYTHING)):
            abort_many(wire, name)
            wire.produce(name, batch_of(b"seen"))
            assert fetched(process, name) == expected
