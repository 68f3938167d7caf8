"""Containers of Kafka without Docker: settings, ports, logs, and public bug reports of testcontainers, played again."""

import json
import socket
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from fencepost import sync
from fencepost.broker.config.fields import ConfigError
from fencepost.testing import Broker, container_service
from fencepost.testing.container_layout import read_layout
from fencepost.testing.container_service import NotInContainerError
from fencepost.testing.containers import DockerContainer, KafkaContainer, Network, RedpandaContainer, wait_for_logs
from fencepost.testing.relay import Relay
from tests.kit.certificates import Authority


def write_and_read(bootstrap: str, value: bytes = b"one", **security: Any) -> None:
    """Produce a record and consume it, through the addresses that the broker advertises."""
    with sync.Client(bootstrap, **security) as client:
        with client.producer() as producer:
            producer.send("orders", value)
            producer.flush()
        with client.consumer("orders", auto_offset_reset="earliest") as consumer:
            assert next(iter(consumer)).value == value


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
    return port


@pytest.mark.parametrize("kind", [KafkaContainer, RedpandaContainer])
def test_a_container_is_a_broker(kind: Any) -> None:
    with kind() as container:
        write_and_read(container.get_bootstrap_server())
        container.fencepost_broker.assert_exactly_once("orders", ["one"])
        assert container.get_wrapped_container().status == container.status == "running"
    assert container.status == "not_started"
    with pytest.raises(RuntimeError, match="is not started"):
        container.get_bootstrap_server()
    container.stop()


def test_a_container_that_is_started_again_is_empty() -> None:
    """As on Docker: stop() removes it."""
    container = KafkaContainer()
    with container:
        write_and_read(container.get_bootstrap_server(), b"old")
    with container:
        assert container.fencepost_broker.topics() == {}


def test_variables_are_settings() -> None:
    kafka = KafkaContainer().with_kraft().with_cluster_id("MkU3OEVBNTcwNTJENDM2Qk")
    kafka.with_env("KAFKA_AUTO_CREATE_TOPICS_ENABLE", "false").with_env("KAFKA_HEAP_OPTS", "-Xmx1g")
    kafka.with_envs(KAFKA_NUM_PARTITIONS=3, KAFKA_TRANSACTION_STATE_LOG_MIN_ISR="1", KAFKA_NODE_ID=7)
    with kafka, sync.Client(kafka.get_bootstrap_server()) as client, client.admin() as admin:
        cluster = admin.describe_cluster()
        assert (cluster.cluster_id, [node.broker_id for node in cluster.brokers]) == ("MkU3OEVBNTcwNTJENDM2Qk", [7])
        settings = kafka.fencepost_broker.settings
        assert (settings["num.partitions"], settings["auto.create.topics.enable"]) == ("3", "false")
        assert b"the setting heap.opts is ignored" in kafka.get_logs()[0]


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_LOG_RETENTION_MS", "log.retention.ms"),
        ("KAFKA_CFG_LOG_RETENTION_MS", "log.retention.ms"),
        ("KAFKA_LISTENER_NAME_SASL__PLAINTEXT_SASL_ENABLED_MECHANISMS", "listener.name.sasl_plaintext."),
    ],
)
def test_the_name_of_a_variable_says_the_setting(variable: str, name: str) -> None:
    [found] = read_layout({variable: "1"}, [9092]).settings
    assert found.startswith(name)


def test_only_listeners_for_clients_that_a_port_leads_to_are_opened() -> None:
    env = {
        "KAFKA_LISTENERS": "IN://:9092,CONTROLLER://:9093,OUT://0.0.0.0:29092,TLS://[::]:9094",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "IN:PLAINTEXT,OUT:PLAINTEXT,TLS:SSL,CONTROLLER:PLAINTEXT",
    }
    layout = read_layout(env, [29092, 9093, 9094])
    assert layout.listeners == {"OUT": 29092, "TLS": 9094}
    assert layout.protocols == {"OUT": "PLAINTEXT", "TLS": "SSL"}
    assert read_layout(env, []).listeners == {"IN": 9092}
    assert read_layout({}, [2181, 8081, 9999]).listeners == {"PLAINTEXT": 9999}
    only = read_layout({"KAFKA_ADVERTISED_LISTENERS": "HOST://localhost:9092"}, [9092])
    assert only.listeners == {"HOST": 9092}


