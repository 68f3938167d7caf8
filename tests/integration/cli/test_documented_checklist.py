"""The commands of docs/production.md and docs/troubleshooting.md, run against a broker: none is wrong usage."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from fencepost.cli.main import cli
from tests.architecture.project_files import ROOT
from tests.kit.broker_process import BrokerProcess
from tests.kit.example_programs import send

WRONG_USAGE = 2
PAGES = ("production.md", "troubleshooting.md")
NEEDS_MORE = re.compile(r"^(serve|store|backup|restore)\b|--store |properties|DIRECTORY|/tmp/")
"""Commands that need a cluster, a file of the reader's, or another broker; their options are checked elsewhere."""


def commands() -> list[str]:
    """What follows `fencepost` in the commands of both pages."""
    texts = [(ROOT / "docs" / name).read_text(encoding="utf-8") for name in PAGES]
    found = {command for text in texts for command in re.findall(r"`fencepost ([^`]+)`", text)}
    return sorted(command for command in found if not NEEDS_MORE.search(command))


@pytest.fixture(scope="module")
def work_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checklist")


@pytest.fixture(scope="module")
def address(work_dir: Path) -> Iterator[str]:
    """A broker with the topic of the pages, whose files are in `data`."""
    with BrokerProcess(work_dir, data_dir=work_dir / "data") as broker:
        send(broker.address, "orders", (b"k", b"1"))
        yield broker.address


def test_there_are_commands_of_all_kinds() -> None:
    assert {command.split()[0] for command in commands()} > {
        "acl",
        "bench",
        "cluster",
        "config",
        "group",
        "topic",
        "txn",
    }


@pytest.mark.parametrize("command", commands())
def test_a_command_is_no_wrong_usage(
    command: str, address: str, work_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a setting that it asks for has a value."""
    monkeypatch.chdir(work_dir)
    monkeypatch.setenv("FENCEPOST_BOOTSTRAP", address)
    words = shlex.split(re.sub(r"^bench produce load.*", "bench produce load --records 1000", command))
    result = CliRunner().invoke(cli, words)
    is_refused = words[:2] == ["verify", "./data"]  # the broker runs
    assert (result.exit_code == WRONG_USAGE) == is_refused, result.output
    assert "not set" not in result.output
