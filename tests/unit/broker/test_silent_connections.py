"""Connections that send nothing, or do not log in, hold their place for half a minute."""

import socket

import trio
from trio.testing import MockClock

from fencepost.broker.config.broker_config import load_config
from fencepost.broker.network.server import FIRST_REQUEST_SECONDS, SWEEP_SECONDS
from fencepost.broker.node import Node
from fencepost.protocol.messages.api03_metadata import MetadataRequest
from fencepost.protocol.messages.api18_api_versions import ApiVersionsRequest
from tests.kit.sasl_broker import LISTENERS, log_in
from tests.kit.wire import Wire

METADATA, API_VERSIONS = 3, 18
VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")
in_thread = trio.to_thread.run_sync


def ends(wire: Wire) -> bool:
    """Whether the broker has closed the connection, or does so within a moment."""
    wire.socket.settimeout(0.2)
    try:
        return not wire.socket.recv(1)
    except TimeoutError:
        return False


async def test_no_login_within_half_a_minute_closes_a_connection(nursery: trio.Nursery, mock_clock: MockClock) -> None:
    """A request that needs no login does not count."""
    listen = "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0"
    assignments = [f"{name}={value}" for name, value in LISTENERS.items() if "renewed" not in name]
    node = Node(load_config(assignments=assignments, flags={"storage": "memory", "listeners": listen}))
    await nursery.start(node.run)
    plain, sasl = (node.endpoints[name].port for name in ("PLAINTEXT", "SASL"))

    def connect(port: int) -> Wire:
        return Wire(socket.create_connection(("127.0.0.1", port), 10))

    silent, waits, logged_in, asked = await in_thread(lambda: [*map(connect, (plain, sasl, sasl, plain))])
    with silent, waits, logged_in, asked:
        await in_thread(waits.call, API_VERSIONS, 3, VERSIONS)
        await in_thread(asked.call, API_VERSIONS, 3, VERSIONS)
        await in_thread(log_in, logged_in)
        mock_clock.jump(FIRST_REQUEST_SECONDS - SWEEP_SECONDS)
        assert not await in_thread(ends, silent)
        assert not await in_thread(ends, waits)
        mock_clock.jump(2 * SWEEP_SECONDS)
        assert await in_thread(ends, silent)
        assert await in_thread(ends, waits)
        for wire in (logged_in, asked):
            wire.socket.settimeout(10)
            assert (await in_thread(wire.call, METADATA, 9, MetadataRequest(topics=None))).cluster_id
    assert node.metrics.connections_expired == 2
