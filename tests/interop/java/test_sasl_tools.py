"""Java's tools log in by SASL, on fencepost and on Apache Kafka alike."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.java.kafka_jvm import KafkaJvm, ToolFailed
from tests.interop.java.secured_kafka import PLAIN_MODULE
from tests.interop.sasl_brokers import PASSWORD, REFUSALS, USER, Addresses, broker

SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
LOGIN_HANDLER = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"
)
WITH_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module", params=["fencepost", "kafka"])
def addresses(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    with broker(request.param, tmp_path_factory.mktemp("sasl-tools")) as found:
        yield found


def topics(kafka: KafkaJvm, address: str, mechanism: str, password: str, file: Path) -> str:
    """What kafka-topics --list prints with this login."""
    module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
    jaas = f'{module} username="{USER}" password="{password}";'
    lines = ["security.protocol=SASL_PLAINTEXT", f"sasl.mechanism={mechanism}", "default.api.timeout.ms=60000"]
    if mechanism == "OAUTHBEARER":
        jaas = f'{OAUTH_MODULE} unsecuredLoginStringClaim_sub="{USER}";'
        lines.append(f"sasl.login.callback.handler.class={LOGIN_HANDLER}")
    file.write_text("\n".join([*lines, f"sasl.jaas.config={jaas}"]))
    words = ("--bootstrap-server", address, "--command-config", str(file), "--list")
    return kafka.tool("TopicCommand", *words)


@pytest.mark.parametrize("mechanism", [*WITH_PASSWORD, "OAUTHBEARER"])
def test_kafka_topics_logs_in(kafka: KafkaJvm, addresses: Addresses, mechanism: str, tmp_path: Path) -> None:
    assert "xception" not in topics(kafka, addresses.sasl, mechanism, PASSWORD, tmp_path / "client.properties")


@pytest.mark.parametrize("mechanism", WITH_PASSWORD)
def test_kafka_topics_is_refused(kafka: KafkaJvm, addresses: Addresses, mechanism: str, tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="Error while executing topic command") as refused:
        topics(kafka, addresses.sasl, mechanism, "wrong", tmp_path / "client.properties")
    assert REFUSALS[mechanism] in str(refused.value)
