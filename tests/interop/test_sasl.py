"""Logins by SASL and by TLS with each client, and frame by frame: the same on fencepost and on Apache Kafka."""

import re
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api03_metadata import MetadataRequest
from fencepost.protocol.messages.api18_api_versions import ApiVersionsRequest
from fencepost.protocol.messages.api51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from fencepost.protocol.scram import Scram
from tests.interop.login_clients import (
    WAIT_S,
    Login,
    with_aiokafka,
    with_confluent,
    with_fencepost,
    with_franz_go,
    with_kafka_python,
    with_kafkajs,
)
from tests.interop.sasl_brokers import MECHANISMS, PASSWORD, REFUSALS, SESSION_MS, USER, Addresses, broker, token
from tests.kit.sasl_broker import ALTER_SCRAM, authenticate, handshake, log_in
from tests.kit.wire import ConnectionEnded, Wire

pytestmark = pytest.mark.interop
METADATA, API_VERSIONS = 3, 18
ALL_TOPICS = MetadataRequest(topics=[])


@pytest.fixture(scope="module", params=["fencepost", "kafka"])
def addresses(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    with broker(request.param, tmp_path_factory.mktemp("sasl")) as found:
        yield found


CLIENTS = [with_confluent, with_aiokafka, with_kafka_python, with_kafkajs, with_franz_go, with_fencepost]
Client = Callable[[Login, str], None]


@pytest.fixture
def value(request: pytest.FixtureRequest) -> str:
    """What the client is to write and read: another value for each test."""
    return str(request.node.name)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_logs_in(addresses: Addresses, client: Client, mechanism: str, value: str) -> None:
    client(Login(addresses.sasl, mechanism=mechanism), value)


REFUSED = [(client, mechanism) for client in CLIENTS for mechanism in MECHANISMS if mechanism != "OAUTHBEARER"]
REFUSED += [(client, "OAUTHBEARER") for client in (with_confluent, with_kafka_python, with_fencepost)]
"""The others do not acknowledge why their token was rejected (RFC 7628). aiokafka then tries Kafka for 40 s."""


@pytest.mark.parametrize(("client", "mechanism"), REFUSED)
def test_a_client_is_refused_in_kafkas_words(
    addresses: Addresses, client: Client, mechanism: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    """aiokafka writes them to its log only. kafka-python loses them if the end of the connection comes with them."""
    with pytest.raises(PermissionError) as refused:
        client(Login(addresses.sasl, mechanism=mechanism, refused=True), value)
    if client is not with_kafka_python:
        assert REFUSALS[mechanism] in f"{refused.value} {caplog.text}"


@pytest.mark.parametrize(
    ("client", "says"),
    [
        (with_kafkajs, "Request is not valid given the current SASL state|Closed connection"),
        (with_franz_go, "unexpected data in oauth response"),
    ],
)
def test_a_client_that_does_not_acknowledge_is_refused(
    addresses: Addresses, client: Client, says: str, value: str
) -> None:
    with pytest.raises(PermissionError, match=says):
        client(Login(addresses.sasl, mechanism="OAUTHBEARER", refused=True), value)


# TLS


@pytest.mark.parametrize("listener", ["tls", "mutual", "both"])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_uses_tls(addresses: Addresses, client: Client, listener: str, value: str) -> None:
    """TLS; TLS with a certificate of the client; and SCRAM over TLS."""
    login = Login(getattr(addresses, listener), "SSL", ca=addresses.authority.ca)
    if listener == "mutual":
        login = login._replace(own=addresses.own)
    if listener == "both":
        login = login._replace(protocol="SASL_SSL", mechanism="SCRAM-SHA-512")
    client(login, value)


@pytest.mark.parametrize("client", [with_confluent, with_kafkajs, with_franz_go, with_fencepost])
def test_a_client_does_not_trust_an_unknown_authority(addresses: Addresses, client: Client, value: str) -> None:
    """The two others trust what Python's `ssl` trusts."""
    with pytest.raises(PermissionError, match=r"verify failed|unable to verify|unknown authority|not trusted"):
        client(Login(addresses.tls, "SSL", refused=True), value)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_without_a_certificate_is_refused(
    addresses: Addresses, client: Client, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    """OpenSSL's alert is "certificate required", Java's "bad certificate". These two may find the connection closed."""
    with pytest.raises(PermissionError) as refused:
        client(Login(addresses.mutual, "SSL", ca=addresses.authority.ca, refused=True), value)
    said = "\n".join([str(refused.value), *caplog.messages])  # PySpark changes how `caplog.text` is formatted
    closed = "|(?m: closed$)|EOF occurred" if client in (with_aiokafka, with_kafka_python) else ""
    assert re.search(f"certificate required|bad certificate{closed}", said)


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


def test_an_unknown_user_of_scram_is_refused_in_the_same_words(addresses: Addresses) -> None:
    """Kafka refuses the first message, so that its length shows who exists; fencepost the second, as with a user."""
    client = Scram("SCRAM-SHA-256", "mallory", PASSWORD, "nonce")
    with connect(addresses.sasl) as wire:
        handshake(wire, "SCRAM-SHA-256")
        answer = authenticate(wire, client.first())
        if not answer.error_code:
            answer = authenticate(wire, client.step(answer.auth_bytes))
        assert (answer.error_code, answer.error_message) == (
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            REFUSALS["SCRAM-SHA-256"],
        )
        wire.expect_end()


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (b"\1", REFUSALS["OAUTHBEARER"]),
        (
            b"n,,\1",
            "Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER",
        ),
    ],
)
def test_a_rejected_token_is_explained_before_the_refusal(addresses: Addresses, reply: bytes, says: str) -> None:
    with connect(addresses.sasl) as wire:
        handshake(wire, "OAUTHBEARER")
        answer = authenticate(wire, f"n,,\1auth=Bearer {token(-30)}\1\1".encode())
        assert (answer.error_code, answer.auth_bytes) == (0, REFUSALS["OAUTHBEARER"].encode())
        answer = authenticate(wire, reply)
        assert (answer.error_code, answer.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, says)
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


def test_one_re_authentication_a_second(addresses: Addresses) -> None:
    with connect(addresses.renewed) as wire:
        log_in(wire)
        assert log_in(wire).session_lifetime_ms == SESSION_MS
        assert handshake(wire).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert wire.call(METADATA, 9, ALL_TOPICS).cluster_id


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


def test_credentials_that_are_refused(addresses: Addresses) -> None:
    """KIP-554: one result for each user, and one change of a user in a request."""
    upserted = [("few", 1, 4095), ("many", 1, 16_385), ("", 1, 4096), ("other", 3, 4096), ("twice", 1, 4096)]
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="nobody", mechanism=1)],
        upsertions=[
            ScramCredentialUpsertion(
                name=name, mechanism=number, iterations=count, salt=b"s" * 16, salted_password=b"x"
            )
            for name, number, count in [*upserted, ("twice", 2, 4096)]
        ],
    )
    with connect(addresses.plaintext) as wire:
        results = wire.call(ALTER_SCRAM, 0, request).results
    assert {one.user: (one.error_code, one.error_message) for one in results} == {
        "few": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        "many": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        "": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        "other": (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        "nobody": (ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"),
        "twice": (
            ErrorCode.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        ),
    }
