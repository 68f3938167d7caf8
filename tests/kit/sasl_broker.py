"""A broker with listeners for SASL, its users, and logins by hand, frame by frame."""

import socket
from typing import Any

from fencepost.protocol.messages.api17_sasl_handshake import SaslHandshakeRequest
from fencepost.protocol.messages.api36_sasl_authenticate import SaslAuthenticateRequest
from fencepost.protocol.messages.api51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from fencepost.protocol.scram import MECHANISM_NUMBERS, Scram, salted_password
from tests.kit.broker_process import BrokerProcess
from tests.kit.wire import Wire

SASL_HANDSHAKE, SASL_AUTHENTICATE, ALTER_SCRAM = 17, 36, 51
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
JAAS = f'{PLAIN_MODULE} user_alice="alice-secret" user_bob="bob-secret";'
ITERATIONS = 4096
LISTENERS = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,RENEWED:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl.plain.sasl.jaas.config": JAAS,
    "listener.name.renewed.plain.sasl.jaas.config": JAAS,
    "listener.name.renewed.connections.max.reauth.ms": "1500",
    "connection.failed.authentication.delay.ms": "50",
}
"""The settings of a broker with the listeners PLAINTEXT, SASL and RENEWED, whose sessions last for 1.5 s."""
LISTEN = ["--listen", "SASL://127.0.0.1:0", "--listen", "RENEWED://127.0.0.1:0"]


def connect(broker: BrokerProcess, listener: str = "SASL") -> Wire:
    """A connection that has not logged in."""
    return Wire(socket.create_connection(broker.listeners[listener], 10))


def handshake(wire: Wire, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return wire.call(SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism=mechanism))


def authenticate(wire: Wire, message: bytes, version: int = 2) -> Any:
    return wire.call(SASL_AUTHENTICATE, version, SaslAuthenticateRequest(auth_bytes=message))


def log_in(wire: Wire, user: str = "alice", password: str | None = None) -> Any:
    """A whole login by PLAIN; returns the last answer."""
    handshake(wire)
    return authenticate(wire, f"\0{user}\0{password or f'{user}-secret'}".encode())


def add_scram_users(broker: BrokerProcess, **passwords: str) -> None:
    """Credentials of both mechanisms, over the listener without SASL."""
    with Wire(broker.connect()) as wire:
        for mechanism, number in MECHANISM_NUMBERS.items():
            upsertions = [
                ScramCredentialUpsertion(
                    name=name,
                    mechanism=number,
                    iterations=ITERATIONS,
                    salt=b"salt of the user",
                    salted_password=salted_password(mechanism, password.encode(), b"salt of the user", ITERATIONS),
                )
                for name, password in passwords.items()
            ]
            answer = wire.call(ALTER_SCRAM, 0, AlterUserScramCredentialsRequest(deletions=[], upsertions=upsertions))
            assert all(one.error_code == 0 for one in answer.results)


def scram_login(wire: Wire, mechanism: str, user: str, password: str) -> int:
    """A whole login by SCRAM; returns the error code."""
    client = Scram(mechanism, user, password, "client-nonce")
    handshake(wire, mechanism)
    challenge = authenticate(wire, client.first())
    final = authenticate(wire, client.step(challenge.auth_bytes))
    if not final.error_code:
        client.step(final.auth_bytes)
        assert client.finished, "the broker proved that it knows the password"
    return int(final.error_code)
