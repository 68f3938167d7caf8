"""The commands that pages name exist, with their options; so do the messages that troubleshooting quotes."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import aiokafka.client
import click
import kafka.net.manager
import pytest
from confluent_kafka import KafkaError

from fencepost.broker.config.broker_config import BrokerConfig
from fencepost.cli.main import cli
from fencepost.protocol.errors import ErrorCode
from tests.architecture.project_files import MARKDOWN_FILES, ROOT, name_of
from tests.architecture.source_facts import facts

PAGES = [path for path in MARKDOWN_FILES if name_of(path) == "README.md" or name_of(path.parent) == "docs"]
SHELL_BLOCK = re.compile(r"^```(?:sh|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
COMMAND = re.compile(r"(?:^|[\s/(|&])fencepost (?P<words>[a-z][^|;&#>)]*)")
TROUBLES = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
OF_OTHERS = {"Unable to bootstrap from": "aiokafka, kafka-python", "_ALL_BROKERS_DOWN": "confluent-kafka"}
OF_THE_SYSTEM = {"Connection refused", "unsuitable certificate purpose", "unsupported certificate"}


def commands_in(text: str) -> Iterator[list[str]]:
    """The words behind `fencepost` of each command in shell blocks and in code of the prose."""
    blocks = (
        re.sub(r"(^|\s)#.*", "", "\n".join(SHELL_BLOCK.findall(text)), flags=re.MULTILINE)
        .replace("\\\n", " ")
        .splitlines()
    )
    for line in blocks + INLINE.findall(FENCE.sub("", text)):
        for found in COMMAND.finditer(line):
            yield shlex.split(found["words"].replace("'", " ").replace('"', " "))


def problem_of(words: list[str]) -> str | None:
    """The first word that is no command or option of the command line; None if all are."""
    command: click.Command = cli
    rest = list(words)
    while isinstance(command, click.Group) and rest and re.fullmatch(r"[a-z][\w-]*,?", rest[0]):
        found = command.get_command(click.Context(command), rest[0].rstrip(","))
        if found is None:
            return rest[0]
        command, is_list = found, rest[0].endswith(",")
        rest = [] if is_list else rest[1:]
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {
        "-h",
        "--help",
        "--version",
    }
    options = [word.partition("=")[0] for word in rest if re.match(r"--[a-z]|-[A-Za-z]$", word)]
    return next((f"{' '.join(words)}: {option}" for option in options if option not in known), None)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_commands_of_a_page_exist(page: Path) -> None:
    commands = list(commands_in(page.read_text(encoding="utf-8")))
    assert [problem for words in commands if (problem := problem_of(words)) is not None] == []


def test_the_checklist_and_troubleshooting_name_commands() -> None:
    for name, count in {"production.md": 30, "troubleshooting.md": 15}.items():
        assert len(list(commands_in((ROOT / "docs" / name).read_text(encoding="utf-8")))) >= count


@pytest.mark.parametrize(
    "words", [["no-such"], ["topic", "no-such"], ["topic", "list", "--no-such"], ["txn", "why", "-q"]]
)
def test_a_command_that_does_not_exist_is_found(words: list[str]) -> None:
    assert problem_of(words) is not None


def test_the_settings_of_the_checklist_exist() -> None:
    """`config get` of a running broker would refuse an unknown one."""
    text = (ROOT / "docs" / "production.md").read_text(encoding="utf-8")
    settings = [name for found in re.findall(r"config get broker 1 ([a-z. ]+)`", text) for name in found.split()]
    assert len(settings) > 5
    for name in settings:
        BrokerConfig().value(name)


def quoted() -> list[str]:
    """The first cells of the tables: the texts that a reader may see."""
    cells = re.findall(r"^\| ([^|]*) \|", TROUBLES, re.MULTILINE)
    return [text for cell in cells for text in INLINE.findall(cell)]


def test_each_quoted_message_of_ours_is_in_the_code() -> None:
    texts = [text for found in facts().values() for _, text in found.texts]
    codes = {code.name for code in ErrorCode}
    fragments = {
        fragment
        for text in quoted()
        if text not in OF_OTHERS and text not in OF_THE_SYSTEM and text not in codes
        for fragment in text.split("...")
        if len(fragment.strip()) > 1
    }
    assert len(fragments) > 25
    missing = {one for one in fragments if not any(one.strip() in text for text in texts)}
    assert missing == set()


def test_each_quoted_message_of_other_clients_is_in_theirs() -> None:
    assert set(OF_OTHERS) <= set(quoted())
    for module in (aiokafka.client, kafka.net.manager):
        assert module.__file__ is not None
        assert "Unable to bootstrap from" in Path(module.__file__).read_text(encoding="utf-8")
    assert KafkaError._ALL_BROKERS_DOWN < 0
