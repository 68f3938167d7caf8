"""`fencepost.testing` with TLS and users, under real clients: they write, and what is wrong is refused."""

import asyncio
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost import AuthenticationError, sync
from fencepost.testing import Broker

pytestmark = pytest.mark.interop
USERS = {"alice": 'alice "secret"', "bob": "bob=secret"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    access = {"authorizer.class.name": "standard", "super.users": "User:alice"}
    with Broker(access, tls=True, users=USERS) as broker:
        yield broker


def test_confluent_kafka(broker: Broker) -> None:
    from confluent_kafka import Producer

    topic = broker.create_topic(broker.unique())
    errors: list[Any] = []
    for user in USERS:
        producer = Producer({**broker.client_config(user), "log_level": 0})
        producer.produce(topic, user, on_delivery=lambda error, _message: errors.append(error and error.name()))
        assert producer.flush(30) == 0
    assert errors == [None, "TOPIC_AUTHORIZATION_FAILED"]
    broker.assert_exactly_once(topic, ["alice"])


def test_aiokafka(broker: Broker) -> None:
    from aiokafka import AIOKafkaProducer

    topic = broker.create_topic(broker.unique())

    async def write() -> None:
        async with AIOKafkaProducer(**broker.client_keywords()) as producer:
            await producer.send_and_wait(topic, b"one")

    asyncio.run(write())
    broker.assert_exactly_once(topic, ["one"])


def test_kafka_python(broker: Broker) -> None:
    from kafka import KafkaProducer

    topic = broker.create_topic(broker.unique())
    producer = KafkaProducer(**broker.client_keywords())
    producer.send(topic, b"one").get(30)
    producer.close()
    broker.assert_exactly_once(topic, ["one"])


def test_fencepost_also_after_a_restart(broker: Broker) -> None:
    topic = broker.create_topic(broker.unique())
    with sync.Client.from_config(broker.client_config("alice")) as kafka, kafka.producer() as producer:
        producer.send(topic, b"one")
        producer.flush()
        broker.restart()
        producer.send(topic, b"two")
        producer.flush()
    broker.assert_exactly_once(topic, ["one", "two"])


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"sasl.password": "guessed"}, "Authentication failed"),
        ({"ssl.ca.location": ""}, r"certificate is not trusted: .*; ssl_cafile \(ssl\.ca\.location\) must name"),
    ],
)
def test_what_is_wrong_is_refused(broker: Broker, wrong: dict[str, str], why: str) -> None:
    config = {name: value for name, value in {**broker.client_config(), **wrong}.items() if value}
    with (
        sync.Client.from_config(config) as kafka,
        kafka.admin() as admin,
        pytest.raises(AuthenticationError, match=why),
    ):
        admin.list_topics()


def test_an_unknown_user_is_refused_with_the_known_ones(broker: Broker) -> None:
    with pytest.raises(ValueError, match=re.escape("no user 'carol', but ['alice', 'bob']")):
        broker.client_config("carol")


def test_users_without_tls_are_kept_in_the_directory(tmp_path: Path) -> None:
    for _ in range(2):
        with Broker(users={"alice": "secret"}, directory=tmp_path / "data") as broker:
            assert broker.ca_file is None
            with sync.Client.from_config(broker.client_config()) as kafka, kafka.admin() as admin:
                assert list(admin.describe_user_scram_credentials()) == ["alice"]


def test_the_certificate_is_strictly_valid(broker: Broker) -> None:
    """As Python 3.13 and later check it."""
    fetched = subprocess.run(
        ["openssl", "s_client", "-connect", broker.bootstrap, "-CAfile", str(broker.ca_file), "-x509_strict"],
        input="",
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert "Verify return code: 0 (ok)" in fetched.stdout
