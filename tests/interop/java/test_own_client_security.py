"""Our client and a broker, Kafka or ours, trust each other in every way there is, or the client says what is wrong."""

import base64
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

import fencepost
from fencepost import AuthenticationError
from fencepost.client.core.sasl import OAuthToken
from fencepost.client.network import authentication
from tests.interop.conftest import started
from tests.interop.java.real_kafka import RealKafka
from tests.interop.java.secured_kafka import (
    LISTENERS,
    OTHER_PASSWORD,
    PASSWORD,
    SCRAM_MODULE,
    SESSION_MS,
    USER,
    settings,
)
from tests.kit.certificates import Authority, Signed
from tests.kit.secured_broker import SHA_256_PASSWORD, SecuredBroker

SECONDS = 100
PATIENCE_S = 10 * SECONDS
"""What a client would go on trying for: whatever is over within SECONDS was not tried again."""
EARLY = 0.25  # of less than a second Kafka takes none
"""When a session is renewed, as a share of its life: long before its end, so that a slow machine is no matter."""


class Secure:
    """A broker with a listener of each kind, and who may use it."""

    def __init__(self, kafka: RealKafka | SecuredBroker, authority: Authority, own: Signed) -> None:
        self.kafka = kafka
        self.authority = authority
        self.own = own

    def client(self, listener: str, protocol: str, **options: Any) -> fencepost.Client:
        if protocol.endswith("ssl") and not {"ssl_ca_pem", "ssl_context", "ssl_verify"} & set(options):
            options.setdefault("ssl_cafile", str(self.authority.ca))
        return fencepost.Client(
            self.kafka.address_of(listener),
            security_protocol=protocol,
            default_api_timeout=PATIENCE_S,
            **options,
        )


