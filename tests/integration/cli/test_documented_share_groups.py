"""The commands of docs/share-groups.md and docs/queues.md, run in their order against a broker with such a group."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from fencepost.broker.config.broker_config import load_config
from fencepost.cli.main import cli
from fencepost.sync import Client
from tests.architecture.project_files import ROOT
from tests.kit.broker_process import BrokerProcess

PAGES = [(ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("share-groups.md", "queues.md")]
BLOCKS = [
    line
    for page in PAGES
    for block in re.findall(r"^```bash\n(.*?)^```", page, re.M | re.S)
    for line in block.splitlines()
]
INLINE = [command for page in PAGES for command in re.findall(r"`(fencepost [^`]+)`", page)]
NOT_RUN = re.compile(r"^fencepost (serve .*|queue redrive|config set group workers \.\.\.)$")
"""Brokers, and commands that are only named."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as broker:
        yield broker.address


def run(address: str, command: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("FENCEPOST_BOOTSTRAP", address)
    result = CliRunner().invoke(cli, shlex.split(command)[1:])
    assert result.exit_code == 0, f"{command}: {result.output}"
    return result.output


def test_every_command_does_what_the_page_says(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks make the group of the page; a member of it rejects a record; then the commands of the text."""
    with Client(address) as kafka:
        with kafka.producer() as producer, kafka.admin() as admin:
            admin.create_topics("orders", if_not_exists=True)
            for order in (b"tea", b"bread"):
                producer.send("orders", order)
        for command in BLOCKS:
            run(address, command, monkeypatch)
        with kafka.queue("orders", group="workers") as queue:
            messages = iter(queue)
            next(messages).reject()
            next(messages).accept()
        outputs = {command: run(address, command, monkeypatch) for command in INLINE if not NOT_RUN.match(command)}
    assert "errors.deadletterqueue.topic.name=dlq.jobs" in outputs["fencepost queue describe workers"]
    assert "Sent 1 record of dlq.jobs again." in outputs["fencepost queue redrive workers"]


def test_the_bounds_can_be_widened_as_the_page_says(tmp_path: Path) -> None:
    [setting] = [shlex.split(command)[-1] for command in INLINE if command.startswith("fencepost serve --set")]
    name, value = setting.split("=")
    with (
        BrokerProcess(tmp_path, settings={name: value}) as broker,
        Client(broker.address) as kafka,
        kafka.admin() as admin,
    ):
        admin.incremental_alter_configs({"share.record.lock.duration.ms": value}, group="workers")


def test_defaults_and_bounds_are_those_of_the_broker() -> None:
    rows = re.findall(r"^\| `group\.share\.([\w.]+)` \| (\d+)( s)? \| (\d+)(?: s)? to (\d+)(?: s)? \|", PAGES[0], re.M)
    found = {
        name: tuple(int(number) * (1000 if unit else 1) for number in (default, low, high))
        for name, default, unit, low, high in rows
        if name != "max.size"
    }
    config = load_config()
    assert len(found) == 5
    for name, numbers in found.items():
        own = (getattr(config, f"group_share_{part}{name.replace('.', '_')}") for part in ("", "min_", "max_"))
        assert numbers == tuple(own), name
