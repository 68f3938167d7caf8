"""A connection receives more requests while their appends wait for a round that puts an object."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.cluster_processes import ClusterProcesses
from tests.kit.postgres_server import PostgresServer
from tests.kit.wire import PRODUCE, Wire, batch_of, produce_request

TOPIC = "orders"
VERSION = 9
LINGER_MS = 2000
BATCH_BYTES = 100_000
"""Too large for a row in the database, so each round waits `LINGER_MS` and puts an object."""


@pytest.fixture
def cluster(server: PostgresServer, tmp_path: Path) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path, server) as processes:
        yield processes


def send(wire: Wire, count: int) -> None:
    for number in range(count):
        wire.send(PRODUCE, VERSION, produce_request(TOPIC, batch_of(bytes([number]) * BATCH_BYTES)))


def offsets(wire: Wire, count: int) -> list[int]:
    """The base offsets of the next acknowledgements."""
    found = []
    for _ in range(count):
        _, response = wire.receive(PRODUCE, VERSION)
        (part,) = response.responses[0].partition_responses
        assert part.error_code == 0, part
        found.append(part.base_offset)
    return found


def test_requests_that_a_client_pipelines_share_a_round(cluster: ClusterProcesses) -> None:
    broker = cluster.start(1, **{"cluster.linger.ms": str(LINGER_MS)})
    with Wire(broker.connect()) as wire:
        wire.create_topic(TOPIC)
        objects = len(cluster.files())
        send(wire, 8)
        assert offsets(wire, 8) == list(range(8)), "responses come in the order of the requests"
        assert len(cluster.files()) == objects + 1


def test_a_full_round_does_not_wait_for_the_linger(cluster: ClusterProcesses) -> None:
    """`cluster.linger.max.bytes` counts what one connection sends, too."""
    broker = cluster.start(1, **{"cluster.linger.ms": str(600_000), "cluster.linger.max.bytes": str(5 * BATCH_BYTES)})
    with Wire(broker.connect()) as wire:
        wire.create_topic(TOPIC)
        send(wire, 5)
        assert offsets(wire, 5) == list(range(5))


def test_a_client_that_sends_no_more_gets_its_acknowledgements(cluster: ClusterProcesses) -> None:
    broker = cluster.start(1, **{"cluster.linger.ms": str(LINGER_MS)})
    with Wire(broker.connect()) as wire:
        wire.create_topic(TOPIC)
        send(wire, 2)
        wire.socket.shutdown(socket.SHUT_WR)
        assert offsets(wire, 2) == [0, 1]
        wire.expect_end()
