"""One broker for all tests with other people's clients; each test has topics, groups and transactional ids of its own.

`FENCEPOST_INTEROP_BOOTSTRAP=host:port` points the same tests at another broker. They pass against Apache Kafka 4.3.1:
what they ask is what Kafka does, not what we happen to do.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.java.jars import Unavailable
from tests.interop.java.real_kafka import RealKafka
from tests.kit.broker_process import BrokerProcess
from tests.kit.java import skip_or_fail
from tests.kit.settings import OLD_RECORDS, QUICK_GROUPS

SETTINGS = {"num.partitions": "3", **OLD_RECORDS, **QUICK_GROUPS}


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


StartKafka = Callable[..., RealKafka]


def started(kafka: RealKafka) -> RealKafka:
    """Start Kafka; without Java or a way to fetch the jars, skip, or fail where FENCEPOST_REQUIRE_JAVA is set."""
    try:
        return kafka.start()
    except Unavailable as missing:
        skip_or_fail(missing)


@pytest.fixture(scope="session")
def real_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    """One Apache Kafka for all tests, with its release's defaults (TV2): `real_kafka.address`. Leave it running."""
    kafka = RealKafka(tmp_path_factory.mktemp("kafka"))
    try:
        yield started(kafka)
    finally:
        kafka.stop()


@pytest.fixture(scope="session")
def real_kafka_tv1(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    """One Apache Kafka for all tests whose transactions are those before KIP-890 (transaction.version 1)."""
    with started(RealKafka(tmp_path_factory.mktemp("kafka-tv1"), features={"transaction.version": 1})) as kafka:
        yield kafka


@pytest.fixture
def start_kafka(tmp_path: Path) -> Iterator[StartKafka]:
    """Start an Apache Kafka of the test's own, to be killed or set up differently: `start_kafka(settings={...})`."""
    all_of_them: list[RealKafka] = []

    def start(**options: Any) -> RealKafka:
        kafka = RealKafka(tmp_path / f"kafka-{len(all_of_them)}", **options)
        all_of_them.append(kafka)
        return started(kafka)

    yield start
    for kafka in all_of_them:
        kafka.kill()


@pytest.fixture(params=["fencepost", "kafka"])
def each_bootstrap(request: pytest.FixtureRequest) -> str:
    """HOST:PORT of our broker, then of a real Kafka: what our client does must be right with both."""
    if request.param == "fencepost":
        return str(request.getfixturevalue("bootstrap"))
    return str(request.getfixturevalue("real_kafka").address)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses, for a topic, a group or a transactional id."""
    plain = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    return f"{plain[:80]}-{os.urandom(3).hex()}"
