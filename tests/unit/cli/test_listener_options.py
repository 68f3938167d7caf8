"""`fencepost serve --listen` and `--advertise`: what they set, and the commands that the guide prints."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fencepost.broker.config.broker_config import BrokerConfig
from fencepost.cli import serve

GUIDE = Path(__file__).parents[3] / "docs" / "operations.md"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[BrokerConfig]:
    """The configurations with which a broker would start."""
    found: list[BrokerConfig] = []
    monkeypatch.setattr(serve, "run_broker", lambda config: found.append(config) or 0)
    return found


def shown(config: BrokerConfig) -> list[tuple[Any, ...]]:
    return [(one.name, one.host, one.port, one.advertised and one.advertised[1:]) for one in config.client_listeners]


@pytest.mark.parametrize(
    ("options", "listeners"),
    [
        ("", [("PLAINTEXT", "127.0.0.1", 9092, None)]),
        ("--listen :9000", [("PLAINTEXT", "", 9000, None)]),
        ("--listen 127.0.0.1:0 --advertise b:1", [("PLAINTEXT", "127.0.0.1", 0, ("b", 1))]),
        (
            "--listen SSL://h:1 --listen k:2 --advertise b:3 --set ssl.keystore.location=x",
            [("SSL", "h", 1, ("b", 3)), ("PLAINTEXT", "k", 2, None)],
        ),
        (
            "--set listeners=SSL://h:1,PLAINTEXT://k:2 --advertise b:3 --set ssl.keystore.location=x",
            [("SSL", "h", 1, ("b", 3)), ("PLAINTEXT", "k", 2, None)],
        ),
    ],
)
def test_an_address_without_a_name(started: list[BrokerConfig], options: str, listeners: list[tuple[Any, ...]]) -> None:
    """A listener is PLAINTEXT without a name; an advertised address is that of the first listener."""
    result = CliRunner().invoke(serve.serve, ["--memory", *options.split()])
    assert result.exit_code == 0, result.output
    assert shown(started[0]) == listeners


def test_the_commands_of_the_guide(started: list[BrokerConfig]) -> None:
    text = GUIDE.read_text(encoding="utf-8").partition("### Listeners")[2].partition("### Logins")[0]
    for command in re.findall(r"^fencepost serve (.*)", text.replace("\\\n", " "), re.MULTILINE):
        result = CliRunner().invoke(serve.serve, shlex.split(command))
        assert result.exit_code == 0, result.output
    assert [shown(config) for config in started] == [
        [("PLAINTEXT", "127.0.0.1", 9092, None), ("LAN", "0.0.0.0", 9093, ("broker.example", 9093))],
        [("PLAINTEXT", "127.0.0.1", 9092, None), ("SSL", "0.0.0.0", 9093, None)],
    ]
