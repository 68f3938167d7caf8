"""A broker starts, says so in one line, and serves the shortest way through all of it: create, produce, fetch."""

from pathlib import Path

import pytest

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api03_metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.api18_api_versions import ApiVersionsRequest
from tests.conftest import StartBroker
from tests.kit.broker_process import BrokerProcess
from tests.kit.stable_apis import STABLE_APIS
from tests.kit.wire import Wire, batch_of, records_in, values_in


def test_the_ready_line_says_where_and_how(start_broker: StartBroker) -> None:
    broker = start_broker(files=True, arguments=["--durability", "os", "--metrics", "127.0.0.1:0"])
    assert broker.port > 0
    assert broker.facts["data"] == str(broker.data_dir)
    assert broker.facts["durability"] == "os"
    assert broker.facts["pid"] == str(broker.pid)
    assert broker.facts["metrics"].startswith("127.0.0.1:")
    assert broker.facts["started_in"].endswith("s")


def test_a_broker_in_memory_promises_no_durability(broker: BrokerProcess) -> None:
    assert (broker.facts["data"], broker.facts["durability"]) == ("memory", "none")


def test_a_server_properties_of_kafkas_is_served_with_one_warning_of_its_controller(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\n"
        "advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n"
    )
    broker = start_broker(arguments=["--config", str(file)])
    with Wire(broker.connect()) as wire:
        assert wire.call(18, 0, ApiVersionsRequest()).error_code == ErrorCode.NONE
    assert broker.log().count("CONTROLLER://") == 1
    assert "controller listener is not served" in broker.log()


def test_api_versions_lists_every_api_that_has_a_handler(broker: BrokerProcess) -> None:
    with Wire(broker.connect()) as wire:
        request = ApiVersionsRequest(client_software_name="wire", client_software_version="1.0")
        response = wire.call(18, 4, request)
    assert response.error_code == ErrorCode.NONE
    assert {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys} == {
        api.key: api.advertised
        for api in STABLE_APIS.values()
        if api.key != ApiKey.ENVELOPE  # which brokers send
    }
    levels = {feature.name: feature.max_version_level for feature in response.finalized_features}
    assert levels["transaction.version"] == 2
    assert response.finalized_features_epoch >= 0


@pytest.mark.parametrize(
    ("version", "name", "software_version", "is_old"),
    [
        (0, "", "", True),
        (2, "", "", True),
        (3, "librdkafka", "1.4.2", True),
        (3, "confluent-kafka-python", "1.7.0-librdkafka-1.7.0", True),
        (3, "librdkafka", "1.8.0", False),
        (3, "confluent-kafka-python", "2.16.1-librdkafka-2.16.1", False),
        (4, "apache-kafka-java", "4.3.1", False),
    ],
)
def test_only_old_clients_are_told_of_versions_that_kafka_4_dropped(
    broker_of_module: BrokerProcess, version: int, name: str, software_version: str, is_old: bool
) -> None:
    """kafka-rules D.1: librdkafka up to 1.7 consumes in no group unless ListOffsets 0 and OffsetCommit 0 show."""
    with Wire(broker_of_module.connect()) as wire:
        request = ApiVersionsRequest(client_software_name=name, client_software_version=software_version)
        response = wire.call(18, version, request)
    lowest = {entry.api_key: entry.min_version for entry in response.api_keys}
    assert (lowest[0], lowest[2], lowest[8]) == ((0, 0, 0) if is_old else (0, 1, 2))


@pytest.mark.parametrize("files", [False, True])
def test_what_was_produced_is_fetched(start_broker: StartBroker, files: bool) -> None:
    broker = start_broker(files=files)
    with Wire(broker.connect()) as wire:
        wire.create_topic("t", partitions=2)
        for partition in (0, 1):
            answer = wire.produce("t", batch_of(b"one", b"two"), partition=partition)
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
            answer = wire.produce("t", batch_of(b"three"), partition=partition)
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 2)
        fetched = wire.fetch("t", partition=1)
        assert values_in(fetched) == [b"one", b"two", b"three"]
        assert (fetched.high_watermark, fetched.last_stable_offset, fetched.log_start_offset) == (3, 3, 0)
        assert [record.offset for record in records_in(wire.fetch("t", 2, partition=1))] == [2]


def test_metadata_tells_clients_to_come_back_to_where_they_are(broker: BrokerProcess) -> None:
    with Wire(broker.connect()) as wire:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="auto")], allow_auto_topic_creation=True)
        response = wire.call(3, 8, request)
    assert [(entry.host, entry.port) for entry in response.brokers] == [(broker.host, broker.port)]
    assert response.topics[0].error_code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE)
