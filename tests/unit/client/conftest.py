"""Scripted brokers for the tests of this folder."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from fencepost.client.network import wire
from tests.kit import scripted_broker
from tests.kit.fetch_broker import FetchBroker, ScriptedCluster
from tests.kit.paired_sockets import PairedNetwork
from tests.kit.scripted_broker import ScriptedBroker
from tests.unit.client.reading_kit import Start


@pytest.fixture(autouse=True)
def paired_network(monkeypatch: pytest.MonkeyPatch) -> PairedNetwork:
    """Scripted brokers are reached without a network, so that pytest-trio's `autojump_clock` need not wait for one."""
    network = PairedNetwork(wire._first_connected)
    monkeypatch.setattr(scripted_broker, "listen", network.listen)
    monkeypatch.setattr(wire, "_first_connected", network.connect)
    return network


@pytest.fixture
def patient_clock() -> trio.testing.MockClock:
    """For real sockets and threads: time jumps only once nothing has arrived for a moment of real time."""
    return trio.testing.MockClock(autojump_threshold=0.01)


@pytest.fixture
async def script(nursery: trio.Nursery) -> Callable[..., Any]:
    """Start a scripted broker: `broker = await script(partitions=2)`."""

    async def start(**options: Any) -> ScriptedBroker:
        broker = ScriptedBroker(**options)
        await nursery.start(broker.serve)
        return broker

    return start


@pytest.fixture
async def start(nursery: trio.Nursery) -> Start:
    """Start a broker: `broker = await start(cluster, node=2)`."""

    async def begin(cluster: ScriptedCluster, node: int = 1, **options: Any) -> FetchBroker:
        broker = FetchBroker(cluster, node, **options)
        await nursery.start(broker.serve)
        return broker

    return begin


@pytest.fixture
def cluster() -> ScriptedCluster:
    return ScriptedCluster()
