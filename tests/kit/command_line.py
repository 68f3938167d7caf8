"""`fencepost ...` against a running broker, as an operator types it, within the test's process."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from fencepost.cli.main import cli
from tests.kit.broker_process import BrokerProcess

PATIENCE_SECONDS = "100"


def command(broker: BrokerProcess, *words: str) -> Result:
    """One command, as patient as a busy machine needs it."""
    return CliRunner().invoke(cli, [*words, *whom_to_ask(broker, *words)])


def whom_to_ask(broker: BrokerProcess, *words: str) -> list[str]:
    """The options that name a broker, and patience where the words say nothing of it."""
    patience = [] if "--timeout" in words else ["--timeout", PATIENCE_SECONDS]
    return ["--bootstrap", broker.address, *patience]


def command_json(broker: BrokerProcess, *words: str) -> Any:
    """One command's JSON."""
    result = command(broker, *words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def verify(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fencepost", "verify", str(directory), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
