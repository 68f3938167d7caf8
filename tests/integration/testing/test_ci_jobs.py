"""Kafka in a job: the steps of the GitHub action and of the lines for GitLab, run as shell commands."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from fencepost import sync

ROOT = Path(__file__).parents[3]
ACTION = yaml.safe_load((ROOT / ".github/actions/kafka/action.yml").read_text(encoding="utf-8"))
DOCUMENT = (ROOT / "docs/testing.md").read_text(encoding="utf-8")
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        found: int = sock.getsockname()[1]
    return found


@pytest.fixture
def environment(tmp_path: Path, port: int) -> Iterator[dict[str, str]]:
    """What a runner gives to a step. The brokers that it leaves behind end with the test, as with the job."""
    bin_directory = str(Path(sys.executable).parent)
    yield {
        **{name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")},
        "PATH": f"{bin_directory}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_ENV": str(tmp_path / "env"),
        "PORT": str(port),
        "SETTINGS": "",
    }
    for process in psutil.process_iter(["cmdline"]):
        if f"127.0.0.1:{port}" in (process.info["cmdline"] or []):
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def run(script: str, cwd: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """As a runner runs a step with `shell: bash`."""
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60, check=False)


def partitions_of_a_new_topic(port: int) -> int:
    with sync.Client(f"127.0.0.1:{port}") as client, client.producer() as producer, client.admin() as admin:
        producer.send("orders", b"one")
        producer.flush()
        return len(admin.describe_topics(["orders"])["orders"].partitions)


def test_the_action_starts_a_broker(tmp_path: Path, port: int, environment: dict[str, str]) -> None:
    environment["SETTINGS"] = "num.partitions=3\nauto.create.topics.enable=true\n"
    began = time.monotonic()
    done = run(STEPS["Start"]["run"], tmp_path, environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert time.monotonic() - began < 30
    assert partitions_of_a_new_topic(port) == 3
    assert (tmp_path / "output").read_text() == f"bootstrap=127.0.0.1:{port}\n"
    assert (tmp_path / "env").read_text() == f"KAFKA_BOOTSTRAP_SERVERS=127.0.0.1:{port}\n"


def test_a_broker_that_does_not_start_fails_the_step_and_says_why(tmp_path: Path, environment: dict[str, str]) -> None:
    environment["SETTINGS"] = "num.partitons=3"
    done = run(STEPS["Start"]["run"], tmp_path, environment)
    assert done.returncode == 1
    assert "unknown setting num.partitons" in done.stdout


def test_the_action_hands_its_inputs_to_the_steps() -> None:
    """The expressions that a runner evaluates, which no shell does."""
    assert STEPS["Start"]["env"] == {"PORT": "${{ inputs.port }}", "SETTINGS": "${{ inputs.settings }}"}
    assert STEPS["Install"]["env"] == {"PACKAGE": "${{ inputs.package }}"}
    assert STEPS["Install"]["if"] == "inputs.package != ''"
    assert set(ACTION["inputs"]) == {"port", "settings", "package"}
    assert ACTION["outputs"]["bootstrap"]["value"] == "${{ steps.start.outputs.bootstrap }}"
    assert {step["shell"] for step in STEPS.values()} == {"bash"}
    default = ACTION["inputs"]["package"]["default"].replace(
        "${{ github.action_path }}", str(ROOT / ".github/actions/kafka")
    )
    folder, extras = default.split("[")
    assert (Path(folder) / "pyproject.toml").samefile(ROOT / "pyproject.toml")
    assert extras == "broker]", "the client alone has no command"


def snippet(language_hint: str) -> Any:
    """The YAML example of the document that has these words."""
    [block] = [
        one for one in re.findall(r"^```yaml\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL) if language_hint in one
    ]
    return yaml.safe_load(block)


def test_the_github_example_names_the_action_and_its_inputs() -> None:
    steps = snippet("uses:")["jobs"]["test"]["steps"]
    [used] = [step for step in steps if "actions/kafka" in step.get("uses", "")]
    assert used["uses"].partition("/fencepost/")[2].partition("@")[0] == ".github/actions/kafka"
    assert set(used.get("with", {})) <= set(ACTION["inputs"])


def test_the_gitlab_example_starts_a_broker(tmp_path: Path, port: int, environment: dict[str, str]) -> None:
    lines = snippet("before_script")["test"]["before_script"]
    script = "\n".join(line for line in lines if not line.startswith("pip install")).replace("9092", str(port))
    done = run(script, tmp_path, environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert partitions_of_a_new_topic(port) == 1