@pytest.fixture(scope="module", params=["kafka", "fencepost"])
def secure(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    where = tmp_path_factory.mktemp("secure")
    authority = Authority(where / "pki")
    broker = authority.sign("broker", hosts=["localhost"], addresses=["127.0.0.1"])
    own = authority.sign("client", password="key-secret")
    if request.param == "fencepost":
        with SecuredBroker(where / "fencepost", authority, broker) as ours:
            ours.add_users_and_rules()
            yield Secure(ours, authority, own)
        return
    scram = [
        word
        for mechanism, password in (("SCRAM-SHA-256", SHA_256_PASSWORD), ("SCRAM-SHA-512", OTHER_PASSWORD))
        for word in ("--add-scram", f"{mechanism}=[name={USER},password={password}]")
    ]
    kafka = RealKafka(
        where / "kafka", settings=settings(authority, broker), listeners=LISTENERS, format_arguments=scram
    )
    with started(kafka):
        yield Secure(kafka, authority, own)


async def works(client: fencepost.Client, name: str) -> None:
    """Write and read one large record and some small ones."""
    values = [b"%d" % number for number in range(100)] + [bytes(900_000)]
    with trio.fail_after(SECONDS):
        async with client as kafka:
            async with kafka.producer() as producer, producer.batch() as batch:
                for value in values:
                    await batch.send(name, value, partition=0)
            async with kafka.consumer(name, group=None, isolation="read_uncommitted") as consumer:
                read = []
                async for record in consumer:
                    read.append(record.value)
                    if len(read) == len(values):
                        break
            assert read == values


async def refused(client: fencepost.Client, match: str) -> AuthenticationError:
    """It is told at once, not after the deadline, and every role of the client is told the same."""
    with trio.fail_after(SECONDS):
        async with client as kafka, kafka.admin() as admin:
            with pytest.raises(AuthenticationError, match=match) as told:
                await admin.list_topics()
            with pytest.raises(AuthenticationError):
                async with kafka.producer() as producer:
                    await producer.send("t", b"x")
            with pytest.raises(AuthenticationError):
                async with kafka.consumer("t", group="g") as consumer:
                    await anext(aiter(consumer))
            with pytest.raises(AuthenticationError):
                async with kafka.transactional_producer("x"):
                    pass
    return told.value


def jws(subject: str = USER, seconds: float = 60, **claims: Any) -> str:
    """A token without a signature, as Kafka's handler for tests takes it."""

    def part(value: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    now = time.time()
    return f"{part({'alg': 'none'})}.{part({'sub': subject, 'iat': now, 'exp': now + seconds, **claims})}."


SASL: dict[str, dict[str, Any]] = {
    "PLAIN": {"sasl_username": USER, "sasl_password": PASSWORD},
    "SCRAM-SHA-256": {"sasl_username": USER, "sasl_password": SHA_256_PASSWORD},
    "SCRAM-SHA-512": {"sasl_username": USER, "sasl_password": OTHER_PASSWORD},
    "OAUTHBEARER": {"sasl_oauth_token_provider": jws},
}


# -- what works


@pytest.mark.parametrize("versions", ["TLSv1.2", "TLSv1.3", "TLSv1.2,TLSv1.3"])
async def test_tls(secure: Secure, name: str, versions: str) -> None:
    await works(secure.client("TLS", "ssl", ssl_enabled_protocols=versions), name)


async def test_tls_with_the_authority_as_a_string_and_ciphers(secure: Secure, name: str) -> None:
    options = {"ssl_ca_pem": secure.authority.ca.read_text(), "ssl_ciphers": "ECDHE-ECDSA-AES128-GCM-SHA256"}
    await works(secure.client("TLS", "ssl", ssl_enabled_protocols="TLSv1.2", **options), name)


@pytest.mark.parametrize("strings", [False, True], ids=["files", "strings"])
async def test_mutual_tls_with_an_encrypted_key(secure: Secure, name: str, strings: bool) -> None:
    own = secure.own
    options: dict[str, Any] = {"ssl_certfile": str(own.certificate), "ssl_keyfile": str(own.key)}
    if strings:
        options = {"ssl_certificate_pem": own.certificate.read_text(), "ssl_key_pem": own.key.read_text()}
    await works(secure.client("MUTUAL", "ssl", ssl_key_password="key-secret", **options), name)


@pytest.mark.parametrize("mechanism", list(SASL))
async def test_sasl_over_tls(secure: Secure, name: str, mechanism: str) -> None:
    await works(secure.client("SASL", "sasl_ssl", sasl_mechanism=mechanism, **SASL[mechanism]), name)


async def test_sasl_without_tls(secure: Secure, name: str) -> None:
    await works(secure.client("BARE", "sasl_plaintext", sasl_mechanism="PLAIN", **SASL["PLAIN"]), name)


async def test_librdkafkas_and_javas_names_of_the_same(secure: Secure, name: str) -> None:
    address = secure.kafka.address_of("SASL")
    librdkafka = {
        "bootstrap.servers": address,
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": OTHER_PASSWORD,
        "ssl.ca.location": str(secure.authority.ca),
    }
    java = {
        "bootstrap.servers": address,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{SCRAM_MODULE[:-1]} username="{USER}" password="{OTHER_PASSWORD}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(secure.authority.ca),
        "ssl.endpoint.identification.algorithm": "https",
    }
    for config in (librdkafka, java):
        await works(fencepost.Client.from_config(config), f"{name}-{len(config)}")


@pytest.mark.parametrize("mechanism", list(SASL))
async def test_a_session_is_renewed_on_the_same_connection_under_load(
    secure: Secure, name: str, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KIP-368: Kafka ends connections that write after `connections.max.reauth.ms` without having done so."""
    if isinstance(secure.kafka, SecuredBroker) and mechanism in ("PLAIN", "SCRAM-SHA-256"):
        pytest.skip("our broker's sessions do not depend on the mechanism: two are enough")
    monkeypatch.setattr(authentication, "RENEW_AFTER", EARLY)
    asked: list[float] = []

    async def provide() -> OAuthToken:
        asked.append(time.monotonic())
        return OAuthToken(jws())

    options = SASL[mechanism] | ({"sasl_oauth_token_provider": provide} if mechanism == "OAUTHBEARER" else {})
    with trio.fail_after(SECONDS):
        async with (
            secure.client("RENEWED", "sasl_ssl", sasl_mechanism=mechanism, **options) as kafka,
            kafka.producer() as producer,
        ):
            await producer.send(name, b"first", partition=0)
            before = connections_of(kafka)
            ends = trio.current_time() + 1.1 * SESSION_MS / 1000
            sent = 0
            while sent <= 20 or trio.current_time() < ends:
                await producer.send(name, b"%d" % sent, partition=0)
                sent += 1
            assert connections_of(kafka) == before, "no connection was lost"
            if mechanism == "OAUTHBEARER":
                assert len(asked) >= 2 * len(before)


def connections_of(kafka: fencepost.Client) -> set[int]:
    """Which connections are open."""
    return {id(one) for one in kafka._cluster._connections._open.values() if not one.closed}


# -- what does not


async def test_an_unknown_authority(secure: Secure, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger")
    await refused(secure.client("TLS", "ssl", ssl_cafile=str(stranger.ca)), "certificate is not trusted")


async def test_a_name_that_is_not_in_the_certificate(secure: Secure) -> None:
    """127.0.0.2 is the same machine, and not in the certificate; without the check it is taken."""
    port = secure.kafka.address_of("TLS").rpartition(":")[2]
    listening = "127.0.0.1"
    context_free = {"security_protocol": "ssl", "ssl_cafile": str(secure.authority.ca)}

    async def dial(host: str, port: int, timeout_s: float) -> Any:
        from fencepost.client.network.wire import open_socket

        return await open_socket(listening, port, timeout_s)

    wrong = fencepost.Client(f"other.example:{port}", dial=dial, **context_free)
    await refused(wrong, "other.example.*not trusted.*[Hh]ostname mismatch")
    unchecked = fencepost.Client(f"other.example:{port}", dial=dial, ssl_check_hostname=False, **context_free)
    with trio.fail_after(SECONDS):
        async with unchecked as kafka, kafka.admin() as admin:
            await admin.list_topics()


async def test_no_certificate_where_one_is_wanted(secure: Secure) -> None:
    for version in ("TLSv1.2", "TLSv1.3"):
        await refused(
            secure.client("MUTUAL", "ssl", ssl_enabled_protocols=version), "ssl_certfile|requires a client cert"
        )


async def test_a_certificate_of_somebody_else(secure: Secure, tmp_path: Path) -> None:
    other = Authority(tmp_path, "stranger").sign("stranger")
    options = {"ssl_certfile": str(other.certificate), "ssl_keyfile": str(other.key)}
    for version in ("TLSv1.2", "TLSv1.3"):
        await refused(
            secure.client("MUTUAL", "ssl", ssl_enabled_protocols=version, **options), "the TLS handshake failed"
        )


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_wrong_password(secure: Secure, mechanism: str, caplog: pytest.LogCaptureFixture) -> None:
    """And it shows nowhere: not in the error, its causes, the configuration or the log."""
    caplog.set_level(logging.DEBUG)
    client = secure.client("SASL", "sasl_ssl", sasl_mechanism=mechanism, sasl_username=USER, sasl_password="hunter2")
    error = await refused(client, mechanism)
    assert error.code is fencepost.ErrorCode.SASL_AUTHENTICATION_FAILED
    shown: BaseException | None = error
    while shown is not None:
        assert "hunter2" not in repr(shown) + str(shown)
        shown = shown.__cause__ or shown.__context__
    assert "hunter2" not in repr(client._config) + caplog.text


async def test_a_token_that_has_expired(secure: Secure) -> None:
    client = secure.client(
        "SASL", "sasl_ssl", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=lambda: jws(seconds=-60)
    )
    await refused(client, "the broker rejected the token.*invalid_token|OAUTHBEARER")


async def test_a_mechanism_that_is_not_enabled(secure: Secure) -> None:
    client = secure.client("BARE", "sasl_plaintext", sasl_mechanism="SCRAM-SHA-256", **SASL["SCRAM-SHA-256"])
    await refused(client, "does not support SCRAM-SHA-256; it supports PLAIN")


@pytest.mark.parametrize(
    ("listener", "protocol", "says"),
    [
        ("PLAINTEXT", "ssl", "PLAINTEXT, but security_protocol is 'ssl'|does not use TLS"),
        ("PLAINTEXT", "sasl_plaintext", "does not use SASL|PLAINTEXT, but"),
        ("PLAINTEXT", "sasl_ssl", "PLAINTEXT, but security_protocol is 'sasl_ssl'|does not use TLS"),
        ("TLS", "plaintext", "listener uses TLS|uses SSL"),
        ("TLS", "sasl_ssl", "does not use SASL|uses SSL"),
        ("TLS", "sasl_plaintext", "listener uses TLS|uses SSL"),
        ("SASL", "plaintext", "listener uses TLS|uses SASL_SSL"),
        ("SASL", "ssl", "uses SASL_SSL"),
        ("SASL", "sasl_plaintext", "listener uses TLS|uses SASL_SSL"),
        ("BARE", "plaintext", "uses SASL_PLAINTEXT"),
        ("BARE", "ssl", "uses SASL_PLAINTEXT|does not use TLS"),
        ("BARE", "sasl_ssl", "uses SASL_PLAINTEXT|does not use TLS"),
    ],
)
async def test_a_listener_of_another_kind(secure: Secure, listener: str, protocol: str, says: str) -> None:
    sasl = {"sasl_mechanism": "PLAIN", **SASL["PLAIN"]} if protocol.startswith("sasl") else {}
    await refused(secure.client(listener, protocol, **sasl), says)
