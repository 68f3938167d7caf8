"""The pytest plugin `-p fencepost.testcontainers`: Kafka containers of a suite are brokers of this process.

With testcontainers installed, its classes get the methods of `fencepost.testing.containers` for containers of Kafka,
also where they were imported or extended before; other containers need Docker as ever. Without it, modules of its
names are there. A suite that is no pytest suite calls `install()` first.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from functools import cached_property
from types import ModuleType
from typing import Any

from fencepost.extras import needed_for

_METHODS = (
    "start", "stop", "get_exposed_port", "get_container_host_ip", "get_logs", "get_wrapped_container", "exec", "reload",
    "get_container_info",
)  # fmt: skip
_STRATEGIES = (
    "CompositeWaitStrategy", "ContainerStatusWaitStrategy", "FileExistsWaitStrategy", "HealthcheckWaitStrategy",
    "HttpWaitStrategy", "LogMessageWaitStrategy", "PortWaitStrategy",
)  # fmt: skip
_DONE = "_fencepost_installed"
"""An attribute of the module of containers, once it is ours."""


def pytest_load_initial_conftests() -> None:
    """Install before any conftest.py imports testcontainers."""
    install()


def pytest_configure() -> None:
    """Install if a conftest.py named this plugin."""
    install()


def install() -> None:
    """Serve Kafka's containers by brokers of this process, from now on. It may be called again."""
    if hasattr(sys.modules.get("testcontainers.core.container"), _DONE):
        return
    with needed_for("fencepost.testcontainers"):
        importlib.import_module("fencepost.testing.containers")
    if importlib.util.find_spec("testcontainers") is None:
        _provide_modules()
    else:
        _patch_classes()
    setattr(sys.modules["testcontainers.core.container"], _DONE, True)


def _provide_modules() -> None:
    from fencepost.testing import containers as ours

    kafka = {"KafkaContainer": ours.KafkaContainer, "RedpandaContainer": ours.RedpandaContainer}
    waiting = {"wait_for_logs": ours.wait_for_logs, "wait_container_is_ready": _ready_already}
    modules: dict[str, dict[str, Any]] = {
        "testcontainers": {},
        "testcontainers.core": {},
        "testcontainers.core.container": {"DockerContainer": ours.DockerContainer},
        "testcontainers.core.network": {"Network": ours.Network},
        "testcontainers.core.waiting_utils": waiting,
        "testcontainers.core.wait_strategies": dict.fromkeys(_STRATEGIES, _Ready),
        "testcontainers.kafka": kafka,
        "testcontainers.community": {},
        "testcontainers.community.kafka": kafka,
    }
    for name, content in modules.items():
        module = sys.modules[name] = ModuleType(name, "Provided by fencepost.testcontainers.")
        module.__dict__.update(content)
        module.__path__, module.__spec__ = [], importlib.util.spec_from_loader(name, None)
        parent, _, own = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], own, module)


class _Ready:
    """A strategy of waiting: there is nothing to wait for."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __getattr__(self, name: str) -> Callable[..., "_Ready"]:
        """Any setting of a strategy, which returns the strategy."""
        return lambda *_, **__: self


def _ready_already(*_: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The decorator wait_container_is_ready: a container of ours is ready when its start returns."""
    return lambda function: function


def _patch_classes() -> None:
    from fencepost.testing import containers as ours

    core: Any = importlib.import_module("testcontainers.core.container")
    for name in _METHODS:
        setattr(core.DockerContainer, name, _by_image(core.DockerContainer, name))
    core.DockerContainer.fencepost_broker = ours.DockerContainer.fencepost_broker
    core.DockerClient = _late(core.DockerClient)
    if importlib.util.find_spec("testcontainers.core.network") is not None:  # since version 4
        network: Any = importlib.import_module("testcontainers.core.network")
        network.DockerClient = core.DockerClient
        _tolerate_no_docker(network.Network)
    kafka = _kafka_module()
    for name, own in (("KafkaContainer", ours.KafkaContainer), ("RedpandaContainer", ours.RedpandaContainer)):
        kind = getattr(kafka, name, None)
        if kind is not None:
            kind._fencepost_role, kind._fencepost_registry, kind.start = "broker", own._fencepost_registry, own.start


def _kafka_module() -> Any:
    """The module of Kafka's containers, which is elsewhere since 4.15; None if what it imports is not installed."""
    for name in ("testcontainers.community.kafka", "testcontainers.kafka"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


def _by_image(kind: type, name: str) -> Callable[..., Any]:
    """The method of ours for containers that fencepost serves, the original one for others."""
    from fencepost.testing.container_service import role_of
    from fencepost.testing.containers import DockerContainer

    original, own = getattr(kind, name, None), getattr(DockerContainer, name)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if original is None or role_of(self) is not None:
            return own(self, *args, **kwargs)
        return original(self, *args, **kwargs)

    method.__name__, method.__doc__ = name, getattr(original, "__doc__", None)
    return method


def _late(client: Callable[..., Any]) -> Callable[..., Any]:
    """A client of Docker that connects when it is used first: with Kafka's containers alone it never is."""

    class LateClient:
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._how = args, kwargs

        @cached_property
        def _client(self) -> Any:
            args, kwargs = self._how
            return client(*args, **kwargs)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._client, name)

    return LateClient


def _tolerate_no_docker(network: Any) -> None:
    """Let a network be a mere name where there is no Docker."""
    errors: Any = importlib.import_module("docker.errors")
    create, remove = network.create, network.remove

    def create_if_possible(self: Any) -> Any:
        try:
            return create(self)
        except errors.DockerException:
            self._network = None
            return self

    def remove_if_created(self: Any) -> None:
        if self._network is not None:
            remove(self)

    network.create, network.remove = create_if_possible, remove_if_created
