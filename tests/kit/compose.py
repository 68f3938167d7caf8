"""The files of Docker Compose, merged as Compose merges them, and their broker as a process of this machine."""

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from fencepost.testing.reserved_port import reserve_port
from tests.architecture.project_files import ROOT
from tests.kit.broker_process import BrokerProcess

SECRETS = "/run/secrets/"
_REPLACED = ("command", "entrypoint", "test")
"""Lists that the later file replaces; the others grow."""


class Override(list[Any]):
    """A list with `!override`: it replaces the list of the files before."""


class _Loader(yaml.SafeLoader):
    pass


_LIST = yaml.SafeLoader.construct_sequence
_Loader.add_constructor("!override", lambda loader, node: Override(_LIST(loader, node)))


def uncommented(text: str) -> str:
    """The text with the elements of lists that are comments: those are for several cores."""
    return re.sub(r"^( *)# (- )", r"\1\2", text, flags=re.MULTILINE)


def compose(*files: str, on_cores: bool = False) -> dict[str, Any]:
    """The merged content of these files of the repository, `on_cores` with the lines for several cores."""
    merged: dict[str, Any] = {}
    for file in files:
        text = (ROOT / file).read_text(encoding="utf-8")
        loaded = yaml.load(uncommented(text) if on_cores else text, _Loader)
        assert isinstance(loaded, dict)
        merged = _merge(merged, loaded)
    return merged


def _merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(old)
    for key, value in new.items():
        before = old.get(key)
        if isinstance(before, dict):
            merged[key] = _merge(before, value)
        elif isinstance(before, list) and key not in _REPLACED and not isinstance(value, Override):
            merged[key] = before + value
        else:
            merged[key] = value
    return merged


class ComposeBroker(BrokerProcess):
    """The service `broker`, with its command and environment. Only paths and addresses become those of this machine.

    `variables` are those of Compose's own environment. The first listener must be at port 9092 of the container.
    """

    def __init__(self, work_dir: Path, service: Mapping[str, Any], variables: Mapping[str, str], secrets: Path) -> None:
        super().__init__(work_dir)
        self._words = [_interpolate(str(word), variables) for word in service["command"]]
        self.port = reserve_port(self, self.host)
        self._places = {
            SECRETS: f"{secrets}/",
            "/var/lib/fencepost": str(work_dir),
            "0.0.0.0:9092": f"{self.host}:{self.port}",
            "broker:9092": f"localhost:{self.port}",
            "0.0.0.0:": f"{self.host}:",
        }
        for port in ("9093", "9404"):
            self._places[f":{port}"] = f":{reserve_port(self, self.host)}"
        given = {name: self.here(value) for name, value in service.get("environment", {}).items()}
        self.environment = {"FENCEPOST_DURABILITY": "os", **given}

    def add_places(self, name: str, ports: Iterable[str]) -> None:
        """Another name of the container at the first listener's port, and more ports of its listeners."""
        self._places = {name: f"{self.host}:{self.port}", **self._places}
        for port in ports:
            self._places[f":{port}"] = f":{reserve_port(self, self.host)}"

    def here(self, text: str) -> str:
        """The text, with the container's paths and addresses replaced."""
        for of_container, ours in self._places.items():
            text = text.replace(of_container, ours)
        return text

    def command(self) -> list[str]:
        """The words of the service's command, as `fencepost` gets them."""
        return [sys.executable, "-m", "fencepost", *map(self.here, self._words)]


def _interpolate(word: str, variables: Mapping[str, str]) -> str:
    """`${NAME}` and `${NAME:?why}`. Raises KeyError for a variable without a value."""
    return re.sub(r"\$\{(\w+)(:\?[^}]*)?\}", lambda found: variables[found[1]], word)
