"""The containers of testcontainers-python that suites run Kafka in, without Docker: a broker of this process in each.

`KafkaContainer` and `RedpandaContainer` have the methods of the originals. `DockerContainer` serves the images of
Kafka, Redpanda, ZooKeeper (nothing runs there) and Confluent's Schema Registry. `fencepost.testcontainers` puts their
methods into the original classes.
"""

import re
import time
import uuid
from types import TracebackType
from typing import Any, Self

from fencepost.testing.broker import Broker
from fencepost.testing.container_layout import REGISTRY_PORT
from fencepost.testing.container_service import (
    HOST_NAME,
    READY,
    ROLES,
    NotInContainerError,
    Role,
    Service,
    WrappedContainer,
    port_of,
    role_of,
    service_of,
)

__all__ = [
    "DockerContainer",
    "KafkaContainer",
    "Network",
    "NotInContainerError",
    "RedpandaContainer",
    "wait_for_logs",
]


class DockerContainer:
    """A container with an image of Kafka, Redpanda, ZooKeeper or Confluent's Schema Registry.

    What only concerns Docker (networks, volumes, commands, names) is accepted and has no effect. Variables KAFKA_* are
    settings of the broker; it listens on this machine only, and advertises the address where it is.
    """

    _fencepost_role: Role | None = None
    _fencepost_registry = False

    def __init__(self, image: str, **kwargs: Any) -> None:
        self.image = image
        self.env: dict[str, Any] = dict(kwargs.pop("env", None) or {})
        self.ports: dict[Any, Any] = dict.fromkeys(map(str, kwargs.pop("ports", None) or ()))
        self.volumes: dict[str, Any] = {}
        self._name: str | None = kwargs.pop("name", None)
        self._kwargs = kwargs
        self._wait_strategy: Any = None

    def with_env(self, key: str, value: Any) -> Self:
        """Set a variable: KAFKA_LOG_RETENTION_MS is the setting log.retention.ms."""
        self.env[key] = value
        return self

    def with_envs(self, **variables: Any) -> Self:
        """Set several variables."""
        self.env.update(variables)
        return self

    def with_exposed_ports(self, *ports: int | str) -> Self:
        """Make ports of the container reachable, each on a free port of this machine."""
        self.ports.update(dict.fromkeys(map(str, ports)))
        return self

    def with_bind_ports(self, container: int | str, host: int | str | None = None) -> Self:
        """Make a port of the container reachable on this port of this machine."""
        self.ports[str(container)] = host
        return self

    def with_name(self, name: str) -> Self:
        """Name the container."""
        self._name = name
        return self

    def waiting_for(self, strategy: Any) -> Self:
        """Use a wait strategy after the start."""
        self._wait_strategy = strategy
        return self

    def _accept(self, *_: Any, **__: Any) -> Self:
        """Accept what only concerns Docker; no effect."""
        return self

    with_network = with_network_aliases = with_command = with_kwargs = with_volume_mapping = _accept
    with_tmpfs_mount = with_copy_into_container = maybe_emulate_amd64 = _accept

    def start(self) -> Self:
        """Start the broker; return when it accepts connections. Raises ConfigError for an invalid setting."""
        role = role_of(self)
        if role is None:
            raise NotInContainerError(f"{self.image} needs Docker: fencepost serves {', '.join(ROLES)}")
        if self.__dict__.get("_fencepost") is None:
            self.__dict__["_fencepost"] = Service(self, role)
            self.__dict__["_container"] = WrappedContainer(self)
            if (strategy := getattr(self, "_wait_strategy", None)) is not None:
                strategy.wait_until_ready(self)
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """End the broker; a further start begins with an empty one. It may be called again."""
        service: Service | None = self.__dict__.pop("_fencepost", None)
        self.__dict__["_container"] = None
        if service is not None:
            service.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def fencepost_broker(self) -> Broker:
        """The broker in the container, with its faults, clock and logs. Raises RuntimeError if it is not started."""
        broker = service_of(self).broker
        if broker is None:
            raise NotInContainerError(f"{self.image} runs no broker")
        return broker

    @property
    def status(self) -> str:
        """Docker's word: not_started, running or exited."""
        return "not_started" if self.__dict__.get("_fencepost") is None else str(self.get_wrapped_container().status)

    def reload(self) -> None:
        """There is nothing to ask for: `status` is always the present one."""

    def get_container_host_ip(self) -> str:
        """The name of this machine in clients' addresses."""
        return HOST_NAME

    def get_exposed_port(self, port: int | str) -> int:
        """The port of this machine that leads to the container's. Raises ConnectionError if none does."""
        service = service_of(self)
        found = service.ports.get(port_of(port))
        if found is None:
            raise ConnectionError(
                f"nothing of fencepost listens at port {port} of {self.image}: {service.ports} {service.notes}"
            )
        return found

    def get_logs(self) -> tuple[bytes, bytes]:
        """What ready containers of this kind log, and the broker's journal."""
        service = service_of(self)
        journal = service.broker.journal.tail(10_000) if service.broker is not None else ""
        return f"{READY[service.role]}{service.notes}{journal}\n".encode(), b""

    def get_wrapped_container(self) -> Any:
        """Docker's container, as far as a broker can be one. Raises RuntimeError if it is not started."""
        service_of(self)
        return self.__dict__["_container"]

    def get_container_info(self) -> None:
        """Nothing: there is no container to inspect."""

    def exec(self, command: Any) -> Any:
        """Raises NotInContainerError: there are no Kafka tools in this process. Use an admin client."""
        raise NotInContainerError(f"exec {command!r}: no shell and no tools of Kafka are here; use an admin client")


