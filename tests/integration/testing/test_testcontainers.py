"""The plugin `-p fencepost.testcontainers`, in runs of pytest of its own: with testcontainers and without."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

SUITE = """
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network
from testcontainers.core.waiting_utils import wait_for_logs
from testcontainers.kafka import KafkaContainer, RedpandaContainer

from fencepost import sync

class Mine(DockerContainer):
    def __init__(self):
        super().__init__("apache/kafka:4.1.0")
        self.with_exposed_ports(9092)

def use(bootstrap):
    with sync.Client(bootstrap) as client, client.producer() as producer:
        producer.send("orders", b"one")
        producer.flush()

def test_kafka():
    with Network() as network, KafkaContainer().with_kraft().with_network(network) as kafka:
        assert kafka.kraft_enabled
        use(kafka.get_bootstrap_server())
        kafka.fencepost_broker.assert_exactly_once("orders", ["one"])
        wait_for_logs(kafka, "Kafka Server started")

def test_redpanda():
    with RedpandaContainer() as redpanda:
        use(redpanda.get_bootstrap_server())

def test_a_class_of_the_suites_own():
    with Mine() as mine:
        use(f"{mine.get_container_host_ip()}:{mine.get_exposed_port(9092)}")
        mine.fencepost_broker.assert_exactly_once("orders", ["one"])
"""
OTHERS = """

def test_other_containers_are_as_ever():
    try:
        DockerContainer("postgres:17").start()
    except OSError as error:
        assert str(error) == "no Docker here"
    else:
        raise AssertionError("it started")
"""
STAND_IN = {
    "docker/__init__.py": "",
    "docker/errors.py": "class DockerException(OSError): pass\n",
    "testcontainers/__init__.py": "",
    "testcontainers/core/__init__.py": "",
    "testcontainers/core/docker_client.py": """
from docker.errors import DockerException

class DockerClient:
    def __init__(self, **kwargs):
        raise DockerException("no Docker here")
""",
    "testcontainers/core/container.py": """
from testcontainers.core.docker_client import DockerClient

class DockerContainer:
    def __init__(self, image, docker_client_kw=None, **kwargs):
        self.image, self.env, self.ports, self._container = image, {}, {}, None
        self._docker = DockerClient(**(docker_client_kw or {}))

    def with_env(self, key, value):
        self.env[key] = value
        return self

    def with_exposed_ports(self, *ports):
        self.ports.update(dict.fromkeys(map(str, ports)))
        return self

    def with_network(self, network):
        return self

    def start(self):
        self._docker.create(self.image)

    def stop(self):
        self._docker.remove()

    def get_exposed_port(self, port):
        return self._docker.port(port)

    def get_container_host_ip(self):
        return self._docker.host()

    def get_logs(self):
        return self._docker.logs()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()
""",
    "testcontainers/core/network.py": """
from testcontainers.core.docker_client import DockerClient

class Network:
    def __init__(self):
        self._docker = DockerClient()

    def create(self):
        self._network = self._docker.client_networks_create()
        return self

    def remove(self):
        self._network.remove()

    def __enter__(self):
        return self.create()

    def __exit__(self, *_):
        self.remove()
""",
    "testcontainers/core/waiting_utils.py": """
def wait_for_logs(container, predicate):
    assert any(predicate in stream.decode() for stream in container.get_logs())
""",
    "testcontainers/kafka.py": """
from testcontainers.core.container import DockerContainer

class KafkaContainer(DockerContainer):
    def __init__(self, image="confluentinc/cp-kafka:7.6.0", port=9093):
        super().__init__(image)
        self.port = port
        self.with_exposed_ports(port).with_env("KAFKA_LISTENERS", f"PLAINTEXT://:{port},BROKER://:9092")

    def with_kraft(self):
        self.kraft_enabled = True
        return self

    def configure(self):
        self.with_env("KAFKA_BROKER_ID", "1")

    def start(self, timeout=30):
        raise AssertionError("that start is not used")

    def get_bootstrap_server(self):
        return f"{self.get_container_host_ip()}:{self.get_exposed_port(self.port)}"

class RedpandaContainer(DockerContainer):
    def __init__(self, image="redpanda"):
        super().__init__(image)
        self.with_exposed_ports(9092, 8081)

    def get_bootstrap_server(self):
        return f"{self.get_container_host_ip()}:{self.get_exposed_port(9092)}"
""",
}
"""The shape of testcontainers 4.13: its classes ask Docker in each method, and in their constructors."""


def play(directory: Path, suite: str, *options: str) -> subprocess.CompletedProcess[str]:
    (directory / "test_suite.py").write_text(suite)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", *options, "test_suite.py"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(directory), str(ROOT)]), "PYTEST_ADDOPTS": ""},
    )


def test_a_suite_without_testcontainers_and_docker(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from testcontainers.community.kafka import KafkaContainer\n")
    done = play(tmp_path, SUITE, "-p", "fencepost.testcontainers")
    assert "3 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("place", ["option", "conftest"])
def test_a_suite_with_testcontainers_and_without_docker(tmp_path: Path, place: str) -> None:
    """The conftest.py imports the original classes before it names the plugin: they are changed in place."""
    for name, text in STAND_IN.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    conftest = "from testcontainers.kafka import KafkaContainer\npytest_plugins = ['fencepost.testcontainers']\n"
    if place == "conftest":
        (tmp_path / "conftest.py").write_text(conftest)
    done = play(tmp_path, SUITE + OTHERS, *(["-p", "fencepost.testcontainers"] if place == "option" else []))
    assert "4 passed" in done.stdout, done.stdout + done.stderr
