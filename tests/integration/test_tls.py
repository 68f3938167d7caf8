"""TLS in a real broker: real clients, mTLS, the wrong protocol both ways, renewed certificates, large responses."""

import contextlib
import socket
import ssl
import struct
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import kafka
import pytest
import trio
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

import fencepost
from fencepost.protocol.messages.api01_fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.api03_metadata import MetadataRequest
from fencepost.protocol.messages.api17_sasl_handshake import SaslHandshakeRequest
from tests.kit.broker_process import BrokerFailed, BrokerProcess
from tests.kit.certificates import Authority, Signed, as_pkcs12, as_pkcs12_truststore
from tests.kit.waiting import until
from tests.kit.wire import FETCH, PRODUCE, Wire, batch_of, produce_request, values_in

pytestmark = pytest.mark.long
METADATA, SASL_HANDSHAKE = 3, 17
MIB = 1 << 20
NAMES = "PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL,SASL_SSL:SASL_SSL"
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_carol="carols";'


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def alice(authority: Authority) -> Signed:
    return authority.sign("alice", unit="ServiceUsers")


@pytest.fixture(scope="module")
def keystore(authority: Authority) -> Path:
    """The keystore of listener SSL, which the tests replace."""
    file = authority.ca.with_name("keystore.pem")
    file.write_text(authority.sign("first", addresses=["127.0.0.1"]).both)
    return file


@pytest.fixture(scope="module")
def broker(authority: Authority, keystore: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Listeners: PLAINTEXT; SSL with PEM; MUTUAL with PKCS#12 stores, which wants a client's certificate."""
    store = as_pkcs12(authority.sign("mutual", addresses=["127.0.0.1"]), "for-the-store")
    work_dir = tmp_path_factory.mktemp("tls")
    process = BrokerProcess(
        work_dir,
        data_dir=work_dir / "data",
        settings={
            "listener.security.protocol.map": NAMES,
            "ssl.keystore.location": str(keystore),
            "ssl.keystore.type": "PEM",
            "listener.name.mutual.ssl.keystore.location": str(store),
            "listener.name.mutual.ssl.keystore.type": "PKCS12",
            "listener.name.mutual.ssl.keystore.password": "for-the-store",
            "listener.name.mutual.ssl.truststore.location": str(as_pkcs12_truststore(authority.ca, "for-the-trust")),
            "listener.name.mutual.ssl.truststore.type": "PKCS12",
            "listener.name.mutual.ssl.truststore.password": "for-the-trust",
            "listener.name.mutual.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS,
            "group.initial.rebalance.delay.ms": "0",
            "fetch.max.bytes": str(64 * MIB),
        },
        arguments=[
            "--listen",
            "SSL://127.0.0.1:0",
            "--listen",
            "MUTUAL://127.0.0.1:0",
            "--listen",
            "SASL_SSL://127.0.0.1:0",
        ],
        environment={"FENCEPOST_DURABILITY": "os"},
    )
    with process:
        yield process


def connect(broker: BrokerProcess, authority: Authority, listener: str = "SSL", own: Signed | None = None) -> Any:
    """A TLS connection that checks the broker's certificate."""
    context = ssl.create_default_context(cafile=str(authority.ca))
    if own is not None:
        context.load_cert_chain(own.certificate, own.key)
    return context.wrap_socket(socket.create_connection(broker.listeners[listener], 30), server_hostname="127.0.0.1")


def bootstrap(broker: BrokerProcess, listener: str) -> str:
    host, port = broker.listeners[listener]
    return f"{host}:{port}"


def round_trip_confluent(address: str, authority: Authority, own: Signed, topic: str) -> list[bytes]:
    options = {
        "bootstrap.servers": address,
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.ca),
        "ssl.certificate.location": str(own.certificate),
        "ssl.key.location": str(own.key),
    }
    producer = Producer(options)
    producer.produce(topic, b"value")
    assert producer.flush(30) == 0
    consumer = Consumer(options | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = consumer.consume(1, 30)
    consumer.close()
    return [message.value() for message in found]


def round_trip_kafka_python(address: str, authority: Authority, own: Signed, topic: str) -> list[bytes]:
    options: dict[str, Any] = {
        "bootstrap_servers": address,
        "security_protocol": "SSL",
        "ssl_cafile": str(authority.ca),
        "ssl_certfile": str(own.certificate),
        "ssl_keyfile": str(own.key),
    }
    producer = kafka.KafkaProducer(**options)
    producer.send(topic, b"value").get(30)
    producer.close()
    consumer = kafka.KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=30_000, **options)
    found = [next(consumer).value]
    consumer.close()
    return found