def test_each_port_of_the_container_leads_to_the_broker() -> None:
    port = free_port()
    kafka = DockerContainer("confluentinc/cp-kafka:7.6.1", hostname="kafka").with_bind_ports(29092, port)
    kafka.with_exposed_ports("9092/tcp").with_env("KAFKA_LISTENERS", "IN://:9092,OUT://:29092")
    kafka.with_env("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", "IN:PLAINTEXT,OUT:PLAINTEXT")
    with kafka:
        assert kafka.get_exposed_port(29092) == port
        for one in (9092, 29092):
            write_and_read(f"{kafka.get_container_host_ip()}:{kafka.get_exposed_port(one)}")
        with pytest.raises(ConnectionError, match="port 9093"):
            kafka.get_exposed_port(9093)


def test_what_protects_is_not_ignored() -> None:
    kafka = KafkaContainer().with_env("KAFKA_AUTHORIZER_CLASS_NAME", "com.example.Mine")
    with pytest.raises(ConfigError, match=r"authorizer\.class\.name"):
        kafka.start()
    assert kafka.status == "not_started"


def test_certificates_of_the_container_are_the_brokers(tmp_path: Path) -> None:
    """As images take them: PEM in one line of a properties file."""
    authority = Authority(tmp_path)
    signed = authority.sign("localhost", hosts=["localhost"])
    kafka = KafkaContainer(listener_name="SSL", security_protocol="SSL").with_env("KAFKA_SSL_KEYSTORE_TYPE", "PEM")
    kafka.with_env("KAFKA_SSL_KEYSTORE_KEY", signed.key.read_text().replace("\n", "\\n"))
    kafka.with_env("KAFKA_SSL_KEYSTORE_CERTIFICATE_CHAIN", signed.certificate.read_text().replace("\n", "\\n"))
    kafka.with_env("KAFKA_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM", " ")
    with kafka:
        write_and_read(kafka.get_bootstrap_server(), security_protocol="SSL", ssl_cafile=str(authority.ca))


def test_suites_find_the_lines_that_they_wait_for() -> None:
    with Network() as network, DockerContainer("bitnami/zookeeper").with_network(network) as zookeeper:
        assert network.id == network.name
        assert wait_for_logs(zookeeper, "binding to port") < 1
        with pytest.raises(NotInContainerError, match="runs no broker"):
            _ = zookeeper.fencepost_broker
    seen = []

    class Strategy:
        def wait_until_ready(self, container: Any) -> None:
            seen.append(container.get_logs()[0].decode())

    with DockerContainer("apache/kafka").with_exposed_ports(9092).waiting_for(Strategy()) as kafka:
        for line in (r".*\[KafkaServer id=\d+\] started.*", "Kafka Server started", "Started Kafka API server"):
            assert wait_for_logs(kafka, line) < 1
        with pytest.raises(TimeoutError, match="has no 'nothing'"):
            wait_for_logs(kafka, "nothing", timeout=0.1)
        kafka.fencepost_broker.create_topic("orders")
        assert wait_for_logs(kafka, lambda log: "ready on 127.0.0.1" in log) < 1
    assert "Kafka Server started" in seen[0]


def test_what_needs_docker_says_so() -> None:
    with pytest.raises(NotInContainerError, match="postgres:17 needs Docker"):
        DockerContainer("postgres:17").start()
    with KafkaContainer() as kafka:
        with pytest.raises(NotInContainerError, match="use an admin client"):
            kafka.exec("kafka-topics --list")
        with pytest.raises(NotImplementedError, match="exec_run: there is no Docker container"):
            kafka.get_wrapped_container().exec_run("ls")
        assert not hasattr(kafka.get_wrapped_container(), "image")


def test_a_relay_leads_to_its_target_until_it_is_closed() -> None:
    """A registry's container is asked for at a port that the test chose."""
    with socket.create_server(("127.0.0.1", 0)) as target:
        relay = Relay(0, target.getsockname())
        with socket.create_connection(("127.0.0.1", relay.port)) as client:
            server, _ = target.accept()
            with server:
                threads = threading.active_count()
                client.sendall(b"asked" * 50_000)
                client.shutdown(socket.SHUT_WR)
                with server.makefile("rb") as file:
                    assert file.read() == b"asked" * 50_000
                server.sendall(b"answer")
                server.shutdown(socket.SHUT_WR)
                with client.makefile("rb") as file:
                    assert file.read() == b"answer"
                assert threads
        relay.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", relay.port))


# Public bug reports


@pytest.mark.parametrize("image", ["confluentinc/cp-kafka:7.1.3", "confluentinc/cp-kafka:5.4.3", "own/mirror:1"])
def test_every_image_starts(image: str) -> None:
    """testcontainers-python 242 and 223: with some images the container never became ready."""

    class Extended(KafkaContainer):
        pass

    with Extended(image=image) as kafka:
        write_and_read(kafka.get_bootstrap_server())


