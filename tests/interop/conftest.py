"""One broker for all tests with other people's clients; each test has topics, groups and transactional ids of its own.

`FENCEPOST_INTEROP_BOOTSTRAP=host:port` points the same tests at another broker. They pass against Apache Kafka 4.3.1:
what they ask is what Kafka does, not what we happen to do.
"""

import os
from collections.abc import Iterator

import pytest

from tests.kit.broker_process import BrokerProcess

QUICK_GROUPS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
}
"""Members are missed soon: Kafka's own default makes that 45 s where the broker decides (KIP-848)."""
SETTINGS = {"num.partitions": "3", **QUICK_GROUPS}


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a broker on files."""
    given = os.environ.get("FENCEPOST_INTEROP_BOOTSTRAP")
    if given:
        yield given
        return
    work_dir = tmp_path_factory.mktemp("interop-broker")
    with BrokerProcess(work_dir, data_dir=work_dir / "data", settings=SETTINGS) as broker:
        yield broker.address


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses, for a topic, a group or a transactional id."""
    plain = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    return f"{plain[:80]}-{os.urandom(3).hex()}"