def round_trip_aiokafka(address: str, authority: Authority, own: Signed, topic: str) -> list[bytes]:
    import asyncio

    context = ssl.create_default_context(cafile=str(authority.ca))
    context.load_cert_chain(own.certificate, own.key)
    options: dict[str, Any] = {"bootstrap_servers": address, "security_protocol": "SSL", "ssl_context": context}

    async def run() -> list[bytes]:
        async with aiokafka.AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait(topic, b"value")
        async with aiokafka.AIOKafkaConsumer(topic, auto_offset_reset="earliest", **options) as consumer:
            return [(await consumer.getone()).value]

    return asyncio.run(asyncio.wait_for(run(), 60))


def round_trip_own(address: str, authority: Authority, own: Signed, topic: str) -> list[bytes]:
    async def run() -> list[bytes]:
        options = {"ssl_cafile": str(authority.ca), "ssl_certfile": str(own.certificate), "ssl_keyfile": str(own.key)}
        async with fencepost.Client(address, security_protocol="ssl", **options) as client:
            async with client.producer() as producer:
                await producer.send(topic, b"value")
            async with client.consumer([topic], auto_offset_reset="earliest") as consumer:
                async for record in consumer:
                    return [record.value]
        raise AssertionError("the consumer ended")

    return trio.run(run)


@pytest.mark.parametrize("listener", ["SSL", "MUTUAL"])
@pytest.mark.parametrize(
    "round_trip", [round_trip_confluent, round_trip_kafka_python, round_trip_aiokafka, round_trip_own]
)
def test_a_record_there_and_back(
    broker: BrokerProcess,
    authority: Authority,
    alice: Signed,
    listener: str,
    round_trip: Callable[[str, Authority, Signed, str], list[bytes]],
) -> None:
    """SSL has a PEM keystore, MUTUAL PKCS#12 stores and a required certificate."""
    topic = f"{round_trip.__name__}-{listener}"
    assert round_trip(bootstrap(broker, listener), authority, alice, topic) == [b"value"]


def test_a_login_by_sasl_within_tls(broker: BrokerProcess, authority: Authority) -> None:
    """SASL_SSL: also a raw token (SaslHandshake v0), which only the login code answers."""
    options = {
        "bootstrap.servers": bootstrap(broker, "SASL_SSL"),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority.ca),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "carol",
        "sasl.password": "carols",
    }
    assert AdminClient(options).list_topics(timeout=30).brokers
    with Wire(connect(broker, authority, "SASL_SSL")) as wire:
        assert wire.call(SASL_HANDSHAKE, 0, SaslHandshakeRequest(mechanism="PLAIN")).error_code == 0
        wire.socket.sendall(struct.pack(">i", 13) + b"\0carol\0carols")
        assert wire.receive_frame() == b""
        assert wire.call(METADATA, 9, MetadataRequest(topics=[])).brokers


def test_a_certificate_is_logged_as_a_login(broker: BrokerProcess, authority: Authority, alice: Signed) -> None:
    with connect(broker, authority, "MUTUAL", alice):
        line = "LOGIN principal='User:CN=alice,OU=ServiceUsers' host=127.0.0.1 listener=MUTUAL mechanism=certificate"
        until(broker.log, lambda log: line in log)


def test_a_client_without_a_certificate_is_refused(broker: BrokerProcess, authority: Authority) -> None:
    """In TLS 1.3 the client may send before it is refused. The broker reads that, so the alert is not lost."""
    for _ in range(20):
        with connect(broker, authority, "MUTUAL") as sock:
            sock.sendall(bytes(100_000))
            with pytest.raises(OSError, match="certificate required"):
                sock.recv(1)
    until(
        broker.log,
        lambda log: "cause=login refused mechanism=certificate reason=peer did not return a certificate" in log,
    )


