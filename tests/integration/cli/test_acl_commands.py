"""`fencepost acl` against a running broker, as an operator types it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fencepost.cli.main import cli
from tests.architecture.project_files import ROOT
from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import command, command_json, whom_to_ask

SETTINGS = {"storage": "memory", "authorizer.class.name": "standard", "super.users": "User:ANONYMOUS"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with an authorizer."""
    with BrokerProcess(tmp_path_factory.mktemp("acl-commands"), settings=SETTINGS) as running:
        yield running


@pytest.fixture(autouse=True)
def no_rules_left(broker: BrokerProcess) -> Iterator[None]:
    """The tests share the broker."""
    yield
    for principal in {rule["principal"] for rule in command_json(broker, "acl", "list")}:
        command(broker, "acl", "remove", "--principal", principal)


def acl(broker: BrokerProcess, *words: str) -> Result:
    """One command."""
    return command(broker, "acl", *words)


def rules(broker: BrokerProcess, *words: str) -> list[tuple[str, ...]]:
    """The listed rules as (principal, permission, operation, resource, name, pattern, from)."""
    return [tuple(rule.values()) for rule in command_json(broker, "acl", "list", *words)]


def test_rules_are_added_listed_and_removed(broker: BrokerProcess) -> None:
    words = ("add", "--principal", "User:alice", "--topic", "orders", "--operation", "write")
    done = acl(broker, *words)
    assert (done.exit_code, done.stdout) == (0, "+ User:alice WRITE TOPIC orders, ALLOW from *\n1 rule added.\n")
    assert acl(broker, *words).stdout == "Nothing to add: the rules exist.\n"
    more = ("--deny", "--host", "10.0.0.1", "--host", "10.0.0.2", "--prefixed")
    assert acl(broker, "add", "--principal", "User:*", "--operation", "all", "--topic", "ord", *more).exit_code == 0
    assert acl(broker, "list").stdout.splitlines() == [
        "PRINCIPAL   PERMISSION  OPERATION  RESOURCE  NAME    PATTERN   FROM",
        "User:*      DENY        ALL        TOPIC     ord     PREFIXED  10.0.0.1",
        "User:*      DENY        ALL        TOPIC     ord     PREFIXED  10.0.0.2",
        "User:alice  ALLOW       WRITE      TOPIC     orders  LITERAL   *",
    ]
    assert len(rules(broker, "--topic", "orders")) == 3
    assert len(rules(broker, "--topic", "orders", "--exact")) == 1
    assert rules(broker, "--topic", "other") == []
    assert len(rules(broker, "--permission", "deny", "--host", "10.0.0.2")) == 1
    assert len(rules(broker, "--operation", "write")) == 1
    gone = acl(broker, "remove", "--topic", "ord", "--prefixed")
    assert gone.stdout.splitlines()[-1] == "2 rules removed."
    assert acl(broker, "remove", "--topic", "ord").stdout == "Nothing to remove: no rule matches.\n"
    assert acl(broker, "remove", "--principal", "User:alice", "--topic", "orders").exit_code == 0
    empty = acl(broker, "list")
    assert (empty.exit_code, empty.stdout, empty.stderr) == (0, "", "There are no rules.\n")


def test_producer_and_consumer_are_those_of_kafka_acls(broker: BrokerProcess) -> None:
    """AclCommand (kafka-acls.sh); tests/interop/java/test_acl_command.py compares the two."""
    producer = ("--principal", "User:p", "--producer", "--topic", "t", "--transactional-id", "x")
    consumer = ("--principal", "User:c", "--consumer", "--topic", "t", "--group", "g")
    assert acl(broker, "add", *producer).exit_code == 0
    assert acl(broker, "add", *consumer).exit_code == 0
    assert {one[2:5] for one in rules(broker, "--principal", "User:p")} == {
        ("WRITE", "TOPIC", "t"),
        ("DESCRIBE", "TOPIC", "t"),
        ("CREATE", "TOPIC", "t"),
        ("WRITE", "TRANSACTIONAL_ID", "x"),
        ("DESCRIBE", "TRANSACTIONAL_ID", "x"),
    }
    assert {one[2:5] for one in rules(broker, "--principal", "User:c")} == {
        ("READ", "TOPIC", "t"),
        ("DESCRIBE", "TOPIC", "t"),
        ("READ", "GROUP", "g"),
    }


