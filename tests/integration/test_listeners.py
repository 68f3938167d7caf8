"""Several listeners of one broker: each client receives the address of the listener that it connected to."""

import socket
from collections.abc import Iterator

import pytest

from fencepost.broker.config.broker_config import load_config
from fencepost.broker.listeners import end_points
from fencepost.broker.network.context import Endpoint
from fencepost.protocol.messages.api03_metadata import MetadataRequest
from fencepost.protocol.messages.api10_find_coordinator import FindCoordinatorRequest
from fencepost.protocol.messages.api60_describe_cluster import DescribeClusterRequest
from fencepost.protocol.metadata_record_types import BrokerEndpoint
from tests.kit.broker_process import BrokerFailed, BrokerProcess
from tests.kit.wire import Wire

METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER = 3, 10, 60
NAMES = "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Listeners: PLAINTEXT and INSIDE without an advertised address, OUTSIDE with one."""
    process = BrokerProcess(
        tmp_path_factory.mktemp("listeners"),
        settings={"listener.security.protocol.map": NAMES},
        arguments=[
            *("--listen", "INSIDE://127.0.0.1:0"),
            *("--listen", "OUTSIDE://127.0.0.1:0"),
            *("--advertise", "OUTSIDE://broker.example:9443"),
        ],
    )
    with process:
        yield process


def addresses(host: str, port: int) -> set[tuple[str, int]]:
    """The addresses that the responses to a client at this listener name."""
    with Wire(socket.create_connection((host, port), 10)) as wire:
        metadata = wire.call(METADATA, 9, MetadataRequest(topics=[])).brokers[0]
        coordinator = wire.call(FIND_COORDINATOR, 2, FindCoordinatorRequest(key="g", key_type=0))
        described = wire.call(DESCRIBE_CLUSTER, 0, DescribeClusterRequest()).brokers[0]
    return {(found.host, found.port) for found in (metadata, coordinator, described)}


def test_a_client_receives_the_address_of_its_listener(broker: BrokerProcess) -> None:
    """As in Kafka (KIP-103), for Metadata, FindCoordinator and DescribeCluster."""
    listeners = broker.listeners
    assert list(listeners) == ["PLAINTEXT", "INSIDE", "OUTSIDE"]
    assert addresses(*listeners["PLAINTEXT"]) == {("127.0.0.1", broker.port)}
    assert addresses(*listeners["INSIDE"]) == {listeners["INSIDE"]}
    assert addresses(*listeners["OUTSIDE"]) == {("broker.example", 9443)}


def test_the_broker_registers_the_address_of_every_listener() -> None:
    listeners = "listeners=PLAINTEXT://127.0.0.1:0,INSIDE://:0,OUTSIDE://:9092"
    given = [f"listener.security.protocol.map={NAMES}", listeners, "advertised.listeners=OUTSIDE://out.example:1"]
    bound = {
        "PLAINTEXT": Endpoint("127.0.0.1", 4001),
        "INSIDE": Endpoint("0.0.0.0", 4002),
        "OUTSIDE": Endpoint("0.0.0.0", 9092),
    }
    assert end_points(load_config(assignments=given), bound) == (
        BrokerEndpoint("PLAINTEXT", "127.0.0.1", 4001, 0),
        BrokerEndpoint("INSIDE", socket.gethostname(), 4002, 0),
        BrokerEndpoint("OUTSIDE", "out.example", 1, 0),
    )


def test_a_listener_without_a_protocol_ends_the_start(broker: BrokerProcess) -> None:
    broken = BrokerProcess(broker.work_dir / "broken", arguments=["--listen", "INSIDE://127.0.0.1:0"])
    with pytest.raises(BrokerFailed, match=r"INSIDE is not in listener\.security\.protocol\.map"):
        broken.start()
