"""Connections and topics that many files of this folder begin with."""

from collections.abc import Iterator

import pytest

from tests.kit.broker_process import BrokerProcess
from tests.kit.connections import Connections
from tests.kit.wire import Wire


@pytest.fixture
def wire(broker_of_module: BrokerProcess) -> Iterator[Wire]:
    """A connection to a broker in memory."""
    with Wire(broker_of_module.connect()) as wire:
        yield wire


@pytest.fixture
def topic(wire: Wire, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions for this test alone."""
    name = str(request.node.name).replace("[", "-").rstrip("]")
    wire.create_topic(name, partitions=2)
    return name


@pytest.fixture
def connections(file_broker: BrokerProcess) -> Iterator[Connections]:
    """Connections to a broker on files."""
    made = Connections(file_broker)
    yield made
    made.close()
