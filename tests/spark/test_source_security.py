"""Source and sink reach a real Kafka and our broker by every kind of listener, and say at once what is wrong."""

import pickle
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("confluent_kafka")

import pyarrow as pa

from fencepost.spark_connector.network.cluster import Cluster
from fencepost.spark_connector.network.wire import BrokerError, NotTrustedError
from fencepost.spark_connector.sink.commit import commit_batch
from fencepost.spark_connector.sink.commit_marker import BatchId
from fencepost.spark_connector.sink.encode import SinkError
from fencepost.spark_connector.sink.options import SinkOptions, parse_sink_options
from fencepost.spark_connector.sink.task import Task
from fencepost.spark_connector.source.options import parse_options
from tests.interop.conftest import started
from tests.interop.java.real_kafka import RealKafka
from tests.interop.java.secured_kafka import LISTENERS, OTHER_PASSWORD, PASSWORD, USER, settings
from tests.kit.certificates import Authority, Signed
from tests.kit.secured_broker import FORBIDDEN, SHA_256_PASSWORD, SecuredBroker
from tests.kit.waiting import until
from tests.spark.sink_kills import committed
from tests.spark.source_world import Topic, World, numbered, values

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


class Secure(NamedTuple):
    """A broker with a listener of each kind, and a topic that was written through its plain one."""

    kafka: RealKafka | SecuredBroker
    authority: Authority
    own: Signed
    topic: Topic

    def options(self, listener: str, protocol: str, **said: str) -> dict[str, str]:
        """Options by names with _ for the dots; what TLS trusts, unless something else is said."""
        given = {f"kafka.{name.replace('_', '.')}": value for name, value in said.items()}
        if protocol.endswith("SSL") and "kafka.ssl.truststore.certificates" not in given:
            given.setdefault("kafka.ssl.ca.location", str(self.authority.ca))
        where = {"kafka.bootstrap.servers": self.kafka.address_of(listener), "kafka.security.protocol": protocol}
        return {**where, "kafka.default.api.timeout.ms": "20000", **given}


class FirstAttempt:
    """What the sink asks a Spark task's context."""

    def partitionId(self) -> int:
        return 0

    def attemptNumber(self) -> int:
        return 0

    def getLocalProperty(self, key: str) -> str | None:
        return None


