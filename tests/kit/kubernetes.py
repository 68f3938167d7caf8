"""The manifests for Kubernetes, and their brokers as processes of this machine."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from fencepost.testing.reserved_port import reserve_port
from tests.architecture.project_files import ROOT
from tests.kit.broker_process import BrokerProcess
from tests.kit.compose import uncommented

NAMESPACE = "messaging"


def manifest(file: str, *, on_cores: bool = False) -> dict[str, dict[str, Any]]:
    """The objects of one manifest by kind; `on_cores` with the commented lines that are for several cores."""
    text = (ROOT / "deploy" / "kubernetes" / file).read_text(encoding="utf-8")
    if on_cores:
        text = uncommented(text)
    return {one["kind"]: one for one in yaml.safe_load_all(text)}


def container_of(objects: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The container of the stateful set, its only one."""
    (container,) = objects["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    assert isinstance(container, dict)
    return container


class PodBroker(BrokerProcess):
    """One pod of a stateful set. Paths and addresses become those of this machine; `stores` replace those given."""

    def __init__(
        self, work_dir: Path, objects: Mapping[str, dict[str, Any]], index: int, stores: Mapping[str, str]
    ) -> None:
        super().__init__(work_dir)
        self._container = container_of(objects)
        self.port = reserve_port(self, self.host)
        self._fields = {
            "metadata.name": f"{objects['StatefulSet']['metadata']['name']}-{index}",
            "metadata.namespace": NAMESPACE,
            "metadata.labels['apps.kubernetes.io/pod-index']": str(index),
        }
        self._variables = {entry["name"]: self._value(entry) for entry in self._container.get("env", [])}
        self.name = f"{self._variables['POD_NAME']}.{objects['Service']['metadata']['name']}.{NAMESPACE}.svc"
        self.environment = {**self._variables, "FENCEPOST_DURABILITY": "os", **stores}

    def command(self) -> list[str]:
        """The words of the container, as `fencepost` gets them."""
        return [sys.executable, "-m", "fencepost", *(self._here(str(word)) for word in self._container["args"])]

    def _value(self, entry: Mapping[str, Any]) -> str:
        if "value" in entry:
            return str(entry["value"])
        match entry["valueFrom"]:
            case {"fieldRef": {"fieldPath": path}}:
                return self._fields[path]
            case {"secretKeyRef": {"key": key}}:
                return f"secret {key}"
        raise AssertionError(f"{entry} has no value")

    def _here(self, word: str) -> str:
        """As Kubernetes expands `$(NAME)`; then paths and addresses are replaced."""
        word = re.sub(r"\$\((\w+)\)", lambda found: self._variables[found[1]], word)
        word = word.replace("0.0.0.0:9092", f"{self.host}:{self.port}").replace("0.0.0.0:9404", f"{self.host}:0")
        return word.replace(f"{self.name}:9092", f"localhost:{self.port}").replace(
            "/var/lib/fencepost", str(self.work_dir)
        )
