"""Docker Compose with TLS, as docs/security.md prints it: its commands, run by bash, with the broker as a process."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost import AuthenticationError, AuthorizationError, FatalError, KafkaError, sync
from tests.kit.certificates import Authority
from tests.kit.compose import SECRETS, ComposeBroker
from tests.kit.documented_compose import add_spark, secure_broker

pytestmark = pytest.mark.long


def config_of(file: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in file.read_text().splitlines())


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compose")


@pytest.fixture(scope="module")
def broker(directory: Path) -> Iterator[ComposeBroker]:
    with secure_broker(directory) as broker:
        shown = add_spark(broker, directory)
        assert "spark" in shown, broker.log()
        yield broker


@pytest.fixture
def spark(broker: ComposeBroker, directory: Path) -> dict[str, str]:
    """The options of the user `spark`."""
    return config_of(directory / "secrets" / "spark.properties")


def test_the_secrets_are_in_a_directory_of_one_user(broker: ComposeBroker, directory: Path) -> None:
    assert (directory / "secrets").stat().st_mode & 0o777 == 0o700
    named = {file for word in broker.command() for file in re.findall(rf"{directory}/secrets/(\S+)", word)}
    assert named == {"broker.pem", "first-user.properties"}
    assert SECRETS not in " ".join(broker.command())


@pytest.mark.parametrize("listener", ["CONTAINERS", "SASL_SSL"])
def test_a_user_does_what_its_rule_allows(broker: ComposeBroker, spark: dict[str, str], listener: str) -> None:
    spark["bootstrap.servers"] = f"localhost:{broker.listeners[listener][1]}"
    with sync.Client.from_config(spark) as kafka:
        with kafka.admin() as admin:
            admin.create_topics("events", if_not_exists=True)
            assert list(admin.describe_topics("events")) == ["events"]
        with kafka.producer() as producer, pytest.raises(AuthorizationError):
            producer.send("events", b"not allowed")


def refused(config: dict[str, str], **changed: str | None) -> KafkaError:
    """What a client gets that connects with these options."""
    options = {**config, **{name.replace("_", "."): value for name, value in changed.items()}}
    given = {name: value for name, value in options.items() if value is not None}
    with (
        pytest.raises(KafkaError) as caught,
        sync.Client.from_config({**given, "default.api.timeout.ms": "3000"}) as kafka,
        kafka.admin() as admin,
    ):
        admin.list_topics()
    return caught.value


def test_a_client_without_the_password_is_refused(broker: ComposeBroker, spark: dict[str, str]) -> None:
    assert isinstance(refused(spark, sasl_password="guessed"), AuthenticationError)
    without_login = refused(spark, security_protocol="SSL", sasl_mechanism=None, sasl_username=None, sasl_password=None)
    assert without_login


def test_a_client_without_tls_is_refused(broker: ComposeBroker, spark: dict[str, str]) -> None:
    assert "TLS" in str(refused(spark, security_protocol="SASL_PLAINTEXT", ssl_ca_location=None))


def test_a_client_without_the_certificate_does_not_trust_the_broker(
    broker: ComposeBroker, spark: dict[str, str], tmp_path: Path
) -> None:
    other = Authority(tmp_path, "other").ca
    assert isinstance(refused(spark, ssl_ca_location=str(other)), FatalError)
