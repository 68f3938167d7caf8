"""`fencepost acl why-denied` against a running broker: the rule that refused, or the missing one, and the remedy."""

import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import command, command_json

pytestmark = pytest.mark.long
SETTINGS = {"authorizer.class.name": "standard", "super.users": "User:ANONYMOUS;User:root"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("why-denied"), settings=SETTINGS) as running:
        yield running


def explained(broker: BrokerProcess, *words: str) -> str:
    done = command(broker, "acl", "why-denied", *words)
    assert done.exit_code == 0, done.output
    return str(done.stdout)


def run_the_remedy(broker: BrokerProcess, text: str) -> None:
    """Run the command that the last line names."""
    words = shlex.split(text.splitlines()[-1].partition(": ")[2])
    assert words[0] == "fencepost"
    assert f"{broker.address}" in words
    words = [word for word in words[1:] if word not in ("--bootstrap", broker.address)]
    assert command(broker, *words).exit_code == 0


def test_a_missing_rule_is_named_with_the_command_that_adds_it(broker: BrokerProcess) -> None:
    asked = ("--principal", "User:alice", "--operation", "write", "--topic", "order s")
    first = explained(broker, *asked)
    assert first.splitlines()[:2] == ["DENIED: User:alice may not WRITE on TOPIC order s.", "No rule allows it."]
    run_the_remedy(broker, first)
    assert explained(broker, *asked).splitlines() == [
        "ALLOWED: User:alice may WRITE on TOPIC order s.",
        "This rule decides: User:alice WRITE TOPIC order s, ALLOW from *",
    ]
    other = explained(broker, "--principal", "User:bob", "--operation", "write", "--topic", "order s")
    assert "Rules about the resource, for other principals, operations or addresses:" in other
    assert "  User:alice WRITE TOPIC order s, ALLOW from *" in other


def test_the_rule_that_denies_is_named_with_the_command_that_removes_it(broker: BrokerProcess) -> None:
    add = ("acl", "add", "--topic", "pay", "--prefixed")
    assert command(broker, *add, "--principal", "User:eve", "--operation", "read").exit_code == 0
    denied = ("--principal", "User:*", "--operation", "all", "--deny", "--host", "10.0.0.7")
    assert command(broker, *add, *denied).exit_code == 0
    asked = ("--principal", "User:eve", "--operation", "read", "--topic", "payments")
    assert explained(broker, *asked).startswith("ALLOWED: User:eve may READ on TOPIC payments.")
    text = explained(broker, *asked, "--host", "10.0.0.7")
    assert text.splitlines()[:2] == [
        "DENIED: User:eve from 10.0.0.7 may not READ on TOPIC payments.",
        "This rule decides: User:* ALL TOPIC pay (PREFIXED), DENY from 10.0.0.7",
    ]
    run_the_remedy(broker, text)
    assert explained(broker, *asked, "--host", "10.0.0.7").startswith("ALLOWED")


def test_a_right_on_the_cluster_and_a_super_user(broker: BrokerProcess) -> None:
    asked = ("--operation", "cluster-action", "--cluster")
    answer: dict[str, Any] = command_json(broker, "acl", "why-denied", "--principal", "User:bob", *asked)
    assert (answer["allowed"], answer["rule"]) == (False, None)
    assert "--principal User:bob --cluster --operation cluster-action" in answer["command"]
    answer = command_json(broker, "acl", "why-denied", "--principal", "User:root", *asked)
    assert (answer["allowed"], answer["reason"], answer["command"]) == (True, "super user", None)


def test_one_resource_must_be_named(broker: BrokerProcess) -> None:
    done = command(broker, "acl", "why-denied", "--principal", "User:bob", "--operation", "read")
    assert (done.exit_code, "name one resource" in done.output) == (2, True)


def test_without_an_authorizer_every_client_may_do_everything(tmp_path_factory: pytest.TempPathFactory) -> None:
    with BrokerProcess(tmp_path_factory.mktemp("open")) as broker:
        text = explained(broker, "--principal", "User:bob", "--operation", "read", "--topic", "orders")
    assert text.startswith("ALLOWED: the broker has no authorizer")
