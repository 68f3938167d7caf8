"""What TLS costs a fetch: the same topic read by librdkafka over TLS and in plaintext, in turns.

    python -m bench.tls [--megabytes 400] [--rounds 5]
    python -m bench.tls --plaintext HOST:PORT --tls HOST:PORT --cafile FILE [--pid PID]

Without addresses it starts a fencepost with a certificate of its own. Any Kafka will do, so the rows of two brokers can
be compared. Each row has the median of the rounds, and the lowest and highest: MB/s that the consumer reads, and CPU
seconds of the broker for a GB.
"""

import argparse
import datetime
import ipaddress
import json
import statistics
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from bench.target import OwnBroker, Target

RECORD_BYTES = 10_000
MB = 1_000_000
SSL_NAME = "SSL://127.0.0.1:"


@dataclass
class Way:
    """One way to the broker."""

    name: str
    options: dict[str, Any]


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1: the broker's keystore, and the file that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bench")]), datetime.datetime.now(datetime.UTC)
    own_address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).add_extension(own_address, critical=True)
    builder = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    certificate = builder.sign(key, SHA256()).public_bytes(Encoding.PEM)
    keystore, trusted = directory / "keystore.pem", directory / "trusted.pem"
    keystore.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificate)
    trusted.write_bytes(certificate)
    return keystore, trusted


def fill(way: Way, topic: str, size_bytes: int) -> None:
    """Write records until the topic has the size."""
    admin = AdminClient(way.options)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    producer = Producer(way.options | {"batch.size": 1_000_000, "linger.ms": 20, "message.max.bytes": 1_040_000})
    value = uuid.uuid4().bytes * (RECORD_BYTES // 16)
    for _ in range(size_bytes // RECORD_BYTES):
        producer.produce(topic, value)
        producer.poll(0)
        if len(producer) > 5_000:
            producer.flush()
    producer.flush()


def read(way: Way, topic: str, size_bytes: int) -> float:
    """Read the whole topic. Returns the seconds from the first record to the last."""
    consumer = Consumer(
        way.options
        | {
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 10 << 20,
            "queued.max.messages.kbytes": 200 << 10,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    wanted = size_bytes // RECORD_BYTES
    found = len(consumer.consume(1, 30))
    began = time.perf_counter()
    while found < wanted:
        found += len(consumer.consume(min(1_000, wanted - found), 30))
    seconds = time.perf_counter() - began
    consumer.close()
    return seconds


def measure(ways: list[Way], target: Target, size_bytes: int, rounds: int) -> None:
    """Read in turns, the order turned round each time, and print the rows."""
    topic = f"tls-{uuid.uuid4().hex[:8]}"
    fill(ways[0], topic, size_bytes)
    rates: dict[str, list[float]] = {way.name: [] for way in ways}
    cpu: dict[str, list[float]] = {way.name: [] for way in ways}
    for number in range(rounds + 1):
        for way in ways if number % 2 else ways[::-1]:
            before = target.cpu_seconds()
            seconds = read(way, topic, size_bytes)
            after = target.cpu_seconds()
            if number == 0:
                continue  # warm
            rates[way.name].append(size_bytes / MB / seconds)
            if before is not None and after is not None:
                cpu[way.name].append((after - before) * 1e9 / size_bytes)
    for way in ways:
        report(way.name, mb_per_s=rates[way.name], broker_cpu_s_per_gb=cpu[way.name])
    plain, encrypted = (statistics.median(rates[way.name]) for way in ways)
    print(json.dumps({"row": "TLS / plaintext", "mb_per_s": round(encrypted / plain, 2)}), flush=True)


def report(row: str, **figures: list[float]) -> None:
    """Print one row: the median of each figure, and its lowest and highest."""
    shown = {
        name: [round(number, 2) for number in (statistics.median(found), min(found), max(found))]
        for name, found in figures.items()
        if found
    }
    print(json.dumps({"row": row} | shown), flush=True)


def ways_to(plaintext: str, tls: str, cafile: Path) -> list[Way]:
    """Plaintext, then TLS."""
    encrypted = {"bootstrap.servers": tls, "security.protocol": "SSL", "ssl.ca.location": str(cafile)}
    return [Way("plaintext", {"bootstrap.servers": plaintext}), Way("TLS", encrypted)]


def main() -> None:
    """Measure and print one line of JSON for each row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--plaintext", metavar="HOST:PORT")
    parser.add_argument("--tls", metavar="HOST:PORT")
    parser.add_argument("--cafile", type=Path)
    parser.add_argument("--pid", type=int, help="the broker's process id, for its CPU")
    given = parser.parse_args()
    size_bytes = given.megabytes * MB
    if given.tls is not None:
        target = Target("other", given.plaintext, given.pid)
        measure(ways_to(given.plaintext, given.tls, given.cafile), target, size_bytes, given.rounds)
        return
    with tempfile.TemporaryDirectory() as directory:
        keystore, trusted = make_certificate(Path(directory))
        broker = OwnBroker("fencepost", Path(directory), "os")
        broker.arguments = ["--listen", "SSL://127.0.0.1:0", "--set", f"ssl.keystore.location={keystore}"]
        broker.start()
        try:
            encrypted = next(part for part in broker.facts["listeners"].split(",") if part.startswith(SSL_NAME))
            ways = ways_to(broker.address, encrypted.removeprefix("SSL://"), trusted)
            measure(ways, broker, size_bytes, given.rounds)
        finally:
            broker.stop()


if __name__ == "__main__":
    main()
