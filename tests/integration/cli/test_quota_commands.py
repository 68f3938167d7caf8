"""`fencepost quota` against a running broker, as an operator types it."""

from typing import Any

import pytest
from click.testing import Result

from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import command, command_json


def quota(broker: BrokerProcess, *words: str) -> Result:
    """One command."""
    return command(broker, "quota", *words)


def quotas(broker: BrokerProcess, *words: str) -> list[Any]:
    """The listed quotas."""
    found: list[Any] = command_json(broker, "quota", "list", *words)
    return found


def test_quotas_are_set_listed_and_removed(broker: BrokerProcess) -> None:
    done = quota(broker, "set", "--user", "alice", "producer_byte_rate=1000000", "request_percentage=12.5")
    assert (done.exit_code, done.stdout.splitlines()) == (
        0,
        [
            "WHOSE       SETTING             BEFORE   AFTER",
            "user alice  producer_byte_rate  not set  1000000",
            "user alice  request_percentage  not set  12.5",
        ],
    )
    pair = ("--user", "alice", "--default-client-id")
    assert quota(broker, "set", *pair, "consumer_byte_rate=5").exit_code == 0
    assert quota(broker, "set", "--default-ip", "connection_creation_rate=20").exit_code == 0
    assert quota(broker, "list").stdout.splitlines() == [
        "USER   CLIENT ID  ADDRESS    QUOTA                     LIMIT",
        "-      -          (default)  connection_creation_rate  20",
        "alice  -          -          producer_byte_rate        1000000",
        "alice  -          -          request_percentage        12.5",
        "alice  (default)  -          consumer_byte_rate        5",
    ]
    own = {"entity": {"user": "alice"}, "quotas": {"producer_byte_rate": 1e6, "request_percentage": 12.5}}
    of_pair = {"entity": {"user": "alice", "client-id": None}, "quotas": {"consumer_byte_rate": 5.0}}
    assert quotas(broker, "--user", "alice") == [own, of_pair]
    assert quotas(broker, *pair) == [of_pair]
    assert quota(broker, "remove", "--user", "alice", "producer_byte_rate").exit_code == 0
    assert quotas(broker, "--user", "alice")[0]["quotas"] == {"request_percentage": 12.5}
    for entity in (("--user", "alice"), pair, ("--default-ip",)):
        assert quota(broker, "remove", *entity).exit_code == 0
    assert quotas(broker) == []


def test_a_dry_run_changes_nothing(broker: BrokerProcess) -> None:
    done = quota(broker, "set", "--client-id", "import", "producer_byte_rate=10", "--dry-run")
    assert (done.exit_code, done.stderr) == (0, "Nothing was changed (--dry-run).\n")
    assert quotas(broker) == []


@pytest.mark.parametrize(
    ("words", "exit_code", "why"),
    [
        (("set", "producer_byte_rate=1"), 2, "name a user, a client id or an address; see fencepost quota --help"),
        (("set", "--user", "a", "--default-user", "x=1"), 2, "give either --user or --default-user"),
        (("set", "--user", "a", "--ip", "::1", "x=1"), 2, "a quota of an address has no user and no client id"),
        (("set", "--user", "a", "producer_byte_rate=much"), 2, "'much' is not a number; write producer_byte_rate=NUM"),
        (("set", "--user", "a", "speed=1"), 1, "Invalid configuration key speed (INVALID_REQUEST)"),
        (("set", "--user", "a", "producer_byte_rate=0"), 1, "Quota producer_byte_rate must be greater than 0"),
        (("set", "--ip", "here", "connection_creation_rate=1"), 1, "here is not a valid IP address"),
        (("remove", "--user", "a"), 1, "user a has no quota"),
    ],
)
def test_wrong_commands_say_what_is_wrong(
    broker: BrokerProcess, words: tuple[str, ...], exit_code: int, why: str
) -> None:
    done = quota(broker, *words)
    assert done.exit_code == exit_code
    assert why in done.stderr
