"""`fencepost ...` against a running broker, as an operator types it, within the test's process."""

import json
from typing import Any

from click.testing import CliRunner, Result

from fencepost.cli.main import cli
from tests.kit.broker_process import BrokerProcess


def command(broker: BrokerProcess, *words: str) -> Result:
    """One command."""
    return CliRunner().invoke(cli, [*words, "--bootstrap", f"{broker.host}:{broker.port}"])


def command_json(broker: BrokerProcess, *words: str) -> Any:
    """One command's JSON."""
    result = command(broker, *words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)