class KafkaContainer(DockerContainer):
    """The broker of this process under the name of testcontainers' KafkaContainer."""

    _fencepost_role = "broker"

    def __init__(
        self,
        image: str = "confluentinc/cp-kafka:7.6.0",
        port: int = 9093,
        wait_strategy_check_string: str = "",
        listener_name: str = "PLAINTEXT",
        security_protocol: str = "PLAINTEXT",
        **kwargs: Any,
    ) -> None:
        super().__init__(image, **kwargs)
        self.port = kwargs.get("port_to_expose", port)
        self.kraft_enabled = False
        self.cluster_id: str | None = None
        self.wait_for = re.compile(wait_strategy_check_string)
        self.with_exposed_ports(self.port)
        self.with_env("KAFKA_LISTENERS", f"{listener_name}://0.0.0.0:{self.port}")
        self.with_env("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", f"{listener_name}:{security_protocol}")
        self.with_env("KAFKA_BROKER_ID", "1")

    def with_kraft(self) -> Self:
        """Note that the test wants KRaft; fencepost has neither KRaft nor ZooKeeper."""
        self.kraft_enabled = True
        return self

    def with_cluster_id(self, cluster_id: str) -> Self:
        """Set the id of the cluster."""
        self.cluster_id = cluster_id
        return self

    def configure(self) -> None:
        """Set what depends on other calls; the start calls it."""
        if self.cluster_id is not None:
            self.with_env("CLUSTER_ID", self.cluster_id)

    def start(self, timeout: float | None = None) -> Self:
        """Start the broker; return when it accepts connections. `timeout` has no effect."""
        if hasattr(self, "configure"):  # testcontainers 3 has none
            self.configure()
        return DockerContainer.start(self)

    def get_bootstrap_server(self) -> str:
        """HOST:PORT, for a client's bootstrap setting."""
        return f"{self.get_container_host_ip()}:{self.get_exposed_port(self.port)}"


class RedpandaContainer(DockerContainer):
    """The broker of this process under the name of testcontainers' RedpandaContainer, with a schema registry."""

    _fencepost_role = "broker"
    _fencepost_registry = True

    def __init__(self, image: str = "docker.redpanda.com/redpandadata/redpanda:v23.1.13", **kwargs: Any) -> None:
        super().__init__(image, **kwargs)
        self.redpanda_port = 9092
        self.schema_registry_port = REGISTRY_PORT
        self.with_exposed_ports(self.redpanda_port, self.schema_registry_port)

    def start(self, timeout: float | None = None) -> Self:
        """Start the broker; return when it accepts connections. `timeout` has no effect."""
        return DockerContainer.start(self)

    def get_bootstrap_server(self) -> str:
        """HOST:PORT, for a client's bootstrap setting."""
        return f"{self.get_container_host_ip()}:{self.get_exposed_port(self.redpanda_port)}"

    def get_schema_registry_address(self) -> str:
        """The URL of the schema registry."""
        return f"http://{self.get_container_host_ip()}:{self.get_exposed_port(self.schema_registry_port)}"


class Network:
    """A network of containers: all of them are on this machine anyway."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.name = str(uuid.uuid4())

    @property
    def id(self) -> str:
        """The name."""
        return self.name

    def create(self) -> Self:
        """Nothing is to be created."""
        return self

    def connect(self, container_id: str, network_aliases: list[str] | None = None) -> None:
        """Nothing is to be connected."""

    def remove(self) -> None:
        """Nothing is to be removed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def wait_for_logs(container: Any, predicate: Any, timeout: float = 120, interval: float = 0.1, **_: Any) -> float:
    """Wait until a container's log has a pattern, or is one that a function accepts; return the seconds that it took.

    Raises TimeoutError.
    """
    accept = predicate if callable(predicate) else re.compile(predicate, re.MULTILINE).search
    began = time.monotonic()
    while not any(accept(stream.decode()) for stream in container.get_logs()):
        if time.monotonic() - began > timeout:
            raise TimeoutError(f"the log of {container.image} has no {predicate!r} after {timeout:g} s")
        time.sleep(interval)
    return time.monotonic() - began
