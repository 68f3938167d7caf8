"""What runs in a container of `fencepost.testing.containers`: a broker of this process, or nothing."""

import uuid
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

from fencepost.testing.broker import HOST, Broker
from fencepost.testing.container_layout import REGISTRY_PORT, Layout, read_layout
from fencepost.testing.relay import Relay
from fencepost.testing.reserved_port import free_port

Role = Literal["broker", "registry", "idle"]

HOST_NAME = "localhost"
"""The name that clients use, as on Docker: certificates of tests are made for it."""
ROLES: Mapping[str, Role] = {
    **dict.fromkeys(("kafka", "kafka-native", "cp-kafka", "cp-server", "confluent-local", "redpanda"), "broker"),
    "cp-schema-registry": "registry",
    **dict.fromkeys(("zookeeper", "cp-zookeeper"), "idle"),
}
READY: Mapping[Role, str] = {
    "broker": "[KafkaServer id=1] started (kafka.server.KafkaServer)\n"
    "[KafkaRaftServer nodeId=1] Kafka Server started (kafka.server.KafkaRaftServer)\n"
    "Successfully started Kafka API server\nStarted Kafka API server\n",
    "registry": "Server started, listening for requests...\n",
    "idle": "binding to port 0.0.0.0/0.0.0.0:2181\n",
}
"""The lines that suites wait for."""


def role_of(container: Any) -> Role | None:
    """What runs in a container, by its class or its image; None: nothing that fencepost is."""
    by_class: Role | None = getattr(type(container), "_fencepost_role", None)
    name = str(container.image).partition("@")[0].rpartition("/")[2].partition(":")[0]
    return by_class or ROLES.get(name)


class NotInContainerError(AttributeError, NotImplementedError):
    """What was asked of the container needs Docker; there is only a broker in this process."""


class Service:
    """What runs in a started container: a broker, and on which port of this machine each of the container's is."""

    def __init__(self, container: Any, role: Role) -> None:
        self.role: Role = role
        self.image = str(container.image)
        self.broker: Broker | None = None
        self.ports: dict[int, int] = {}
        self.notes = ""
        self._relay: Relay | None = None
        wanted = {port_of(key): _host_port(value) for key, value in dict(container.ports).items()}
        try:
            if role == "broker":
                self._start_broker(container.env, wanted, type(container))
            elif role == "registry":
                self._start_registry(wanted)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._relay is not None:
            self._relay.close()
        if self.broker is not None:
            self.broker.close()

    def _start_broker(self, env: Mapping[str, Any], wanted: dict[int, int | None], kind: type) -> None:
        layout = read_layout(env, wanted)
        self.notes = "".join(f"the setting {name} is ignored: fencepost has none\n" for name in layout.ignored)
        if "CLUSTER_ID" in env:
            layout.settings["cluster.id"] = str(env["CLUSTER_ID"])
        if not getattr(kind, "_fencepost_registry", False):
            self._listen(layout, wanted, registry=False)
            return
        try:
            self._listen(layout, wanted, registry=True)
            self._open_registry(wanted.get(REGISTRY_PORT))
        except ImportError as error:
            self.notes += f"no schema registry: {error}\n"
            self._listen(layout, wanted, registry=False)

    def _listen(self, layout: Layout, wanted: dict[int, int | None], *, registry: bool) -> None:
        self.broker = broker = Broker(layout.settings, schema_registry=registry)
        for port in layout.listeners.values():
            self.ports[port] = wanted.get(port) or free_port(broker, HOST)
        broker.settings |= _listener_settings(layout, self.ports)
        broker.port = next(iter(self.ports.values()))
        broker.start()

    def _start_registry(self, wanted: dict[int, int | None]) -> None:
        self.broker = Broker(schema_registry=True).start()
        self._open_registry(next((port for port in wanted.values() if port), None), *wanted)

    def _open_registry(self, host_port: int | None, *container_ports: int) -> None:
        assert self.broker is not None
        port = urlsplit(self.broker.schema_registry_url).port
        assert port is not None
        if host_port is not None:
            self._relay = Relay(host_port, (HOST, port))
        self.ports |= dict.fromkeys(container_ports or (REGISTRY_PORT,), host_port or port)