def test_a_plaintext_client_on_a_listener_with_tls_is_closed_with_one_line(broker: BrokerProcess) -> None:
    before = broker.log().count("does not speak TLS")
    with socket.create_connection(broker.listeners["SSL"], 30) as sock:
        sock.sendall(b"\0\0\0\x10" + bytes(16))
        assert sock.recv(100).startswith(b"\x15\x03")  # TLS's alert, which clients understand
        assert ends(sock)
    line = (
        "cause=the client does not speak TLS, but this listener uses it;"
        " set the client's security.protocol to SSL or SASL_SSL"
    )
    until(broker.log, lambda log: line in log)
    assert broker.log().count("does not speak TLS") == before + 1


def test_a_client_with_tls_on_a_plaintext_listener_is_closed_with_one_line(
    broker: BrokerProcess, authority: Authority
) -> None:
    before = broker.log().count("the client speaks TLS, but this listener is plaintext")
    with pytest.raises(OSError, match=r"EOF|reset|Errno"):
        connect(broker, authority, "PLAINTEXT")
    until(broker.log, lambda log: log.count("the client speaks TLS, but this listener is plaintext") == before + 1)


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00" + b"\xff" * 512, b"\x16", b""])
def test_garbage_in_place_of_a_handshake(broker: BrokerProcess, authority: Authority, sent: bytes) -> None:
    """The connection ends, without a traceback, and other clients are served."""
    with socket.create_connection(broker.listeners["SSL"], 30) as sock:
        sock.sendall(sent)
        with contextlib.suppress(OSError):  # the broker may have closed the connection already
            sock.shutdown(socket.SHUT_WR)
        assert ends(sock)
    with Wire(connect(broker, authority)) as wire:
        assert wire.call(METADATA, 9, MetadataRequest(topics=[])).brokers
    assert "Traceback" not in broker.log()


def ends(sock: socket.socket) -> bool:
    """Whether the broker closes the connection; it may send an alert before."""
    try:
        while sock.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


def test_a_slow_and_large_fetch_takes_little_memory(broker: BrokerProcess, authority: Authority) -> None:
    """60 MiB in one response, to a client that stops in the middle: the broker reads the file in pieces."""
    topic = f"large-{uuid.uuid4().hex[:6]}"
    value = bytes(range(256)) * (MIB * 9 // 10 // 256)
    with Wire(broker.connect()) as wire:
        wire.create_topic(topic)
        for _ in range(66):
            assert wire.produce(topic, batch_of(value)).error_code == 0
    asked = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=60 * MIB)]
    fetch = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=60 * MIB, topics=[FetchTopic(topic=topic, partitions=asked)]
    )
    with Wire(connect(broker, authority)) as wire:
        wire.call(METADATA, 9, MetadataRequest(topics=[]))
        before = broker.rss_bytes()
        wire.send(FETCH, 11, fetch)
        time.sleep(0.5)
        peak = broker.rss_bytes()
        _, answer = wire.receive(FETCH, 11)
        peak = max(peak, broker.rss_bytes())
        found = values_in(answer.responses[0].partitions[0])
    assert len(found) > 60
    assert set(found) == {value}
    assert peak - before < 12 * MIB


def test_many_and_large_requests_in_flight(broker: BrokerProcess, authority: Authority) -> None:
    """Records of TLS end anywhere in frames, and one record holds many frames: none waits for the next bytes."""
    topic = f"pipelined-{uuid.uuid4().hex[:6]}"
    values = [bytes([number]) * size for number, size in enumerate([1, 900_000, 3, 20_000, 16_384, 70_000, 5] * 3)]
    with Wire(connect(broker, authority)) as wire:
        wire.create_topic(topic)
        frames = [wire.frame(PRODUCE, 9, produce_request(topic, batch_of(value))) for value in values]
        wire.socket.sendall(b"".join(frame for _, frame in frames))
        assert [wire.receive(PRODUCE, 9)[0] for _ in frames] == [correlation_id for correlation_id, _ in frames]
        small = [wire.frame(METADATA, 9, MetadataRequest(topics=[])) for _ in range(300)]
        wire.socket.sendall(b"".join(frame for _, frame in small))
        assert [wire.receive(METADATA, 9)[0] for _ in small] == [correlation_id for correlation_id, _ in small]
        found, offset = [], 0
        while offset < len(values):
            read = values_in(wire.fetch(topic, offset))
            found += read
            offset += len(read)
    assert found == values


