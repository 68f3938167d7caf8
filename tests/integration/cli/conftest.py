"""One broker for each file of commands."""

from collections.abc import Iterator

import pytest

from tests.kit.broker_process import BrokerProcess
from tests.kit.wire import Wire


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker in memory."""
    with BrokerProcess(tmp_path_factory.mktemp("commands"), settings={"storage": "memory"}) as running:
        yield running


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    """A connection to it, for what no command does."""
    with Wire(broker.connect()) as connected:
        yield connected
