"""Logins by SASL with each client that has them, and frame by frame: the same on fencepost and on Apache Kafka."""

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import aiokafka.abc
import aiokafka.errors
import kafka.errors
import kafka.net.sasl.oauth
import pytest
from confluent_kafka import KafkaException, Producer

import fencepost.sync
from fencepost import AuthenticationError
from fencepost.client.core.scram import Scram
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api03_metadata import MetadataRequest
from fencepost.protocol.messages.api18_api_versions import ApiVersionsRequest
from tests.interop.sasl_brokers import MECHANISMS, PASSWORD, REFUSALS, SESSION_MS, USER, Addresses, broker, token
from tests.kit.sasl_broker import authenticate, handshake, log_in
from tests.kit.wire import ConnectionEnded, Wire

pytestmark = pytest.mark.interop
METADATA, API_VERSIONS = 3, 18
ALL_TOPICS = MetadataRequest(topics=[])
WAIT_S = 100.0


@pytest.fixture(scope="module", params=["fencepost", "kafka"])
def addresses(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    with broker(request.param, tmp_path_factory.mktemp("sasl")) as found:
        yield found


# Each client: it logs in and asks for metadata, or raises an error with the broker's words


def with_confluent(address: str, mechanism: str, password: str) -> None:
    """confluent-kafka: librdkafka tries again and again, and reports each refusal."""
    reported: list[str] = []
    config = {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": mechanism,
        "error_cb": lambda error: reported.append(error.str()),
        "log_level": 0,
    }
    if mechanism == "OAUTHBEARER":
        seconds = 60 if password == PASSWORD else -30
        config["oauth_cb"] = lambda _config: (token(seconds), time.time() + 60)
    else:
        config |= {"sasl.username": USER, "sasl.password": password}
    producer = Producer(config)
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        producer.poll(0.05)
        refused = [one for one in reported if "uthentication" in one]
        if refused:
            raise PermissionError(refused[0])
        try:
            producer.list_topics(timeout=0.5)
        except KafkaException:
            continue
        return
    raise TimeoutError(reported)


def with_aiokafka(address: str, mechanism: str, password: str) -> None:
    class Tokens(aiokafka.abc.AbstractTokenProvider):
        async def token(self) -> str:
            return token(60 if password == PASSWORD else -30)

    async def main() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=address,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username=USER,
            sasl_plain_password=password,
            sasl_oauth_token_provider=Tokens() if mechanism == "OAUTHBEARER" else None,
        )
        try:
            await producer.start()
        finally:
            await producer.stop()

    try:
        asyncio.run(main())
    except aiokafka.errors.KafkaError as error:
        raise PermissionError(str(error)) from error


def with_kafka_python(address: str, mechanism: str, password: str) -> None:
    class Tokens(kafka.net.sasl.oauth.AbstractTokenProvider):
        def token(self) -> str:
            return token(60 if password == PASSWORD else -30)

    try:
        admin = kafka.KafkaAdminClient(
            bootstrap_servers=address,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username=USER,
            sasl_plain_password=password,
            sasl_oauth_token_provider=Tokens() if mechanism == "OAUTHBEARER" else None,
            bootstrap_timeout_ms=30_000 if password == PASSWORD else 500,
        )
        try:
            admin.list_topics()
        finally:
            admin.close()
    except kafka.errors.KafkaError as error:
        raise PermissionError(str(error)) from error


def with_fencepost(address: str, mechanism: str, password: str) -> None:
    options: dict[str, Any] = {"sasl_username": USER, "sasl_password": password}
    if mechanism == "OAUTHBEARER":
        options = {"sasl_oauth_token_provider": lambda: token(60 if password == PASSWORD else -30)}
    try:
        with (
            fencepost.sync.Client(
                address, security_protocol="sasl_plaintext", sasl_mechanism=mechanism, **options
            ) as client,
            client.admin() as admin,
        ):
            admin.list_topics()
    except AuthenticationError as error:
        raise PermissionError(str(error)) from error


CLIENTS = [with_confluent, with_aiokafka, with_kafka_python, with_fencepost]
Client = Callable[[str, str, str], None]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_logs_in(addresses: Addresses, client: Client, mechanism: str) -> None:
    client(addresses.sasl, mechanism, PASSWORD)


REFUSED = [
    (client, mechanism)
    for client in CLIENTS
    for mechanism in MECHANISMS
    if mechanism != "OAUTHBEARER" or client not in (with_aiokafka, with_kafka_python)
]
"""These two do not acknowledge why their token was rejected (RFC 7628), so they never get the error."""


