"""The broker's side of each SASL mechanism, as a state machine: RFC examples, Kafka's messages, any bytes."""

import base64
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.security.sasl.exchange import Exchange, Login, LoginRefused
from fencepost.broker.security.sasl.oauthbearer import OAuthExchange, Token, TokenRejected
from fencepost.broker.security.sasl.plain import PlainExchange, PlainUsers
from fencepost.broker.security.sasl.scram import ScramCredentials, ScramExchange, usual_form
from fencepost.client.core.sasl import OAuthToken, exchange_for
from fencepost.coordinator.metadata.image import ScramCredential
from fencepost.protocol.scram import Scram, ScramError, client_key_of, salted_password, server_key_of, stored_key_of

USERS = PlainUsers({"alice": "secret", "ñandú": "pässword"})
KEY = bytes(range(32))
GENERIC = None
"""The client receives Kafka's general text."""


def credential(mechanism: str, password: str, salt: bytes, iterations: int = 4096) -> ScramCredential:
    salted = salted_password(mechanism, password.encode(), salt, iterations)
    stored = stored_key_of(mechanism, client_key_of(mechanism, salted))
    return ScramCredential(salt, stored, server_key_of(mechanism, salted), iterations)


def scram(mechanism: str = "SCRAM-SHA-256", nonce: str = "broker", key: bytes = KEY, **users: str) -> ScramExchange:
    known = {name: credential(mechanism, password, b"salt of " + name.encode()) for name, password in users.items()}
    return ScramExchange(ScramCredentials(mechanism, known.get, key), nonce)


def refusal(exchange: Exchange, *messages: bytes) -> LoginRefused:
    """The refusal of the last message."""
    for message in messages[:-1]:
        exchange.step(message)
    with pytest.raises(LoginRefused) as caught:
        exchange.step(messages[-1])
    assert exchange.login is None
    return caught.value


# PLAIN


@pytest.mark.parametrize("message", ["\0alice\0secret", "alice\0alice\0secret", "\0ñandú\0pässword"])
def test_plain_logs_in(message: str) -> None:
    exchange = PlainExchange(USERS)
    assert exchange.step(message.encode()) == b""
    assert exchange.login == Login(message.split("\0")[1])


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0mallory\0secret", "Authentication failed: Invalid username or password"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (
            b"bob\0alice\0secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0alice\0secret\0more\0more", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0alice\0\xff", GENERIC),
    ],
)
def test_plain_refuses_as_kafka(message: bytes, answer: str | None) -> None:
    """The messages are those of Kafka's PlainSaslServer."""
    refused = refusal(PlainExchange(USERS), message)
    assert refused.message == answer
    assert "secret" not in str(refused)


def test_plain_keeps_no_password() -> None:
    assert "secret" not in repr(vars(USERS))


# SCRAM

RFC_7677 = [
    ("n,,n=user,r=rOprNGfwEbeRWgbNEkqO", "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
     "s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"),
    ("c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
     "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="),
]  # fmt: skip


def test_scram_answers_as_rfc_7677_does() -> None:
    found = credential("SCRAM-SHA-256", "pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))
    credentials = ScramCredentials("SCRAM-SHA-256", {"user": found}.get, KEY)
    exchange = ScramExchange(credentials, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    for message, answer in RFC_7677:
        assert exchange.login is None
        assert exchange.step(message.encode()).decode() == answer
    assert exchange.login == Login("user")


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("name", ["alice", "a,b=c", "ñandú"])
def test_the_clients_side_and_the_brokers_agree(mechanism: str, name: str) -> None:
    client = Scram(mechanism, name, "pencil", "client")
    broker = scram(mechanism, **{name: "pencil"})
    client.step(broker.step(client.step(broker.step(client.first()))))
    assert client.finished
    assert broker.login == Login(name)


def wrong_login(exchange: ScramExchange, name: str) -> LoginRefused:
    client = Scram("SCRAM-SHA-256", name, "wrong", "client")
    return refusal(exchange, client.first(), client.step(exchange_first(exchange, client)))


def exchange_first(exchange: ScramExchange, client: Scram) -> bytes:
    """The challenge that this exchange will send, from a twin that is used up for it."""
    twin = ScramExchange(exchange._credentials, exchange._nonce)
    return twin.step(client.first())


def test_an_unknown_user_and_a_wrong_password_take_the_same_steps() -> None:
    """The unknown user's challenge has a salt that stays the same, and differs by user."""
    known, unknown = wrong_login(scram(alice="pencil"), "alice"), wrong_login(scram(alice="pencil"), "mallory")
    assert known.message is unknown.message is None
    challenges = [scram(nonce="same").step(b"n,,n=%b,r=c" % name) for name in (b"mallory", b"mallory", b"eve")]
    assert challenges[0] == challenges[1] != challenges[2]
    assert scram(nonce="same", key=bytes(32)).step(b"n,,n=mallory,r=c") != challenges[0]


def test_an_unknown_users_credential_has_the_form_of_most_others() -> None:
    """Else the iterations, or the length of the salt, would show that the user does not exist."""
    users = {name: credential("SCRAM-SHA-256", "pencil", salt, rounds) for name, salt, rounds in (
        ("a", b"salt of 18 bytes..", 4096), ("b", b"another 18 bytes..", 4096), ("c", b"short", 16_384))}  # fmt: skip
    form = usual_form(users.values())
    assert form == (4096, 18)
    decoy, _ = ScramCredentials("SCRAM-SHA-256", users.get, KEY, lambda: form).of("mallory")
    assert (decoy.iterations, len(decoy.salt)) == form
    assert usual_form([]) == (8192, 32)


def test_the_right_password_of_no_user_is_refused() -> None:
    """A decoy's keys come from a hash, so a client that knew them still would not log in."""
    credentials = ScramCredentials("SCRAM-SHA-256", {}.get, KEY)
    decoy, exists = credentials.of("mallory")
    assert not exists
    assert len(decoy.stored_key) == 32


@pytest.mark.parametrize(
    "first",
    [
        b"n,,n=alice",
        b"y,,n=alice,r=c",
        b"p=tls-unique,,n=alice,r=c",
        b"n,,m=new,n=alice,r=c",
        b"n,,n=al=ice,r=c",
        b"n,,n=,r=c",
        b"n,,n=alice,r=",
        b"n,,n=alice,r=a b",
        b"n,,n=alice,r=c,tokenauth=true",
        b"n,a=bob,n=alice,r=c",
        b"\xff",
        b"",
    ],
)
def test_scram_refuses_a_first_message(first: bytes) -> None:
    refused = refusal(scram(alice="pencil"), first)
    expected = "different from username" if b"bob" in first else None
    assert (refused.message or "").endswith(expected or "")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"r=client", b"r=clienT"),
        (b"c=biws", b"c=biwsbiws"),
        (b"p=", b"p=AAAA"),
        (b",p=", b",q="),
        (b"c=biws", b"c=*"),
    ],
)
def test_scram_refuses_a_changed_final_message(old: bytes, new: bytes) -> None:
    exchange = scram(alice="pencil")
    client = Scram("SCRAM-SHA-256", "alice", "pencil", "client")
    final = client.step(exchange.step(client.first()))
    assert refusal(exchange, final.replace(old, new)).message is GENERIC
    assert refusal(exchange, final), "an exchange that failed stays failed"