def test_a_dry_run_changes_nothing(broker: BrokerProcess) -> None:
    words = ("--principal", "User:alice", "--cluster")
    dry = acl(broker, "add", *words, "--operation", "alter", "--dry-run")
    assert (dry.stdout.splitlines()[-1], dry.stderr) == ("1 rule to be added.", "Nothing was changed (--dry-run).\n")
    assert rules(broker) == []
    acl(broker, "add", *words, "--operation", "alter")
    shown = command_json(broker, "acl", "remove", *words, "--dry-run")
    assert [rule["name"] for rule in shown["removed"]] == ["kafka-cluster"]
    assert shown["dry_run"]
    assert len(rules(broker)) == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["add", "--principal", "alice", "--topic", "t", "--operation", "read"],
            "for example User:alice",
        ),
        (["add", "--principal", "User:a", "--operation", "read"], "name a resource: --topic"),
        (["add", "--principal", "User:a", "--topic", "t"], "--operation, --producer or --consumer"),
        (["add", "--principal", "User:a", "--producer", "--group", "g"], "--producer needs a --topic"),
        (
            ["add", "--principal", "User:a", "--consumer", "--topic", "t"],
            "--consumer needs a --topic and a --group; for readers without a group",
        ),
        (
            ["add", "--principal", "User:a", "--consumer", "--topic", "t", "--group", "g", "--deny"],
            "name each --operation",
        ),
        (["add", "--principal", "User:a", "--cluster", "--prefixed", "--operation", "alter"], "--prefixed needs names"),
        (["remove"], "without them all rules would go"),
        (["remove", "--principal", "User:a", "--prefixed"], "--prefixed needs the beginnings"),
    ],
)
def test_wrong_usage_is_explained(broker: BrokerProcess, words: list[str], expected: str) -> None:
    result = acl(broker, *words)
    assert result.exit_code == 2
    assert expected in result.stderr


def test_without_an_authorizer_the_command_says_what_to_set(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, settings={"storage": "memory"}) as open_broker:
        result = acl(open_broker, "list")
    assert result.exit_code == 1
    assert "SECURITY_DISABLED" in result.stderr
    assert "authorizer.class.name=standard" in result.stderr


PLAN = """
[[acls]]
principal = "User:alice"
operations = ["read", "write"]
topic = "planned"

[[acls]]
principal = "User:bob"
operations = ["read"]
topic = "planned"
state = "absent"
"""


def applied(broker: BrokerProcess, *words: str) -> Result:
    return CliRunner().invoke(cli, ["topic", "apply", "-", *words, *whom_to_ask(broker)], input=PLAN)


def test_a_plan_adds_and_removes_its_rules_and_keeps_the_others(broker: BrokerProcess) -> None:
    """Row D9: part by part; each is in the output. A broker with an authorizer gets no note."""
    for user, name in (("User:bob", "planned"), ("User:carol", "planned"), ("User:alice", "other")):
        acl(broker, "add", "--principal", user, "--operation", "read", "--topic", name)
    expected = [
        "+ acl User:alice READ TOPIC planned, ALLOW from *",
        "+ acl User:alice WRITE TOPIC planned, ALLOW from *",
        "- acl User:bob READ TOPIC planned, ALLOW from *",
    ]
    dry = applied(broker, "--dry-run")
    assert (dry.stdout.splitlines()[:3], dry.stderr) == (expected, "")
    assert len(rules(broker)) == 3
    done = applied(broker)
    assert (done.exit_code, done.stdout.splitlines()[:3], done.stderr) == (0, expected, "")
    names: list[Any] = [(rule[0], rule[2], rule[4]) for rule in rules(broker)]
    assert sorted(names) == [
        ("User:alice", "READ", "other"),
        ("User:alice", "READ", "planned"),
        ("User:alice", "WRITE", "planned"),
        ("User:carol", "READ", "planned"),
    ]
    assert applied(broker).stdout == "Nothing to change: the cluster matches the plan.\n"


def test_the_commands_of_the_document_print_what_it_says(broker: BrokerProcess) -> None:
    """docs/cli.md, "Access rules"."""
    section = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8").partition("\n## Access rules\n")[2]
    words, printed = re.findall(r"^```\n\$ fencepost acl (.*?)\n(.*?)^```", section, re.MULTILINE | re.DOTALL)[0]
    assert acl(broker, *words.split()).stdout == printed
