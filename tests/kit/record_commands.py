"""`fencepost produce` and `consume`, as users type them."""

import subprocess
import sys
import uuid

from click.testing import CliRunner, Result

from fencepost.cli.main import cli
from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import command, whom_to_ask

SECONDS = 100
Broker = BrokerProcess


def produce(broker: Broker, *words: str, text: str | bytes = "") -> Result:
    """One command with this standard input."""
    return CliRunner().invoke(cli, ["produce", *words, *whom_to_ask(broker, *words)], input=text)


def consume(broker: Broker, *words: str) -> str:
    """What is written to standard output, up to the end that the topic has now."""
    done = command(broker, "consume", *words, "-e")
    assert done.exit_code == 0, done.output
    return done.stdout


def topic(broker: Broker, partitions: int = 1, *settings: str) -> str:
    name = f"t{uuid.uuid4().hex}"
    made = command(broker, "topic", "create", name, "--partitions", str(partitions), *settings)
    assert made.exit_code == 0, made.output
    return name


def process(broker: Broker, *words: str, **more: object) -> "subprocess.Popen[bytes]":
    """A process of its own, for what standard streams and signals do."""
    line = [sys.executable, "-m", "fencepost", *words, *whom_to_ask(broker, *words)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)  # type: ignore[call-overload, no-any-return]
