"""One broker and one console for each file."""

from collections.abc import Iterator

import pytest

from tests.kit.broker_process import BrokerProcess
from tests.kit.console import ConsoleProcess, Visitor
from tests.kit.wire import Wire


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that does not check old clients' writes, so that a transaction can hang."""
    place = tmp_path_factory.mktemp("broker")
    settings = {"transaction.partition.verification.enable": "false"}
    with BrokerProcess(place, data_dir=place / "data", settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def console(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """A console of that broker. At its end it has logged no error, and stops when it is asked to."""
    log = tmp_path_factory.mktemp("console") / "console.log"
    data = [] if broker.data_dir is None or not broker.data_dir.is_dir() else ["--data", str(broker.data_dir)]
    with ConsoleProcess(broker.address, log, *data) as running:
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.said(), running.said()


@pytest.fixture
def visitor(console: ConsoleProcess) -> Visitor:
    """A new browser."""
    return Visitor(console.url)


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    """A producer's connection."""
    with Wire(broker.connect(), client_id="billing") as connected:
        yield connected
