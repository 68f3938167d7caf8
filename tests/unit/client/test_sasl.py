"""SASL's mechanisms as values, against the examples of their RFCs, and against brokers that are not what they claim."""

import base64

import pytest

from fencepost.client.core.sasl import OAuthExchange, OAuthToken, PlainExchange, exchange_for
from fencepost.protocol.sasl_login import SaslError
from fencepost.protocol.scram import FEWEST_ITERATIONS, MOST_ITERATIONS, Scram, ScramError

RFC_7677 = {
    "mechanism": "SCRAM-SHA-256",
    "nonce": "rOprNGfwEbeRWgbNEkqO",
    "server_first": "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    "client_final": "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    "server_final": "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
}
SHA_512 = {
    "mechanism": "SCRAM-SHA-512",
    "nonce": "rOprNGfwEbeRWgbNEkqO",
    "server_first": "r=rOprNGfwEbeRWgbNEkqO02431b08-2f89-4bad-a4e6-80c0564ec865,"
    "s=Yin2FuHTt/M0kJWb0t9OI32n2VmOGi3m+JfjOvuDF88=,i=4096",
    "client_final": "c=biws,r=rOprNGfwEbeRWgbNEkqO02431b08-2f89-4bad-a4e6-80c0564ec865,"
    "p=Hc5yec3NmCD7t+kFRw4/3yD6/F3SQHc7AVYschRja+Bc3sbdjlA0eH1OjJc0DD4ghn1tnXN5/Wr6qm9xmaHt4A==",
    "server_final": "v=BQuhnKHqYDwQWS5jAw4sZed+C9KFUALsbrq81bB0mh+bcUUbbMPNNmBIupnS2AmyyDnG5CTBQtkjJ9kyY4kzmw==",
}


@pytest.mark.parametrize("example", [RFC_7677, SHA_512], ids=["rfc7677", "sha-512"])
def test_scram_speaks_as_the_examples_do(example: dict[str, str]) -> None:
    exchange = exchange_for(example["mechanism"], username="user", password="pencil", nonce=example["nonce"])
    assert exchange.first() == f"n,,n=user,r={example['nonce']}".encode()
    assert exchange.step(example["server_first"].encode()) == example["client_final"].encode()
    assert exchange.step(example["server_final"].encode()) is None


def begun() -> Scram:
    scram = Scram("SCRAM-SHA-256", "user", "pencil", RFC_7677["nonce"])
    scram.first()
    return scram


def test_a_broker_that_does_not_know_the_password_is_not_believed() -> None:
    """RFC 5802, section 3: the server's signature is compared; without that anybody could take the broker's place."""
    wrong = base64.b64encode(bytes(32)).decode()
    for final in (f"v={wrong}", "v=", "v=%%%", "x=1"):
        scram = begun()
        scram.step(RFC_7677["server_first"].encode())
        with pytest.raises(ScramError, match="did not prove"):
            scram.step(final.encode())
        assert not scram.finished


@pytest.mark.parametrize(
    ("first", "why"),
    [
        ("r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (f"r={RFC_7677['nonce']},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (f"r={RFC_7677['nonce']}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i={FEWEST_ITERATIONS - 1}", "iterations"),
        (f"r={RFC_7677['nonce']}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i={MOST_ITERATIONS + 1}", "iterations"),
        (f"r={RFC_7677['nonce']}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=-1", "iterations"),
        (f"r={RFC_7677['nonce']}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=many", "cannot be read"),
        (f"r={RFC_7677['nonce']}x,s=?,i=4096", "cannot be read"),
        (f"m=new,r={RFC_7677['nonce']}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "extension"),
        ("e=unknown-user", "rejected it: unknown-user"),
        ("nonsense", "cannot be read"),
        ("\xff", "cannot be read"),
        ("", "cannot be read"),
    ],
)
def test_a_first_answer_that_is_not_to_be_followed(first: str, why: str) -> None:
    with pytest.raises(ScramError, match=why):
        begun().step(first.encode("latin-1"))


def test_names_are_escaped_and_passwords_taken_as_kafka_takes_them() -> None:
    """Kafka's ScramFormatter: "=" and "," in names are escaped, passwords are UTF-8 without SASLprep."""
    assert Scram("SCRAM-SHA-256", "a=b,c", "x", "n").first() == b"n,,n=a=3Db=2Cc,r=n"
    finals = set()
    for password in ("pencil", "pen\u00adcil"):  # SASLprep would drop the soft hyphen
        scram = Scram("SCRAM-SHA-256", "user", password, RFC_7677["nonce"])
        scram.first()
        finals.add(scram.step(RFC_7677["server_first"].encode()))
    assert len(finals) == 2


def test_plain() -> None:
    exchange = PlainExchange("alice", "s=ecret,ñ")
    assert exchange.first() == "\0alice\0s=ecret,ñ".encode()
    exchange.step(b"")
    with pytest.raises(SaslError, match="zero byte"):
        PlainExchange("a\0b", "c")


def test_oauthbearer_with_extensions() -> None:
    """RFC 7628, section 3.1, and KIP-342."""
    exchange = OAuthExchange(OAuthToken("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==", {"logicalCluster": "lkc-1"}))
    assert exchange.first() == (
        b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01logicalCluster=lkc-1\x01\x01"
    )
    assert exchange.step(b"") is None


def test_a_token_that_is_refused_is_acknowledged_and_told() -> None:
    """RFC 7628, section 3.2.3: the server fails only after the client's \\x01."""
    exchange = OAuthExchange(OAuthToken("abc"))
    assert exchange.step(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(SaslError, match="invalid_token"):
        exchange.step(b"")


@pytest.mark.parametrize(
    "token",
    [
        OAuthToken(""),
        OAuthToken("a\x01b=c"),
        OAuthToken("open sesame"),
        OAuthToken("abc", {"auth": "x"}),
        OAuthToken("abc", {"a b": "x"}),
        OAuthToken("abc", {"a": "x\x01y"}),
        OAuthToken("abc", {"a": ""}),
    ],
)
def test_what_would_say_something_else_than_meant_is_not_sent(token: OAuthToken) -> None:
    with pytest.raises(SaslError) as told:
        OAuthExchange(token)
    assert not token.value or token.value not in str(told.value)


def test_a_token_does_not_show() -> None:
    assert "sesame" not in repr(OAuthToken("sesame"))
