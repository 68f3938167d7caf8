"""The plans that docs/cli.md and `topic apply --help` print, run as a reader runs them: elsewhere, from a file."""

import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

from click.testing import CliRunner

from fencepost.cli.main import cli
from tests.architecture.project_files import ROOT
from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import command

DOCUMENT = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8").partition("\n## A plan\n")[2]


PLAN, COMMAND, PRINTED = re.findall(
    r"^```toml\n(.*?)^```.*?^```\n\$ (fencepost topic apply .*?)\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL
)[0]


def apply(broker: BrokerProcess, directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The installed package, in a directory that is not the clone."""
    return subprocess.run(
        [sys.executable, "-m", "fencepost", "topic", "apply", *words],
        cwd=directory,
        env={**os.environ, "FENCEPOST_BOOTSTRAP": broker.address},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def test_the_plan_of_the_document_works_as_printed(broker: BrokerProcess, tmp_path: Path) -> None:
    (tmp_path / "topics.toml").write_text(PLAN)
    assert command(broker, "topic", "create", "orders-old", "-p", "3").exit_code == 0
    dry = apply(broker, tmp_path, *COMMAND.split()[3:])
    assert (dry.returncode, dry.stdout) == (0, PRINTED), dry.stderr
    done = apply(broker, tmp_path, "topics.toml")
    assert done.returncode == 0, done.stderr
    assert apply(broker, tmp_path, "topics.toml").stdout == "Nothing to change: the cluster matches the plan.\n"


def test_the_plan_of_the_help_works_as_printed(broker: BrokerProcess, tmp_path: Path) -> None:
    text = CliRunner().invoke(cli, ["topic", "apply", "--help"]).stdout
    plan = text[text.index("    [topics.orders]") : text.index("  Apache Kafka has no")]
    (tmp_path / "topics.toml").write_text(dedent(plan))
    dry = apply(broker, tmp_path, "topics.toml", "--dry-run")
    assert (dry.returncode, "Nothing was changed yet" in dry.stdout) == (0, True), dry.stdout + dry.stderr


def test_a_timeout_below_the_minimum_is_refused_with_the_minimum(broker: BrokerProcess, tmp_path: Path) -> None:
    (tmp_path / "low.toml").write_text("[groups.billing.configs]\nconsumer.session.timeout.ms = 30000\n")
    dry = apply(broker, tmp_path, "low.toml", "--dry-run")
    assert dry.returncode == 1
    assert "30000 is below 45000. Set 45000 or more" in dry.stderr