@pytest.mark.parametrize(("client", "mechanism"), REFUSED)
def test_a_client_is_refused_in_kafkas_words(
    addresses: Addresses, client: Client, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    """aiokafka writes them to its log only. kafka-python loses them if the end of the connection comes with them."""
    with pytest.raises(PermissionError) as refused:
        client(addresses.sasl, mechanism, "wrong")
    if client is not with_kafka_python:
        assert REFUSALS[mechanism] in f"{refused.value} {caplog.text}"


# Frame by frame


def connect(address: str) -> Wire:
    host, _, port = address.rpartition(":")
    return Wire(socket.create_connection((host, int(port)), WAIT_S))


def test_a_request_before_the_login_closes_the_connection(addresses: Addresses) -> None:
    for before in (False, True):
        with connect(addresses.sasl) as wire:
            if before:
                wire.call(API_VERSIONS, 3, ApiVersionsRequest(client_software_name="t", client_software_version="1"))
            wire.send(METADATA, 9, ALL_TOPICS)
            with pytest.raises(ConnectionEnded):
                wire.receive_frame()


def test_a_mechanism_that_is_not_enabled(addresses: Addresses) -> None:
    with connect(addresses.sasl) as wire:
        answer = handshake(wire, "GSSAPI")
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert sorted(answer.mechanisms) == sorted(MECHANISMS)
        wire.expect_end()


def test_tokens_without_headers(addresses: Addresses) -> None:
    client = Scram("SCRAM-SHA-256", USER, PASSWORD, "nonce")
    with connect(addresses.sasl) as wire:
        handshake(wire, "SCRAM-SHA-256", version=0)
        message = client.first()
        while not client.finished:
            wire.socket.sendall(len(message).to_bytes(4, "big") + message)
            message = client.step(wire.receive_frame())
        assert wire.call(METADATA, 9, ALL_TOPICS).cluster_id


def test_a_session_has_an_end(addresses: Addresses) -> None:
    with connect(addresses.renewed) as wire, connect(addresses.renewed) as other:
        for one in (wire, other):
            assert log_in(one).session_lifetime_ms == SESSION_MS
            assert one.call(METADATA, 9, ALL_TOPICS).cluster_id
        time.sleep(SESSION_MS / 1000 + 0.2)
        wire.send(METADATA, 9, ALL_TOPICS)
        with pytest.raises(ConnectionEnded):
            wire.receive_frame()
        assert log_in(other).session_lifetime_ms == SESSION_MS
        assert other.call(METADATA, 9, ALL_TOPICS).cluster_id


def test_another_user_or_mechanism_cannot_log_in_again(addresses: Addresses) -> None:
    with connect(addresses.renewed) as wire:
        log_in(wire)
        answer = log_in(wire, "bob")
        assert (answer.error_code, answer.error_message) == (
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            "Cannot change principals during re-authentication from User.alice: User.bob",
        )
    with connect(addresses.renewed) as wire:
        log_in(wire)
        assert handshake(wire, "SCRAM-SHA-256").error_code == 0
        with pytest.raises(ConnectionEnded):
            authenticate(wire, Scram("SCRAM-SHA-256", USER, PASSWORD, "nonce").first())


def test_a_session_without_an_end_is_not_renewed(addresses: Addresses) -> None:
    with connect(addresses.sasl) as wire:
        log_in(wire)
        assert handshake(wire).error_code == ErrorCode.ILLEGAL_SASL_STATE
        answer = authenticate(wire, b"\0alice\0alice-secret")
        assert (answer.error_code, answer.error_message) == (
            ErrorCode.ILLEGAL_SASL_STATE,
            "SaslAuthenticate request received after successful authentication",
        )


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0a\0b\0c\0d", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0alice\0wrong", REFUSALS["PLAIN"]),
        (b"\0mallory\0alice-secret", REFUSALS["PLAIN"]),
        (b"\0\0x", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (
            b"bob\0alice\0alice-secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
    ],
)
def test_messages_of_plain_are_refused_in_kafkas_words(addresses: Addresses, message: bytes, answer: str) -> None:
    with connect(addresses.sasl) as wire:
        handshake(wire)
        refused = authenticate(wire, message)
        assert (refused.error_code, refused.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, answer)
        wire.expect_end()