def test_a_network_does_not_hide_the_broker_from_the_test() -> None:
    """testcontainers-python 637 and 675: a container in a network did not start, or advertised an address inside."""
    with Network() as network:
        kafka = KafkaContainer().with_network(network).with_network_aliases("kafka")
        kafka.with_kwargs(network=network.name, networking_config={network.name: {"aliases": ["kafka"]}})
        with kafka:
            write_and_read(kafka.get_bootstrap_server())


def test_docker_would_say_where_it_is_and_how() -> None:
    """Suites read the state, the ports and the address from docker-py's container."""
    with KafkaContainer().with_env("A", 1) as kafka:
        wrapped = kafka.get_wrapped_container()
        state, network = wrapped.attrs["State"], wrapped.attrs["NetworkSettings"]
        assert (state["Status"], state["Running"], state["ExitCode"]) == ("running", True, 0)
        assert state.get("Health") is None
        [there] = wrapped.ports["9093/tcp"]
        assert there["HostPort"] == str(kafka.get_exposed_port(9093))
        assert (network["Ports"], network["IPAddress"]) == (wrapped.ports, there["HostIp"])
        assert "A=1" in wrapped.attrs["Config"]["Env"]
        with pytest.raises(NotInContainerError, match="'HostConfig': there is no Docker container"):
            wrapped.attrs["HostConfig"]
        with pytest.raises(NotInContainerError, match=r"'mine': .* get_bootstrap_server"):
            network["Networks"]["mine"]


def test_a_restart_keeps_port_and_data() -> None:
    """testcontainers-java 3615 and 761: after a restart the broker was at another port, and clients did not find it."""
    with KafkaContainer() as kafka:
        bootstrap, wrapped = kafka.get_bootstrap_server(), kafka.get_wrapped_container()
        write_and_read(bootstrap, b"before")
        wrapped.stop()
        wrapped.reload()
        assert wrapped.status == wrapped.attrs["State"]["Status"] == "exited"
        assert (wrapped.attrs["State"]["Running"], wrapped.ports) == (False, {})
        wrapped.start()
        wrapped.kill()
        wrapped.restart()
        assert kafka.get_bootstrap_server() == bootstrap
        kafka.fencepost_broker.assert_exactly_once("orders", ["before"])


def test_the_same_port_again_after_a_container_is_gone() -> None:
    """testcontainers-node 724: the next container could not have the port of one that was stopped."""
    port = free_port()
    for _ in range(3):
        with KafkaContainer().with_bind_ports(9093, port) as kafka:
            assert kafka.get_bootstrap_server() == f"localhost:{port}"
            write_and_read(kafka.get_bootstrap_server())


def test_two_containers_at_once() -> None:
    """quix-streams 380: suites that share one container meet each other's topics; here one of each costs nothing."""
    with KafkaContainer() as one, KafkaContainer() as other:
        write_and_read(one.get_bootstrap_server())
        assert other.fencepost_broker.topics() == {}


# The registry


def subjects_at(url: str) -> Any:
    with urllib.request.urlopen(f"{url}/subjects", timeout=30) as answer:
        return json.load(answer)


def test_a_redpanda_container_has_a_registry() -> None:
    with RedpandaContainer() as redpanda:
        assert subjects_at(redpanda.get_schema_registry_address()) == []
        write_and_read(redpanda.get_bootstrap_server())


def test_a_registrys_container_listens_where_the_test_says() -> None:
    port = free_port()
    registry = DockerContainer("confluentinc/cp-schema-registry:7.6.0").with_bind_ports(port, port)
    registry.with_env("SCHEMA_REGISTRY_LISTENERS", f"http://0.0.0.0:{port}")
    with registry:
        assert wait_for_logs(registry, "Server started, listening for requests") < 1
        assert subjects_at(f"http://127.0.0.1:{port}") == []
    with DockerContainer("confluentinc/cp-schema-registry").with_exposed_ports(8081) as registry:
        assert subjects_at(f"http://localhost:{registry.get_exposed_port(8081)}") == []


def test_a_redpanda_container_without_the_registrys_packages_is_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry is an extra. The error for its address says what to install."""

    def no_registry(settings: Any, *, schema_registry: bool) -> Broker:
        if schema_registry:
            raise ImportError("install fencepost[registry]")
        return Broker(settings)

    monkeypatch.setattr(container_service, "Broker", no_registry)
    with RedpandaContainer() as redpanda:
        write_and_read(redpanda.get_bootstrap_server())
        with pytest.raises(ConnectionError, match=r"port 8081 .* no schema registry: install fencepost\[registry\]"):
            redpanda.get_schema_registry_address()
