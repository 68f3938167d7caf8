"""A fencepost and a Kafka with the same settings of SASL and TLS, and the same users."""

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import fencepost.sync
from fencepost.client.admin import NewTopic, ScramMechanism, ScramUpsertion
from tests.interop.conftest import started
from tests.interop.java.real_kafka import RealKafka
from tests.interop.java.secured_kafka import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE, UNSECURED, escaped
from tests.kit.broker_process import BrokerProcess
from tests.kit.certificates import Authority, Signed

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


TOPIC = "logins"
"""Each broker has it, with one partition."""
LISTENERS = {
    "SASL": "SASL_PLAINTEXT",
    "RENEWED": "SASL_PLAINTEXT",
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "BOTH": "SASL_SSL",
}


class Addresses(NamedTuple):
    """HOST:PORT of each listener, and the files that clients need for TLS."""

    plaintext: str
    sasl: str
    renewed: str
    """Its sessions last for SESSION_MS."""
    tls: str
    mutual: str
    """TLS, and clients need a certificate."""
    both: str
    """SASL over TLS."""
    authority: Authority
    own: Signed
    """A certificate for a client."""


def settings(authority: Authority) -> dict[str, str]:
    """Kafka's names, for both brokers."""
    plain = f'{PLAIN_MODULE} username="admin" password="admin" user_{USER}="{PASSWORD}" user_bob="bob-secret";'
    own = authority.sign("broker", addresses=["127.0.0.1"])
    found = {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "connection.failed.authentication.delay.ms": "20",
        "group.initial.rebalance.delay.ms": "0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": escaped(own.key.read_text()),
        "ssl.keystore.certificate.chain": escaped(own.certificate.read_text()),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": escaped(authority.ca.read_text()),
        "listener.name.mutual.ssl.client.auth": "required",
    }
    for listener in ("sasl", "renewed", "both"):
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
    authority = Authority(work_dir / "pki")
    own = authority.sign("client")
    if kind == "kafka":
        with started(RealKafka(work_dir, settings=settings(authority), listeners=LISTENERS)) as kafka:
            add_users(kafka.address)
            yield Addresses(kafka.address, *map(kafka.address_of, LISTENERS), authority, own)
        return
    names = {"PLAINTEXT": "PLAINTEXT", **LISTENERS}
    protocols = ",".join(f"{name}:{protocol}" for name, protocol in names.items())
    properties = {**settings(authority), "listener.security.protocol.map": protocols}
    file = work_dir / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    listen = [word for name in LISTENERS for word in ("--listen", f"{name}://127.0.0.1:0")]
    with BrokerProcess(work_dir, arguments=["--config", str(file), *listen]) as process:
        add_users(process.address)
        addresses = (f"{host}:{port}" for host, port in (process.listeners[name] for name in LISTENERS))
        yield Addresses(process.address, *addresses, authority, own)
        assert "Traceback" not in process.log()
        assert PASSWORD not in process.log()


def add_users(address: str) -> None:
    """And the topic."""
    with fencepost.sync.Client(address, default_api_timeout=100) as kafka, kafka.admin() as admin:
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            admin.alter_user_scram_credentials(upsert=ScramUpsertion(USER, PASSWORD, mechanism, 4096))
        admin.create_topics(NewTopic(TOPIC, partitions=1))


def token(seconds: float = 60, **claims: Any) -> str:
    """A token without a signature."""

    def part(value: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    now = time.time()
    return f"{part({'alg': 'none'})}.{part({'sub': USER, 'iat': now - 90, 'exp': now + seconds, **claims})}."
