"""Kafka's own kafka-acls against our broker: what it adds is what `fencepost acl` adds, and it lists ours."""

from collections.abc import Iterator

import pytest

from tests.interop.java.kafka_jvm import KafkaJvm
from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import command

SETTINGS = {"authorizer.class.name": "standard", "super.users": "User:ANONYMOUS"}
CONVENIENCE = {
    "producer": ("--producer", "--topic", "t-p", "--transactional-id", "x"),
    "consumer": ("--consumer", "--topic", "t-c", "--group", "g"),
    "both": ("--producer", "--consumer", "--topic", "t-b", "--group", "g-b"),
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with an authorizer."""
    with BrokerProcess(tmp_path_factory.mktemp("kafka-acls"), settings=SETTINGS) as running:
        yield running


def kafka_acls(kafka: KafkaJvm, broker: BrokerProcess, *words: str) -> str:
    return kafka.tool("AclCommand", "--bootstrap-server", broker.address, *words)


@pytest.mark.parametrize("role", CONVENIENCE)
@pytest.mark.parametrize("prefixed", [False, True])
def test_what_kafka_acls_adds_for_a_role_is_what_we_add(
    kafka: KafkaJvm, broker: BrokerProcess, role: str, prefixed: bool
) -> None:
    pattern = ["--resource-pattern-type", "prefixed"] if prefixed else []
    kafka_acls(kafka, broker, "--add", "--allow-principal", f"User:{role}", *CONVENIENCE[role], *pattern)
    ours = ["--principal", f"User:{role}", *CONVENIENCE[role], *(["--prefixed"] if prefixed else [])]
    assert command(broker, "acl", "add", *ours).stdout == "Nothing to add: the rules exist.\n"
    assert command(broker, "acl", "remove", "--principal", f"User:{role}").exit_code == 0
    added = command(broker, "acl", "add", *ours).stdout.splitlines()[-1]
    shown = kafka_acls(kafka, broker, "--list", "--principal", f"User:{role}")
    assert added == f"{shown.count('permissionType=ALLOW')} rules added."
    command(broker, "acl", "remove", "--principal", f"User:{role}")


def test_kafka_acls_lists_and_removes_what_we_add(kafka: KafkaJvm, broker: BrokerProcess) -> None:
    words = ("--deny", "--operation", "alter-configs", "--cluster", "--host", "10.0.0.1")
    command(broker, "acl", "add", "--principal", "User:CN=a,O=b", *words)
    shown = kafka_acls(kafka, broker, "--list", "--cluster")
    assert "principal=User:CN=a,O=b, host=10.0.0.1, operation=ALTER_CONFIGS, permissionType=DENY" in shown
    kafka_acls(kafka, broker, "--remove", "--force", "--cluster")
    assert command(broker, "acl", "list").stderr == "There are no rules.\n"
