"""The pytest plugin `-p fencepost.testing.kafka_fixtures`: fixtures with the names that other plugins gave to Kafka.

`kafka_broker` is that of pytest-kafka-broker, `kafka_server` that of pytest-kafka. Both are the test's own
`fencepost_broker`. They stand before the fixtures of those plugins, where these are installed.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.aio import AIOConsumer, AIOProducer

    from fencepost.testing.broker import Broker

Config = dict[str, Any]
"""Properties of confluent-kafka, which must be installed for the clients below."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Accept pytest-kafka-broker's `--kafka`, without which it skips tests. Here it changes nothing."""
    if find_spec("pytest_kafka_broker") is None:
        parser.addoption("--kafka", action="store_true", help="accepted, as by pytest-kafka-broker; has no effect")


def pytest_configure(config: pytest.Config) -> None:
    """Register the fixtures behind those of installed plugins: of fixtures with one name the last one counts."""
    config.pluginmanager.register(_Fixtures(), "fencepost-kafka-fixtures")


class KafkaBrokerContext(NamedTuple):
    """The address of a broker, and clients for it: the class of that name in pytest-kafka-broker 1.0."""

    bootstrap_server: str

    def config(self, config: Config | None = None) -> Config:
        return {**(config or {}), "bootstrap.servers": self.bootstrap_server, "security.protocol": "PLAINTEXT"}

    def admin(self, config: Config | None = None) -> "AdminClient":
        from confluent_kafka.admin import AdminClient

        return AdminClient(self.config(config))

    def producer(self, config: Config | None = None) -> "Producer":
        from confluent_kafka import Producer

        return Producer(self.config(config))

    def consumer(self, config: Config | None = None) -> "Consumer":
        from confluent_kafka import Consumer

        return Consumer(self.config(config))

    def aio_producer(self, config: Config | None = None) -> "AIOProducer":
        from confluent_kafka.aio import AIOProducer

        return AIOProducer(self.config(config))

    def aio_consumer(self, config: Config | None = None) -> "AIOConsumer":
        from confluent_kafka.aio import AIOConsumer

        return AIOConsumer(self.config(config))


class KafkaProcess:
    """A broker with the methods of subprocess.Popen that end a process. It has no `pid`: that is the test's own."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.returncode: int | None = None
        """As of Popen: None while it runs, then 0 after `terminate` and -9 after `kill`."""

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        """Returns at once: the methods below return when the broker has ended."""
        return self.returncode

    def terminate(self) -> None:
        self._broker.stop()
        self.returncode = 0

    def kill(self) -> None:
        self._broker.kill()
        self.returncode = -9


class _Fixtures:
    @pytest.fixture
    def kafka_broker(self, fencepost_broker: "Broker") -> KafkaBrokerContext:
        """A broker of this test's own, as pytest-kafka-broker gives it."""
        return KafkaBrokerContext(fencepost_broker.bootstrap)

    @pytest.fixture
    def kafka_server(self, fencepost_broker: "Broker") -> tuple[KafkaProcess, int]:
        """A broker of this test's own as pytest-kafka gives it: its process, and its port on localhost."""
        return KafkaProcess(fencepost_broker), fencepost_broker.port
