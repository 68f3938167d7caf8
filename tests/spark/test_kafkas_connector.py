"""Spark's own Kafka connector, with Java's client, over TLS and a login: it may do what the rules of its user allow."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost import sync
from fencepost.client.admin import Acl, AclOperation, AclResourceType
from fencepost.testing import Broker
from tests.interop.java.jars import Unavailable, class_path
from tests.kit.java import skip_or_fail

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
POM = Path(__file__).with_name("kafka_connector_pom.xml")
TOPIC, FORBIDDEN = "orders", "salaries"


@pytest.fixture(scope="module")
def connector(spark: Any) -> Any:
    """The session, with the connector's jars."""
    try:
        jars = class_path(POM).split(os.pathsep)
    except Unavailable as missing:
        skip_or_fail(missing)
    for jar in jars:
        spark.sql(f"ADD JAR '{jar}'")
    return spark


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    access = {"authorizer.class.name": "standard", "super.users": "User:admin"}
    with Broker(access, tls=True, users={"admin": "of the admin", "alice": "of alice"}) as broker:
        rights = (AclOperation.READ, AclOperation.WRITE)
        rules = [Acl(AclResourceType.TOPIC, TOPIC, "User:alice", right) for right in rights]
        with sync.Client.from_config(broker.client_config("admin")) as kafka, kafka.admin() as admin:
            admin.create_topics([TOPIC, FORBIDDEN])
            admin.create_acls(rules)
        yield broker


def options(broker: Broker) -> dict[str, str]:
    """Java's options for alice, with the connector's prefix."""
    own = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
        ' username="alice" password="of alice";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(broker.ca_file),
    }
    return {f"kafka.{name}": value for name, value in own.items()}


def write(connector: Any, broker: Broker, topic: str) -> None:
    frame = connector.range(100).selectExpr("cast(id AS string) AS value")
    frame.write.format("kafka").options(**options(broker), topic=topic).save()


def read(connector: Any, broker: Broker, topic: str) -> list[str]:
    frame = connector.read.format("kafka").options(**options(broker), subscribe=topic).load()
    return [row.value for row in frame.selectExpr("cast(value AS string) AS value").collect()]


def test_it_writes_and_reads_what_the_rules_allow(connector: Any, broker: Broker) -> None:
    write(connector, broker, TOPIC)
    assert sorted(read(connector, broker, TOPIC), key=int) == [str(number) for number in range(100)]


def test_a_topic_without_a_rule_is_not_read(connector: Any, broker: Broker) -> None:
    with pytest.raises(Exception, match=r"org\.apache\.kafka\.common\.errors\.TopicAuthorizationException"):
        read(connector, broker, FORBIDDEN)


def test_a_topic_without_a_rule_is_not_written(connector: Any, broker: Broker) -> None:
    """Of a jar that was added to a session, the driver cannot read a task's exception: the broker says what it was."""
    with pytest.raises(Exception, match="Job aborted"):
        write(connector, broker, FORBIDDEN)
    events = [str(event) for event in broker.journal if "'producer-" in str(event)]
    assert any(f"{FORBIDDEN}: TOPIC_AUTHORIZATION_FAILED" in event for event in events), events
    broker.assert_exactly_once(FORBIDDEN, [])