def serial(broker: BrokerProcess, authority: Authority, listener: str = "SSL") -> int:
    """The serial number of a listener's certificate."""
    with connect(broker, authority, listener) as sock:
        return int(sock.getpeercert()["serialNumber"], 16)


def test_a_renewed_certificate_serves_new_handshakes_within_5_s(
    broker: BrokerProcess, authority: Authority, keystore: Path
) -> None:
    """Connections stay. A broken certificate is logged once, and the old one stays."""
    with Wire(connect(broker, authority)) as wire:
        old = serial(broker, authority)
        keystore.write_text(authority.sign("second", addresses=["127.0.0.1"]).both)
        began = time.monotonic()
        new = until(lambda: serial(broker, authority), lambda found: found != old)
        assert time.monotonic() - began < 5
        assert wire.call(METADATA, 9, MetadataRequest(topics=[])).brokers
        keystore.write_text("-----BEGIN CERTIFICATE-----\nnonsense\n")
        until(
            broker.log,
            lambda log: "cannot use the new certificate, the listener keeps the old one cause=listener SSL:" in log,
        )
        time.sleep(4)
        assert broker.log().count("keeps the old one cause=listener SSL:") == 1
        assert serial(broker, authority) == new
        assert wire.call(METADATA, 9, MetadataRequest(topics=[])).brokers
    keystore.write_text(authority.sign("third", addresses=["127.0.0.1"]).both)
    until(lambda: serial(broker, authority), lambda found: found != new)


def test_a_certificate_altered_at_run_time(broker: BrokerProcess, authority: Authority) -> None:
    """As Kafka's dynamic settings: `config set` for one listener. The value of a password is not listed."""
    store = as_pkcs12(authority.sign("altered", addresses=["127.0.0.1"]), "for-altered")
    name = "listener.name.sasl_ssl.ssl.keystore"
    changes = {f"{name}.location": str(store), f"{name}.type": "PKCS12", f"{name}.password": "for-altered"}
    before = serial(broker, authority, "SASL_SSL")
    admin = AdminClient({"bootstrap.servers": broker.address})
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in changes.items()]
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)
    until(lambda: serial(broker, authority, "SASL_SSL"), lambda found: found != before)
    [described] = [one.result(30) for one in admin.describe_configs([resource]).values()]
    assert described[f"{name}.location"].value == str(store)
    assert described[f"{name}.password"].value is None
    assert described[f"{name}.password"].is_sensitive
    assert "for-altered" not in broker.log()


def test_only_a_plaintext_listener_that_others_can_reach_is_warned_of(broker: BrokerProcess, tmp_path: Path) -> None:
    """Once, at the start, if no authorizer is set."""
    warning = "every client that reaches this address may do everything"
    assert warning not in broker.log()
    options: dict[str, Any] = {"arguments": ["--listen", "LAN://0.0.0.0:0"]}
    names = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LAN:PLAINTEXT"}
    with BrokerProcess(tmp_path / "open", settings=names, **options) as opened:
        assert opened.log().count(warning) == 1
        assert "listener=LAN://0.0.0.0:0" in opened.log()
    with BrokerProcess(
        tmp_path / "closed", settings=names | {"authorizer.class.name": "standard"}, **options
    ) as closed:
        assert warning not in closed.log()


def test_a_keystore_that_cannot_be_used_ends_the_start(tmp_path: Path) -> None:
    store = tmp_path / "server.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed" + bytes(20))
    broken = BrokerProcess(
        tmp_path,
        settings={"ssl.keystore.location": str(store)},
        arguments=["--listen", "SSL://127.0.0.1:0"],
    )
    with pytest.raises(BrokerFailed, match=r"is a JKS store, which only Java reads\. Convert it: keytool") as refused:
        broken.start()
    assert "Traceback" not in str(refused.value)