def _listener_settings(layout: Layout, ports: Mapping[int, int]) -> dict[str, str]:
    at = {name: ports[port] for name, port in layout.listeners.items()}
    return {
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in at.items()),
        "advertised.listeners": ",".join(f"{name}://{HOST_NAME}:{port}" for name, port in at.items()),
        "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in layout.protocols.items()),
    }


def port_of(key: Any) -> int:
    return int(str(key).partition("/")[0])


def _host_port(value: Any) -> int | None:
    """The port of this machine that a test asked for: 9092, "9092/tcp" or ("127.0.0.1", 9092); None for any."""
    if isinstance(value, list | tuple):
        return _host_port(value[-1]) if value else None
    return port_of(value) if value else None


class _Attributes(dict[str, Any]):
    """Parts of what Docker's inspect returns."""

    def __missing__(self, name: str) -> Any:
        raise NotInContainerError(
            f"{name!r}: there is no Docker container and no network, only fencepost's broker in this process; it has"
            f" {', '.join(self) or 'nothing of the kind'}. Clients reach it at get_bootstrap_server()"
        )


class WrappedContainer:
    """What `get_wrapped_container` returns: the few things of Docker's container that a broker has."""

    def __init__(self, container: Any) -> None:
        self._container = container
        self.id = uuid.uuid4().hex
        self.short_id = self.id[:12]
        self.name = getattr(container, "_name", None) or f"fencepost-{self.short_id}"

    def __getattr__(self, name: str) -> Any:
        raise NotInContainerError(f"{name}: there is no Docker container, only fencepost's broker in this process")

    @property
    def attrs(self) -> dict[str, Any]:
        """What Docker's inspect has of a broker, as it is now. Others raise NotInContainerError."""
        return _Attributes(
            Id=self.id,
            Name=f"/{self.name}",
            State=_Attributes(Status=self.status, Running=self.status == "running", ExitCode=0, Error=""),
            Config=_Attributes(
                Image=str(self._container.image), Env=[f"{k}={v}" for k, v in self._container.env.items()], Labels={}
            ),
            NetworkSettings=_Attributes(IPAddress=HOST, Ports=self.ports, Networks=_Attributes()),
        )

    @property
    def ports(self) -> dict[str, list[dict[str, str]]]:
        """Where each port of the container is: {"9093/tcp": [{"HostIp": ..., "HostPort": ...}]}. Empty when exited."""
        service: Service | None = self._container.__dict__.get("_fencepost")
        ports = service.ports if service is not None and self.status == "running" else {}
        return {f"{port}/tcp": [{"HostIp": HOST, "HostPort": str(host_port)}] for port, host_port in ports.items()}

    @property
    def status(self) -> str:
        """Docker's word: running or exited."""
        broker = self._broker
        return "running" if broker is None or broker.running else "exited"

    @property
    def _broker(self) -> Broker | None:
        service: Service | None = self._container.__dict__.get("_fencepost")
        return service.broker if service is not None else None

    def reload(self) -> None:
        """There is nothing to ask for: the state is always the present one."""

    def logs(self, **_: Any) -> bytes:
        """The container's log."""
        out: bytes = b"".join(self._container.get_logs())
        return out

    def put_archive(self, path: str, data: Any) -> bool:
        """Accept the files that containers get, such as start scripts; nothing reads them."""
        return bool(path and data)

    def stop(self, **_: Any) -> None:
        """Stop the broker in order; it keeps its data and its port."""
        if self._broker is not None:
            self._broker.stop()

    def kill(self, **_: Any) -> None:
        """Kill the broker; it keeps its data and its port."""
        if self._broker is not None:
            self._broker.kill()

    def start(self, **_: Any) -> None:
        """Start a stopped broker with its data."""
        if self._broker is not None and not self._broker.running:
            self._broker.start()

    def restart(self, **_: Any) -> None:
        """Stop the broker and start it with its data."""
        self.stop()
        self.start()


def service_of(container: Any) -> Service:
    service: Service | None = container.__dict__.get("_fencepost")
    if service is None:
        raise RuntimeError(f"{container.image} is not started")
    return service