def test_a_nonce_of_an_old_librdkafka_is_named_in_the_log() -> None:
    """It repeats the client's nonce (librdkafka's issue 4895), which Apache Kafka 4 refuses, too."""
    exchange = scram(alice="pencil")
    client = Scram("SCRAM-SHA-256", "alice", "pencil", "client")
    final = client.step(exchange.step(client.first()))
    refused = refusal(exchange, final.replace(b"r=client", b"r=clientclient"))
    assert "update librdkafka if it is older than 2.6.1" in str(refused)
    assert refused.message is GENERIC


def test_a_broker_without_the_credential_cannot_pose_as_the_broker() -> None:
    client = Scram("SCRAM-SHA-256", "alice", "pencil", "client")
    client.step(scram(alice="pencil").step(client.first()))
    with pytest.raises(ScramError):
        client.step(b"v=" + base64.b64encode(bytes(32)))


# OAUTHBEARER


def validate(token: str) -> Token:
    if token != "good":
        raise TokenRejected("expired", scope="kafka")
    return Token("alice", 1000)


def test_a_token_logs_in_until_it_expires() -> None:
    exchange = OAuthExchange(validate)
    first = exchange_for("OAUTHBEARER", token=OAuthToken("good", {"logicalCluster": "lkc-1"})).first()
    assert exchange.step(first) == b""
    assert exchange.login == Login("alice", 1000)


def test_a_rejected_token_is_explained_before_the_refusal() -> None:
    """RFC 7628, section 3.2.2: the client acknowledges the reason, and the login fails with it, as in Kafka."""
    exchange = OAuthExchange(validate)
    answer = exchange.step(exchange_for("OAUTHBEARER", token=OAuthToken("bad")).first())
    assert answer == b'{"status":"invalid_token", "scope":"kafka"}'
    assert refusal(exchange, b"\x01").message == answer.decode()


@pytest.mark.parametrize(
    "message",
    [
        b"n,,\x01auth=Basic good\x01\x01",
        b"n,,\x01x=y\x01\x01",
        b"n,,\x01auth=Bearer good",
        b"y,,\x01auth=Bearer good\x01\x01",
        b"n,,\x01\x01",
        b"",
        b"\xff",
    ],
)
def test_oauthbearer_refuses(message: bytes) -> None:
    assert refusal(OAuthExchange(validate), message).message is GENERIC


def test_another_authorization_id_than_the_tokens_is_refused() -> None:
    refused = refusal(OAuthExchange(validate), b"n,a=bob,\x01auth=Bearer good\x01\x01")
    assert refused.message is not None
    assert "authorization id (bob) that is different from the token's principal name (alice)" in refused.message


# Any bytes


MESSAGES = st.one_of(
    st.binary(max_size=200),
    st.sampled_from([b"\0alice\0", b"n,,n=alice,r=", b"n,,\x01auth=Bearer ", b"c=biws,r=", b"\x01"]).flatmap(
        lambda start: st.binary(max_size=60).map(start.__add__)
    ),
)


@given(st.lists(MESSAGES, max_size=4))
def test_any_bytes_are_answered_or_refused(messages: list[bytes]) -> None:
    """No message raises another error, none logs in, and a machine that refused refuses from then on."""
    for exchange in (PlainExchange(USERS), scram(alice="pencil"), OAuthExchange(validate)):
        refused = False
        for message in messages:
            try:
                exchange.step(message)
                assert not refused or isinstance(exchange, PlainExchange | OAuthExchange)
            except LoginRefused:
                refused = True
        assert exchange.login is None


def test_long_messages_take_no_more_than_linear_time() -> None:
    """The patterns do not backtrack: a message of the largest size is refused in milliseconds."""
    for start, part in (("n,,n=", "=2C"), ("n,,n=a,r=b", ",x=y"), ("n,,\x01", "a=b\x01"), ("c=", "AAAA"), ("", "\0")):
        message = (start + part * 10_000 + "\0").encode()
        began = time.perf_counter()
        for exchange in (PlainExchange(USERS), scram(alice="pencil"), OAuthExchange(validate)):
            refusal(exchange, message)
        assert time.perf_counter() - began < 1
