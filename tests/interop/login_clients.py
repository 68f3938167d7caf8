"""Each client that logs in: it writes a record and reads it, or raises PermissionError with the client's message."""

import asyncio
import json
import ssl
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import aiokafka
import aiokafka.abc
import aiokafka.errors
import kafka
import kafka.errors
import kafka.net.sasl.oauth
import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka import TopicPartition as ConfluentPartition

import fencepost.sync
from fencepost import AuthenticationError, TopicPartition
from tests.interop.members import franz_go, node
from tests.interop.sasl_brokers import PASSWORD, TOPIC, USER, token
from tests.kit.certificates import Signed

WAIT_S = 100.0


class Login(NamedTuple):
    """How a client connects, and as whom."""

    address: str
    protocol: str = "SASL_PLAINTEXT"
    mechanism: str | None = None
    refused: bool = False
    """Whether the broker is to refuse it: the password is wrong, the token has expired, or TLS lacks a certificate."""
    ca: Path | None = None
    own: Signed | None = None

    @property
    def password(self) -> str:
        return "wrong" if self.refused else PASSWORD

    @property
    def token(self) -> str:
        return token(-30 if self.refused else 60)


def with_confluent(login: Login, value: str) -> None:
    """confluent-kafka: librdkafka tries again and again, and reports each refusal."""
    reported: list[str] = []
    written: list[Message] = []
    config: dict[str, Any] = {
        "bootstrap.servers": login.address,
        "security.protocol": login.protocol,
        "error_cb": lambda error: reported.append(error.str()),
        "log_level": 0,
    }
    if login.ca is not None:
        config["ssl.ca.location"] = str(login.ca)
    if login.own is not None:
        config |= {"ssl.certificate.location": str(login.own.certificate), "ssl.key.location": str(login.own.key)}
    if login.mechanism == "OAUTHBEARER":
        config |= {"sasl.mechanisms": login.mechanism, "oauth_cb": lambda _config: (login.token, time.time() + 60)}
    elif login.mechanism is not None:
        config |= {"sasl.mechanisms": login.mechanism, "sasl.username": USER, "sasl.password": login.password}
    producer = Producer(config)
    producer.produce(TOPIC, value, partition=0, on_delivery=lambda _error, message: written.append(message))
    deadline = time.monotonic() + WAIT_S
    while not written and time.monotonic() < deadline:
        producer.poll(0.05)
        refused = [one for one in reported if "uthentication" in one or "SSL" in one]
        if refused:
            raise PermissionError(refused[0])
    assert written, reported
    consumer = Consumer(config | {"group.id": "unused"})
    consumer.assign([ConfluentPartition(TOPIC, 0, written[0].offset())])
    [message] = consumer.consume(1, WAIT_S)
    consumer.close()
    assert message.value() == value.encode()


def python_options(login: Login, tokens: Any) -> dict[str, Any]:
    """What aiokafka and kafka-python take alike."""
    context = ssl.create_default_context(cafile=login.ca)
    if login.own is not None:
        context.load_cert_chain(login.own.certificate, login.own.key)
    return {
        "bootstrap_servers": login.address,
        "security_protocol": login.protocol,
        "ssl_context": context,
        "sasl_mechanism": login.mechanism or "PLAIN",
        "sasl_plain_username": USER,
        "sasl_plain_password": login.password,
        "sasl_oauth_token_provider": tokens,
    }


def with_aiokafka(login: Login, value: str) -> None:
    class Tokens(aiokafka.abc.AbstractTokenProvider):
        async def token(self) -> str:
            return login.token

    async def main() -> None:
        options = python_options(login, Tokens())
        producer, consumer = aiokafka.AIOKafkaProducer(**options), aiokafka.AIOKafkaConsumer(**options)
        try:
            await producer.start()
            written = await producer.send_and_wait(TOPIC, value.encode())
            await consumer.start()
            partition = aiokafka.TopicPartition(TOPIC, 0)
            consumer.assign([partition])
            consumer.seek(partition, written.offset)
            assert (await consumer.getone()).value == value.encode()
        finally:
            await producer.stop()
            await consumer.stop()

    try:
        asyncio.run(main())
    except aiokafka.errors.KafkaError as error:
        raise PermissionError(str(error)) from error


def with_kafka_python(login: Login, value: str) -> None:
    """It tries again and again: where it is refused, for half a second. Its producer then leaves sockets open."""

    class Tokens(kafka.net.sasl.oauth.AbstractTokenProvider):
        def token(self) -> str:
            return login.token

    options = python_options(login, Tokens()) | {"bootstrap_timeout_ms": 500 if login.refused else 30_000}
    try:
        kafka.KafkaAdminClient(**options).close()
        producer = kafka.KafkaProducer(**options)
        written = producer.send(TOPIC, value.encode()).get(WAIT_S)
        producer.close()
        consumer = kafka.KafkaConsumer(consumer_timeout_ms=1000 * WAIT_S, **options)
        partition = kafka.TopicPartition(TOPIC, 0)
        consumer.assign([partition])
        consumer.seek(partition, written.offset)
        assert next(consumer).value == value.encode()
        consumer.close()
    except kafka.errors.KafkaError as error:
        raise PermissionError(str(error)) from error


def with_fencepost(login: Login, value: str) -> None:
    options: dict[str, Any] = {}
    if login.mechanism == "OAUTHBEARER":
        options = {"sasl_mechanism": login.mechanism, "sasl_oauth_token_provider": lambda: login.token}
    elif login.mechanism is not None:
        options = {"sasl_mechanism": login.mechanism, "sasl_username": USER, "sasl_password": login.password}
    if login.ca is not None:
        options["ssl_cafile"] = str(login.ca)
    if login.own is not None:
        options |= {"ssl_certfile": str(login.own.certificate), "ssl_keyfile": str(login.own.key)}
    protocol = login.protocol.lower()
    try:
        with fencepost.sync.Client(login.address, security_protocol=protocol, **options) as client:
            with client.producer() as producer:
                written = producer.send(TOPIC, value.encode(), partition=0)
            with client.consumer(group=None) as consumer:
                partition = TopicPartition(TOPIC, 0)
                consumer.assign([partition])
                consumer.seek(partition, written.offset)
                assert next(iter(consumer)).value == value.encode()
    except AuthenticationError as error:
        raise PermissionError(str(error)) from error


# Programs: they take the login as JSON, and print what they read; a program that fails prints why


def with_kafkajs(login: Login, value: str) -> None:
    try:
        run([node.node(), str(node.HERE / "login_with_kafkajs.js")], login, value)
    except node.Unavailable as missing:
        pytest.skip(str(missing))


def with_franz_go(login: Login, value: str) -> None:
    try:
        run([franz_go.franz_go()], login, value)
    except franz_go.Unavailable as missing:
        pytest.skip(str(missing))


def run(command: Sequence[str], login: Login, value: str) -> None:
    given = {
        "bootstrap": login.address,
        "tls": login.protocol.endswith("SSL"),
        "ca": login.ca and str(login.ca),
        "certificate": login.own and str(login.own.certificate),
        "key": login.own and str(login.own.key),
        "mechanism": login.mechanism if login.protocol.startswith("SASL") else None,
        "username": USER,
        "password": login.password,
        "token": login.token,
        "topic": TOPIC,
        "value": value,
    }
    done = subprocess.run([*command, json.dumps(given)], capture_output=True, text=True, timeout=WAIT_S, check=False)
    if done.returncode:
        raise PermissionError(done.stderr)
    assert done.stdout.strip() == value
