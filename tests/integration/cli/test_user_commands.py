"""`fencepost user` against a running broker, as an operator types it, and the first user of a broker."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fencepost.cli.main import cli
from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import command, command_json, whom_to_ask
from tests.kit.sasl_broker import connect, scram_login

BOTH = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": ",".join(BOTH),
    "connection.failed.authentication.delay.ms": "0",
}
FIRST = {"FENCEPOST_FIRST_USER": "root", "FENCEPOST_FIRST_PASSWORD": "first-hunter2"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    work_dir = tmp_path_factory.mktemp("users")
    listen = ["--listen", "SASL://127.0.0.1:0"]
    with BrokerProcess(
        work_dir, data_dir=work_dir / "data", settings=SETTINGS, arguments=listen, environment=FIRST
    ) as running:
        yield running
        assert "hunter2" not in running.log()


def typed(broker: BrokerProcess, *words: str, text: str) -> Result:
    """One command with this standard input."""
    return CliRunner().invoke(cli, [*words, *whom_to_ask(broker, *words)], input=text)


def can_log_in(broker: BrokerProcess, user: str, password: str, mechanism: str = BOTH[1]) -> bool:
    with connect(broker) as wire:
        return scram_login(wire, mechanism, user, password) == 0


def listed(broker: BrokerProcess, user: str) -> Any:
    found = {one["user"]: one["credentials"] for one in command_json(broker, "user", "list")}
    return found.get(user)


def test_a_user_is_added_changed_and_deleted(broker: BrokerProcess, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("one-hunter2\nnot this\n")
    added = command(broker, "user", "add", "alice", "--password-file", str(file))
    assert (added.exit_code, added.stdout) == (0, "Added the user alice (SCRAM-SHA-256, SCRAM-SHA-512).\n"), (
        added.output
    )
    assert listed(broker, "alice") == [{"mechanism": one, "iterations": 8192} for one in BOTH]
    assert all(can_log_in(broker, "alice", "one-hunter2", mechanism) for mechanism in BOTH)
    assert not can_log_in(broker, "alice", "not this")
    changed = typed(broker, "user", "set-password", "alice", "--password-file", "-", text="two-hunter2\r\n")
    assert (changed.exit_code, changed.stdout[:31]) == (0, "Changed the password of alice ("), changed.output
    assert can_log_in(broker, "alice", "two-hunter2")
    assert not can_log_in(broker, "alice", "one-hunter2")
    partly = command_json(broker, "user", "delete", "alice", "--mechanism", BOTH[0])
    assert partly == {"user": "alice", "mechanisms": BOTH[:1]}
    assert [one["mechanism"] for one in listed(broker, "alice")] == BOTH[1:]
    deleted = command(broker, "user", "delete", "alice")
    assert deleted.stdout == "Deleted alice (SCRAM-SHA-512).\n"
    assert "acl remove --principal User:alice" in deleted.stderr
    assert listed(broker, "alice") is None
    assert not can_log_in(broker, "alice", "two-hunter2")


def test_a_mechanism_and_iterations_of_choice(broker: BrokerProcess) -> None:
    words = ("user", "add", "app", "--mechanism", BOTH[0], "--iterations", "4096", "--password-file", "-")
    assert typed(broker, *words, text="hunter2").exit_code == 0
    assert listed(broker, "app") == [{"mechanism": BOTH[0], "iterations": 4096}]
    text = command(broker, "user", "list", "app")
    assert re.search(r"^app +SCRAM-SHA-256 +4096$", text.stdout, re.MULTILINE), text.output
    assert text.stderr == "1 user\n"


@pytest.mark.parametrize(
    ("words", "text", "code", "says"),
    [
        (("set-password", "nemo", "--password-file", "-"), "x", 1, "the user 'nemo' does not exist"),
        (("delete", "nemo"), "", 1, "the user 'nemo' does not exist"),
        (("list", "nemo"), "", 1, "nemo"),
        (("add", "root", "--password-file", "-"), "x", 1, "the user 'root' exists already"),
        (("add", "new", "--password-file", "-"), "", 1, "standard input has no password in its first line"),
        (("add", "new"), "hunter2", 1, "standard input is not a terminal"),
        (("add", "", "--password-file", "-"), "x", 1, "Username must not be empty"),
        (("add", "new", "--iterations", "4095"), "", 2, "4096"),
        (("add", "new", "hunter2"), "", 2, "unexpected extra argument"),
    ],
)
def test_what_cannot_be_done_is_explained(
    broker: BrokerProcess, words: tuple[str, ...], text: str, code: int, says: str
) -> None:
    result = typed(broker, "user", *words, text=text)
    assert (result.exit_code, says in result.stderr) == (code, True), result.output


def test_the_password_is_asked_for_at_a_terminal(broker: BrokerProcess) -> None:
    """It is not echoed, and must be typed twice."""
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "fencepost", "user", "add", "typist", "--bootstrap", broker.address]
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True) as process:
        os.close(theirs)
        shown = read_until(ours, "Password of typist: ")
        os.write(ours, b"typed-hunter2\n")
        shown += read_until(ours, "confirmation: ")
        os.write(ours, b"typed-hunter2\n")
        shown += read_until(ours, "Added the user")
        assert process.wait(100) == 0
    os.close(ours)
    assert "hunter2" not in shown
    assert can_log_in(broker, "typist", "typed-hunter2")


def read_until(descriptor: int, text: str) -> str:
    shown, deadline = "", time.monotonic() + 100
    while text not in shown:
        assert select.select([descriptor], [], [], deadline - time.monotonic())[0], shown
        shown += os.read(descriptor, 4096).decode()
    return shown


def test_the_first_user_comes_from_the_environment_once(broker: BrokerProcess) -> None:
    assert can_log_in(broker, "root", "first-hunter2", BOTH[0])
    typed(broker, "user", "set-password", "root", "--password-file", "-", text="changed-hunter2")
    broker.restart()
    assert can_log_in(broker, "root", "changed-hunter2")
    assert not can_log_in(broker, "root", "first-hunter2")
    assert broker.log().count("first.user has no effect: there are users already") == 1
    assert "no client can log in" not in broker.log()
    [setting] = command_json(broker, "config", "get", "broker", "1", "first.password")
    assert setting["value"] is None


def test_a_broker_without_users_says_that_no_client_can_log_in(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, settings=SETTINGS, arguments=["--listen", "SASL://127.0.0.1:0"]) as running:
        assert "WARNING no client can log in: there is no SCRAM user" in running.log()
        assert "start again listener=SASL\n" in running.log()