@pytest.fixture(scope="module", params=["kafka", "fencepost"])
def secure(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    where = tmp_path_factory.mktemp("secure")
    authority = Authority(where / "pki")
    broker = authority.sign("broker", hosts=["localhost"], addresses=["127.0.0.1"])
    if request.param == "fencepost":
        with SecuredBroker(where / "fencepost", authority, broker) as ours:
            ours.add_users_and_rules()
            yield filled(ours, authority)
        return
    scram = [
        word
        for mechanism, password in (("SCRAM-SHA-256", SHA_256_PASSWORD), ("SCRAM-SHA-512", OTHER_PASSWORD))
        for word in ("--add-scram", f"{mechanism}=[name={USER},password={password}]")
    ]
    kafka = RealKafka(
        where / "kafka", settings=settings(authority, broker), listeners=LISTENERS, format_arguments=scram
    )
    with started(kafka):
        yield filled(kafka, authority)


def filled(kafka: RealKafka | SecuredBroker, authority: Authority) -> Secure:
    """A topic with committed and aborted records."""
    topic = World(kafka.address).topic(1)
    topic.commit([(0, bytes(50_000))] * 40)
    topic.abort(numbered(0, 1))
    topic.commit(numbered(0, 2))
    topic.settled()
    return Secure(kafka, authority, authority.sign("client", password="key-secret"), topic)


def token() -> str:
    """What Kafka's unsecured validator takes: a JSON web token that nobody signed."""
    import base64
    import json
    import time

    def part(content: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()

    now = int(time.time())
    return f"{part({'alg': 'none'})}.{part({'sub': USER, 'iat': now, 'exp': now + 3600})}."


WAYS: dict[str, tuple[str, str, dict[str, str]]] = {
    "tls": ("TLS", "SSL", {}),
    "plain-in-tls": ("SASL", "SASL_SSL", {"sasl_mechanism": "PLAIN", "sasl_username": USER, "sasl_password": PASSWORD}),
    "scram-in-tls": (
        "SASL",
        "SASL_SSL",
        {"sasl_mechanisms": "SCRAM-SHA-512", "sasl_username": USER, "sasl_password": OTHER_PASSWORD},
    ),
    "jaas": (
        "SASL",
        "SASL_SSL",
        {
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_jaas_config": f'x.ScramLoginModule required username="{USER}" password="{SHA_256_PASSWORD}";',
        },
    ),
    "token": (
        "SASL",
        "SASL_SSL",
        {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": f"{__name__}:{token.__name__}"},
    ),
    "bare": ("BARE", "SASL_PLAINTEXT", {"sasl_mechanism": "PLAIN", "sasl_username": USER, "sasl_password": PASSWORD}),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_listener_is_read_in_batch_and_stream(secure: Secure, way: str) -> None:
    listener, protocol, said = WAYS[way]
    options = secure.options(listener, protocol, **said)
    expected = [bytes(50_000)] * 40 + [b"2"]
    assert list(values(secure.topic.batch(**options, minPartitions="2"))) == expected
    with secure.topic.stream(**options).available_now() as stream:
        assert list(values(stream.all())) == expected


def test_a_client_certificate_with_an_encrypted_key_is_shown(secure: Secure) -> None:
    said = {
        "ssl_truststore_certificates": secure.authority.ca.read_text(),
        "ssl_keystore_certificate_chain": secure.own.certificate.read_text(),
        "ssl_keystore_key": secure.own.key.read_text(),
        "ssl_key_password": "key-secret",
    }
    options = secure.options("MUTUAL", "SSL", **said)
    assert len(secure.topic.batch(**options)) == 41


@pytest.mark.parametrize(
    ("listener", "protocol", "said", "reason"),
    [
        ("SASL", "SASL_SSL", {"sasl_mechanism": "PLAIN", "sasl_username": USER, "sasl_password": "no"},
         "PLAIN: Authentication failed"),
        ("BARE", "SASL_PLAINTEXT", {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": USER, "sasl_password": "x"},
         "does not support SCRAM-SHA-256; it supports PLAIN"),
        ("TLS", "SSL", {"ssl_ca_location": ""}, "certificate is not trusted"),
        ("TLS", "PLAINTEXT", {}, "this listener uses TLS: set security.protocol to"),
        ("MUTUAL", "SSL", {}, "requires a client certificate|or requires one"),
        ("PLAINTEXT", "SSL", {}, "does not use TLS|closed during the TLS handshake"),
    ],
)  # fmt: skip
def test_what_can_not_be_trusted_is_told(
    secure: Secure, listener: str, protocol: str, said: dict[str, str], reason: str, tmp_path_factory: Any
) -> None:
    if "ssl_ca_location" in said:
        said = {"ssl_ca_location": str(Authority(tmp_path_factory.mktemp("other"), "other").ca)}
    options = {**secure.options(listener, protocol, **said), "kafka.default.api.timeout.ms": "500"}
    with pytest.raises(BrokerError, match=reason) as caught:
        secure.topic.batch(**options)
    assert isinstance(caught.value, NotTrustedError) or listener == "PLAINTEXT"


def test_a_session_that_ends_is_followed_by_a_new_connection(secure: Secure) -> None:
    """KIP-368: the broker hangs up on who goes on after the end of its session."""
    said = {"sasl_mechanism": "PLAIN", "sasl_username": USER, "sasl_password": PASSWORD}
    options = secure.topic.options(**secure.options("RENEWED", "SASL_SSL", **said))
    cluster = Cluster(parse_options(options).connection)
    try:
        first = cluster.any_connection()
        assert cluster.topics([secure.topic.name]) == {secure.topic.name: (0,)}
        until(lambda: first.session_ends_soon, what="the session's end")
        assert cluster.topics([secure.topic.name]) == {secure.topic.name: (0,)}
        assert cluster.any_connection() is not first
    finally:
        cluster.close()


@pytest.mark.parametrize("way", ["tls", "scram-in-tls", "bare"])
def test_the_sink_writes_to_every_kind_of_listener_once(secure: Secure, way: str) -> None:
    """Task and commit, which are processes of their own in Spark: the options travel to both."""
    listener, protocol, said = WAYS[way]
    name = World(secure.kafka.address).topic(1).name
    given = {**secure.options(listener, protocol, **said), "topic": name, "kafka.transactional.id": f"to-{name}"}
    batch = BatchId("query", 0)
    options: SinkOptions = pickle.loads(
        pickle.dumps(parse_sink_options({**given, "queryId": "query", "batchId": "0"}, streaming=False))
    )
    rows = pa.RecordBatch.from_pydict({"value": ["one", "two"]})
    for is_new in (True, False):
        written = Task(options, {"value": 0}, None, FirstAttempt()).run([rows])
        assert commit_batch(options, written.parts, batch) is is_new
    assert sorted(committed(secure.kafka.address, name, 1)) == [b"one", b"two"]


def test_a_password_that_is_wrong_is_told_by_the_sink(secure: Secure) -> None:
    said = {"sasl_mechanism": "PLAIN", "sasl_username": USER, "sasl_password": "no"}
    given = {**secure.options("BARE", "SASL_PLAINTEXT", **said), "topic": secure.topic.name}
    rows = pa.RecordBatch.from_pydict({"value": ["one"]})
    with pytest.raises(SinkError, match=r"Authentication failed.*check kafka\.security\.protocol, kafka\.sasl"):
        Task(parse_sink_options(given, streaming=False), {"value": 0}, None, FirstAttempt()).run([rows])


def test_a_topic_that_a_rule_forbids_is_neither_read_nor_written(secure: Secure) -> None:
    if isinstance(secure.kafka, RealKafka):
        pytest.skip("this Kafka has no authorizer; its errors are those of golden/test_rights_answers.py")
    said = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_username": USER, "sasl_password": OTHER_PASSWORD}
    options = secure.options("SASL", "SASL_SSL", **said)
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        Topic(World(secure.kafka.address), FORBIDDEN).batch(**options)
    rows = pa.RecordBatch.from_pydict({"value": ["one"]})
    sink = parse_sink_options({**options, "topic": FORBIDDEN}, streaming=False)
    with pytest.raises(SinkError, match="TOPIC_AUTHORIZATION_FAILED"):
        Task(sink, {"value": 0}, None, FirstAttempt()).run([rows])
