"""What a shell completes: in bash itself, and by processes that are asked as a shell asks them."""

import os
import resource
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from fencepost.cli.main import cli
from fencepost.testing import Broker
from tests.kit.broker_process import BrokerProcess
from tests.kit.wire import Wire

CPU_SECONDS_MAX = 0.3


@pytest.fixture(scope="module")
def names(broker: BrokerProcess) -> Mapping[str, str]:
    """An environment that names a broker with topics, groups and transactional ids."""
    with Wire(broker.connect()) as wire:
        for name in ("orders", "orders-old", "customers"):
            wire.create_topic(name)
        for group in ("billing", "bills", "bill$(ls)"):
            wire.commit_offsets(group, "orders", 0)
        for transactional_id in ("billing-1", "shipping"):
            wire.init_producer_id(transactional_id)
    return {"FENCEPOST_BOOTSTRAP": broker.address}


def run(*words: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
    return subprocess.run(
        words, env={**inherited, **environment}, capture_output=True, text=True, check=False, timeout=100
    )


def completed(line: str, environment: Mapping[str, str]) -> list[str]:
    """The words that complete the last one of the line; nothing may be printed besides."""
    words = line.split(" ")
    asked = {"_FENCEPOST_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = run(sys.executable, "-m", "fencepost", environment={**environment, **asked})
    assert (done.returncode, done.stderr) == (0, "")
    return [word.removeprefix("plain,") for word in done.stdout.split()]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fencepost topic des", ["describe"]),
        ("fencepost topic describe or", ["orders", "orders-old"]),
        ("fencepost topic describe orders or", ["orders-old"]),
        ("fencepost topic describe ", ["customers", "orders", "orders-old"]),
        ("fencepost consume orders-", ["orders-old"]),
        ("fencepost produce c", ["customers"]),
        ("fencepost config get topic c", ["customers"]),
        ("fencepost group describe bil", ["billing", "bills"]),
        ("fencepost consume orders --group bi", ["billing", "bills"]),
        ("fencepost txn abort ", ["billing-1", "shipping"]),
    ],
)
def test_names_of_the_broker_complete_a_word(names: Mapping[str, str], line: str, expected: list[str]) -> None:
    """A name that a shell would run, as `bill$(ls)`, is left out: any client may have chosen it."""
    assert completed(line, names) == expected


def test_the_broker_is_the_one_of_the_command_line(names: Mapping[str, str]) -> None:
    address = names["FENCEPOST_BOOTSTRAP"]
    assert completed(f"fencepost topic describe --bootstrap {address} cus", {}) == ["customers"]
    assert completed(f"fencepost topic describe -X bootstrap.servers={address} cus", {}) == ["customers"]


def test_a_completion_takes_little_time(names: Mapping[str, str]) -> None:
    """CPU time of the whole process, the least of three: the machine of the tests is busy with others."""
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert completed("fencepost topic describe or", names) == ["orders", "orders-old"]
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(spent) < CPU_SECONDS_MAX


def test_nothing_is_completed_and_nothing_printed_without_an_answer(tmp_path: Path) -> None:
    """No broker, a port that accepts and never answers, a file that does not exist, an address that is none."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert completed("fencepost topic describe or", {"FENCEPOST_BOOTSTRAP": f"127.0.0.1:{port}"}) == []
    assert completed("fencepost topic describe or", {"FENCEPOST_BOOTSTRAP": f"127.0.0.1:{port}"}) == []
    assert completed("fencepost topic describe or", {"FENCEPOST_BOOTSTRAP": "a:b:c"}) == []
    assert completed(f"fencepost topic describe --command-config {tmp_path}/none or", {}) == []


def test_a_broker_with_tls_and_logins_is_asked_by_the_client(tmp_path: Path) -> None:
    with Broker(tls=True, users={"admin": "secret"}) as broker:
        properties = broker.client_config("admin")
        for file, password in (("right", "secret"), ("wrong", "guessed")):
            lines = {**properties, "sasl.password": password}.items()
            (tmp_path / file).write_text("".join(f"{name}={value}\n" for name, value in lines))
        environment = {"FENCEPOST_COMMAND_CONFIG": str(tmp_path / "right")}
        created = run(sys.executable, "-m", "fencepost", "topic", "create", "orders", environment=environment)
        assert created.returncode == 0, created.stderr
        assert completed("fencepost topic describe or", environment) == ["orders"]
        assert completed(f"fencepost topic describe --command-config {tmp_path}/wrong or", {}) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script_that_asks_this_command(shell: str) -> None:
    script = CliRunner().invoke(cli, ["completion", shell])
    assert script.exit_code == 0
    assert f"_FENCEPOST_COMPLETE={shell}_complete" in script.stdout


def test_bash_completes_a_topic(names: Mapping[str, str], tmp_path: Path) -> None:
    """The script of `fencepost completion bash`, and a call of its function as bash makes it."""
    program = tmp_path / "fencepost"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m fencepost "$@"\n')
    program.chmod(0o755)
    lines = (
        'eval "$(fencepost completion bash)"; complete -p fencepost; COMP_WORDS=(fencepost topic describe ord);'
        ' COMP_CWORD=3; _fencepost_completion fencepost; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = run("bash", "--norc", "-c", lines, environment={**names, **path})
    assert done.stderr == ""
    assert done.stdout.split("\n") == [
        "complete -o nosort -F _fencepost_completion fencepost",
        "orders",
        "orders-old",
        "",
    ]
