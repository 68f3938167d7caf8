"""SASL on a real broker, frame by frame: what is served before the login, its refusals, and the session's end."""

import struct
import time
from collections.abc import Iterator

import pytest

from fencepost.broker.config.broker_config import ConfigError, load_config
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api03_metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.api17_sasl_handshake import SaslHandshakeRequest
from fencepost.protocol.messages.api18_api_versions import ApiVersionsRequest
from fencepost.protocol.scram import Scram
from tests.kit.broker_process import BrokerProcess
from tests.kit.sasl_broker import (
    LISTEN,
    LISTENERS,
    SASL_HANDSHAKE,
    add_scram_users,
    authenticate,
    connect,
    handshake,
    log_in,
)
from tests.kit.wire import ConnectionEnded, Wire

METADATA, API_VERSIONS = 3, 18
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")
ALL_TOPICS = MetadataRequest(topics=None)
WRONG = "Authentication failed: Invalid username or password"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    work_dir = tmp_path_factory.mktemp("sasl")
    with BrokerProcess(work_dir, data_dir=work_dir / "data", settings=LISTENERS, arguments=LISTEN) as process:
        add_scram_users(process, alice="pencil")
        yield process
        assert "Traceback" not in process.log()
        assert not any(secret in process.log() for secret in ("alice-secret", "bob-secret", "pencil", "hunter2"))


def scram(wire: Wire, mechanism: str, password: str, user: str = "alice") -> tuple[int, str | None, bool]:
    client = Scram(mechanism, user, password, "client-nonce")
    handshake(wire, mechanism)
    challenge = authenticate(wire, client.first())
    assert challenge.error_code == 0
    final = authenticate(wire, client.step(challenge.auth_bytes))
    if not final.error_code:
        client.step(final.auth_bytes)
    return final.error_code, final.error_message, client.finished


def test_the_usual_login_and_then_any_request(broker: BrokerProcess) -> None:
    with connect(broker) as wire:
        assert wire.call(API_VERSIONS, 3, VERSIONS).error_code == 0
        answer = handshake(wire)
        assert (answer.error_code, answer.mechanisms) == (0, MECHANISMS)
        login = authenticate(wire, b"\0alice\0alice-secret")
        assert (login.error_code, login.error_message, login.session_lifetime_ms) == (0, None, 0)
        assert wire.call(METADATA, 9, ALL_TOPICS).brokers[0].port == broker.listeners["SASL"][1]


@pytest.mark.parametrize("mechanism", MECHANISMS[1:])
def test_scram_with_users_of_the_metadata(broker: BrokerProcess, mechanism: str) -> None:
    with connect(broker) as wire:
        assert scram(wire, mechanism, "pencil") == (0, None, True)
        assert wire.call(METADATA, 9, ALL_TOPICS).cluster_id


@pytest.mark.parametrize("user", ["alice", "mallory"])
def test_scram_refuses_a_wrong_password_and_an_unknown_user_alike(broker: BrokerProcess, user: str) -> None:
    with connect(broker) as wire:
        code, message, _ = scram(wire, "SCRAM-SHA-256", "hunter2", user)
        assert (code, message) == (
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256",
        )
        wire.expect_end()


@pytest.mark.parametrize("before", [[], ["versions"], ["handshake"], ["versions", "handshake"]])
def test_before_the_login_nothing_else_is_served(broker: BrokerProcess, before: list[str]) -> None:
    """The connection is closed without an answer; what came before is answered."""
    with connect(broker) as wire:
        if "versions" in before:
            wire.call(API_VERSIONS, 3, VERSIONS)
        if "handshake" in before:
            handshake(wire)
        wire.send(METADATA, 9, ALL_TOPICS)
        with pytest.raises(ConnectionEnded):
            wire.receive_frame()


def test_an_unknown_version_of_apiversions_can_be_asked_again(broker: BrokerProcess) -> None:
    """KIP-511, also before a login."""
    with connect(broker) as wire:
        _, request = wire.frame(API_VERSIONS, 3, VERSIONS)
        wire.socket.sendall(request[:6] + struct.pack(">h", 99) + request[8:])
        assert wire.receive_frame()[4:6] == struct.pack(">h", ErrorCode.UNSUPPORTED_VERSION)
        assert wire.call(API_VERSIONS, 3, VERSIONS).error_code == 0
        assert log_in(wire).error_code == 0


def test_a_wrong_password_is_answered_after_the_delay_and_closes_the_connection(broker: BrokerProcess) -> None:
    with connect(broker) as wire:
        handshake(wire)
        began = time.monotonic()
        login = authenticate(wire, b"\0alice\0hunter2")
        assert time.monotonic() - began >= 0.05
        assert (login.error_code, login.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, WRONG)
        wire.expect_end()


def test_a_mechanism_that_is_not_enabled_is_answered_with_those_that_are(broker: BrokerProcess) -> None:
    with connect(broker) as wire:
        answer = handshake(wire, "GSSAPI")
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, MECHANISMS)
        wire.expect_end()


