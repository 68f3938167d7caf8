"""Every group of commands against a broker with TLS, logins and rules, by --command-config."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fencepost.cli.main import cli
from fencepost.testing import Broker

USERS = {"admin": "admin-secret", "alice": "alice-secret"}
COMMANDS = """
topic create orders -p 2
topic list
topic alter orders --set retention.ms=86400000
topic offsets orders
user add bob --password-file PASSWORD
user list
user set-password bob --password-file PASSWORD
user delete bob
acl add --principal User:alice --producer --topic orders --transactional-id etl
acl list
acl why-denied --principal User:alice --operation write --topic orders
acl remove --principal User:alice
quota set --user alice producer_byte_rate=1000000
quota list
quota remove --user alice producer_byte_rate
group list
group lag --all
txn list
txn why orders:0
txn hanging
config get topic orders
config set broker 1 log.cleaner.threads=2
cluster describe
cluster brokers
"""

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"authorizer.class.name": "standard", "super.users": "User:admin"}, tls=True, users=USERS) as broker:
        yield broker


@pytest.fixture(scope="module")
def run(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Run:
    directory = tmp_path_factory.mktemp("config")
    (directory / "password").write_text("bob-secret\n")
    for user in USERS:
        properties = broker.client_config(user)
        (directory / user).write_text("".join(f"{name}={value}\n" for name, value in properties.items()))

    def run(words: str, user: str = "admin") -> Result:
        arguments = words.replace("PASSWORD", str(directory / "password")).split()
        return CliRunner().invoke(cli, [*arguments, "--command-config", str(directory / user), "--timeout", "60"])

    return run


def test_every_group_of_commands_works(run: Run) -> None:
    for words in COMMANDS.strip().splitlines():
        done = run(words)
        assert done.exit_code == 0, f"{words}: {done.output}"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("user list", "CLUSTER_AUTHORIZATION_FAILED"),
        ("acl list", "CLUSTER_AUTHORIZATION_FAILED"),
        ("quota list", "CLUSTER_AUTHORIZATION_FAILED"),
        ("topic create mine", "TOPIC_AUTHORIZATION_FAILED"),
        ("group describe billing", "GROUP_AUTHORIZATION_FAILED"),
        ("txn describe etl", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
    ],
)
def test_a_user_without_the_right_is_refused(run: Run, words: str, error: str) -> None:
    refused = run(f"{words} --json", "alice")
    assert (refused.exit_code, f'"error": "{error}"' in refused.stderr) == (1, True), refused.output


def test_a_wrong_password_is_refused(broker: Broker, tmp_path: Path) -> None:
    properties = {**broker.client_config(), "sasl.password": "guessed"}
    (tmp_path / "wrong").write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    refused = CliRunner().invoke(cli, ["topic", "list", "--command-config", str(tmp_path / "wrong")])
    assert refused.exit_code == 1
    assert "Authentication failed" in refused.stderr
    assert f"the security settings come from {tmp_path / 'wrong'}" in refused.stderr


def test_without_tls_the_error_says_what_is_missing(broker: Broker) -> None:
    refused = CliRunner().invoke(cli, ["topic", "list", "--bootstrap", broker.bootstrap, "--timeout", "20"])
    assert refused.exit_code == 1
    assert "this listener uses TLS" in refused.stderr
