"""A fencepost and a Kafka with the same SASL settings and the same users."""

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import fencepost.sync
from fencepost.client.admin import ScramMechanism, ScramUpsertion
from tests.interop.conftest import started
from tests.interop.java.real_kafka import RealKafka
from tests.interop.java.secured_kafka import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE, UNSECURED
from tests.kit.broker_process import BrokerProcess

USER, PASSWORD = "alice", "alice-secret"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SESSION_MS = 1500
REFUSALS = {
    "PLAIN": "Authentication failed: Invalid username or password",
    "SCRAM-SHA-256": "Authentication failed during authentication due to invalid credentials with SASL mechanism"
    " SCRAM-SHA-256",
    "SCRAM-SHA-512": "Authentication failed during authentication due to invalid credentials with SASL mechanism"
    " SCRAM-SHA-512",
    "OAUTHBEARER": '{"status":"invalid_token"}',
}
"""What a client reads that is refused, by mechanism."""


class Addresses(NamedTuple):
    """HOST:PORT of each listener."""

    plaintext: str
    sasl: str
    renewed: str
    """Its sessions last for SESSION_MS."""


def settings() -> dict[str, str]:
    """Kafka's names, for both brokers."""
    plain = f'{PLAIN_MODULE} username="admin" password="admin" user_{USER}="{PASSWORD}" user_bob="bob-secret";'
    found = {"sasl.enabled.mechanisms": ",".join(MECHANISMS), "connection.failed.authentication.delay.ms": "20"}
    for listener in ("sasl", "renewed"):
        name = f"listener.name.{listener}"
        found[f"{name}.plain.sasl.jaas.config"] = plain
        found[f"{name}.scram-sha-256.sasl.jaas.config"] = SCRAM_MODULE
        found[f"{name}.scram-sha-512.sasl.jaas.config"] = SCRAM_MODULE
        found[f"{name}.oauthbearer.sasl.jaas.config"] = OAUTH_MODULE
        found[f"{name}.oauthbearer.sasl.server.callback.handler.class"] = UNSECURED
    found["listener.name.renewed.connections.max.reauth.ms"] = str(SESSION_MS)
    found["listener.name.renewed.plain.connections.max.reauth.ms"] = str(SESSION_MS)
    return found


@contextmanager
def broker(kind: str, work_dir: Path) -> Iterator[Addresses]:
    """A broker that runs: "fencepost" or "kafka"."""
    if kind == "kafka":
        listeners = {"SASL": "SASL_PLAINTEXT", "RENEWED": "SASL_PLAINTEXT"}
        with started(RealKafka(work_dir, settings=settings(), listeners=listeners)) as kafka:
            found = Addresses(kafka.address, kafka.address_of("SASL"), kafka.address_of("RENEWED"))
            add_users(found.plaintext)
            yield found
        return
    names = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,RENEWED:SASL_PLAINTEXT"}
    listen = ["--listen", "SASL://127.0.0.1:0", "--listen", "RENEWED://127.0.0.1:0"]
    with BrokerProcess(work_dir, settings={**settings(), **names}, arguments=listen) as process:
        sasl, renewed = (f"{host}:{port}" for host, port in list(process.listeners.values())[1:])
        add_users(process.address)
        yield Addresses(process.address, sasl, renewed)
        assert "Traceback" not in process.log()
        assert PASSWORD not in process.log()


def add_users(address: str) -> None:
    with fencepost.sync.Client(address, default_api_timeout=100) as kafka, kafka.admin() as admin:
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            admin.alter_user_scram_credentials(upsert=ScramUpsertion(USER, PASSWORD, mechanism, 4096))


def token(seconds: float = 60, **claims: Any) -> str:
    """A token without a signature."""

    def part(value: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    now = time.time()
    return f"{part({'alg': 'none'})}.{part({'sub': USER, 'iat': now - 90, 'exp': now + seconds, **claims})}."