def test_tokens_without_headers_after_handshake_v0(broker: BrokerProcess) -> None:
    """Kafka 0.10's protocol: the mechanism's bytes behind their length."""
    client = Scram("SCRAM-SHA-256", "alice", "pencil", "nonce")
    with connect(broker) as wire:
        assert handshake(wire, "SCRAM-SHA-256", version=0).error_code == 0
        token = client.first()
        while not client.finished:
            wire.socket.sendall(struct.pack(">i", len(token)) + token)
            token = client.step(wire.receive_frame())
        assert wire.call(METADATA, 9, ALL_TOPICS).cluster_id


def test_a_token_without_a_header_that_is_refused_closes_the_connection(broker: BrokerProcess) -> None:
    with connect(broker) as wire:
        handshake(wire, version=0)
        wire.socket.sendall(struct.pack(">i", 14) + b"\0alice\0hunter2")
        wire.expect_end()


def test_a_large_frame_before_the_login_is_refused_by_its_length(broker: BrokerProcess) -> None:
    with connect(broker) as wire:
        wire.socket.sendall(struct.pack(">i", (32 << 10) + 1))
        wire.expect_end()
    assert "a frame of 32769 bytes is over sasl.server.max.receive.size=32768" in broker.log()
    with connect(broker) as wire:
        log_in(wire)
        topics = [MetadataRequestTopic(name=f"{number:0200}") for number in range(200)]
        assert wire.call(METADATA, 9, MetadataRequest(topics=topics)).cluster_id


def test_requests_in_one_packet_with_the_login_are_served_in_order(broker: BrokerProcess) -> None:
    with connect(broker) as wire:
        frames = [
            wire.frame(API_VERSIONS, 3, VERSIONS)[1],
            wire.frame(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))[1],
        ]
        wire.socket.sendall(b"".join(frames))
        assert wire.receive(API_VERSIONS, 3)[1].error_code == 0
        assert wire.receive(SASL_HANDSHAKE, 1)[1].error_code == 0
        assert authenticate(wire, b"\0alice\0alice-secret").error_code == 0


# Re-authentication (KIP-368)


def test_the_same_user_logs_in_again_on_the_same_connection(broker: BrokerProcess) -> None:
    with connect(broker, "RENEWED") as wire:
        assert log_in(wire).session_lifetime_ms == 1500
        for _ in range(2):
            time.sleep(1.05)  # Kafka accepts one re-authentication a second
            assert log_in(wire).session_lifetime_ms == 1500
            assert wire.call(METADATA, 9, ALL_TOPICS).cluster_id


def test_a_session_that_ended_closes_the_connection_at_the_next_request(broker: BrokerProcess) -> None:
    with connect(broker, "RENEWED") as wire, connect(broker, "RENEWED") as other:
        for one in (wire, other):
            log_in(one)
            assert one.call(METADATA, 9, ALL_TOPICS).cluster_id
        time.sleep(1.6)
        wire.send(METADATA, 9, ALL_TOPICS)
        wire.expect_end()
        assert log_in(other).error_code == 0, "a login is still possible"
        assert other.call(METADATA, 9, ALL_TOPICS).cluster_id


def test_another_user_cannot_take_over_the_connection(broker: BrokerProcess) -> None:
    with connect(broker, "RENEWED") as wire:
        log_in(wire)
        answer = log_in(wire, "bob")
        assert (answer.error_code, answer.error_message) == (
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            "Cannot change principals during re-authentication from User.alice: User.bob",
        )
        wire.expect_end()


def test_another_mechanism_cannot_log_in_again(broker: BrokerProcess) -> None:
    with connect(broker, "RENEWED") as wire:
        log_in(wire)
        assert handshake(wire, "SCRAM-SHA-256").error_code == 0
        with pytest.raises(ConnectionEnded):
            authenticate(wire, Scram("SCRAM-SHA-256", "alice", "pencil", "nonce").first())


def test_saslauthenticate_after_the_login_is_out_of_place(broker: BrokerProcess) -> None:
    with connect(broker) as wire:
        log_in(wire)
        assert handshake(wire).error_code == ErrorCode.ILLEGAL_SASL_STATE  # the session has no end
        assert authenticate(wire, b"\0alice\0alice-secret").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert wire.call(METADATA, 9, ALL_TOPICS).cluster_id


# Settings


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"sasl.enabled.mechanisms": ""}, "listener SASL uses SASL, but no mechanism is enabled"),
        ({"listener.name.sasl.plain.sasl.jaas.config": "x required;"}, "but PLAIN has no users"),
        ({"listener.name.sasl.plain.sasl.jaas.config": 'x user_a="hunter2";'}, "needs a control flag"),
        ({"listener.name.sasl.sasl.enabled.mechanisms": "GSSAPI"}, "'GSSAPI' is not allowed"),
        ({"listener.name.sasl.sasl.enabled.mechanisms": "OAUTHBEARER"}, "OAUTHBEARER has no keys"),
        ({"listener.name.sasl.sasl.enabled.mechanismes": "PLAIN"}, "the nearest known one is sasl.enabled.mechanisms"),
        ({"sasl.jaas.confg": "hunter2"}, "unknown setting sasl.jaas.confg"),
    ],
)
def test_contradictory_settings_end_the_start(changed: dict[str, str], says: str) -> None:
    settings = LISTENERS | changed | {"listeners": "SASL://:0"}
    with pytest.raises(ConfigError) as caught:
        load_config(assignments=[f"{name}={value}" for name, value in settings.items()])
    assert says in str(caught.value)
    assert "hunter2" not in str(caught.value)
