"""Java's tools log in by SASL and use TLS, on fencepost and on Apache Kafka alike."""

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


def tls_options(addresses: Addresses, listener: str, file: Path) -> tuple[str, str]:
    """The address of a listener, and the file with what the tools need there."""
    lines = [
        "security.protocol=SSL",
        "default.api.timeout.ms=60000",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={addresses.authority.ca}",
    ]
    if listener == "mutual":
        own = file.with_suffix(".pem")
        own.write_text(addresses.own.both)
        lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={own}"]
    if listener == "both":
        jaas = f'{SCRAM_MODULE} username="{USER}" password="{PASSWORD}";'
        lines += ["security.protocol=SASL_SSL", "sasl.mechanism=SCRAM-SHA-512", f"sasl.jaas.config={jaas}"]
    file.write_text("\n".join(lines))
    return getattr(addresses, listener), str(file)


@pytest.mark.parametrize("listener", ["tls", "mutual", "both"])
def test_the_console_tools_use_tls(kafka: KafkaJvm, addresses: Addresses, listener: str, tmp_path: Path) -> None:
    """One record by the producer, and the same by the consumer."""
    address, file = tls_options(addresses, listener, tmp_path / "client.properties")
    where = ("--bootstrap-server", address, "--topic", f"console-{listener}", "--command-config", file)
    system, streams = kafka.jvm.java.lang.System, kafka.jvm.java.io
    before = getattr(system, "in")
    system.setIn(streams.ByteArrayInputStream(f"through {listener}\n".encode()))
    try:
        kafka.tool("ConsoleProducer", *where)
    finally:
        system.setIn(before)
    printed = kafka.tool("ConsoleConsumer", *where, "--from-beginning", "--max-messages", "1", errors_too=False)
    assert f"through {listener}" in printed


@pytest.mark.parametrize(
    ("listener", "left_out", "says"),
    [
        ("mutual", "ssl.keystore", "post-handshake messages|SSL handshake failed"),
        ("tls", "ssl.truststore", "SSL handshake failed"),
    ],
)
def test_kafka_topics_is_refused_by_tls(
    kafka: KafkaJvm, addresses: Addresses, listener: str, left_out: str, says: str, tmp_path: Path
) -> None:
    """Without a certificate of its own, and without trust in the broker's."""
    file = tmp_path / "client.properties"
    address, _ = tls_options(addresses, listener, file)
    file.write_text("\n".join(line for line in file.read_text().splitlines() if not line.startswith(left_out)))
    with pytest.raises(ToolFailed, match=f"Error while executing topic command : .*({says})"):
        kafka.tool("TopicCommand", "--bootstrap-server", address, "--command-config", str(file), "--list")
