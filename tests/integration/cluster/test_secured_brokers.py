"""Brokers that all lead, behind TLS, logins and access rules: they know one another by the cluster's secret."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.broker.cluster.ownership import spread
from fencepost.broker.peers.login import PeerLogins
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api03_metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.api19_create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.api24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from fencepost.protocol.messages.api58_envelope import EnvelopeRequest
from fencepost.protocol.sasl_login import SaslError
from fencepost.protocol.scram import Scram
from tests.kit.certificates import Authority
from tests.kit.cluster_processes import ClusterProcesses
from tests.kit.postgres_server import PostgresServer
from tests.kit.sasl_broker import PLAIN_MODULE, authenticate, handshake, log_in
from tests.kit.waiting import until
from tests.kit.wire import Wire

BROKERS = (1, 2)
PARTITIONS = 8
SECONDS = 60
MECHANISM = "FENCEPOST-CLUSTER"
RULES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:alice",
}


class Secured:
    """The cluster, and what its clients need."""

    def __init__(self, cluster: ClusterProcesses, tmp_path: Path, protocol: str) -> None:
        authority = Authority(tmp_path / "certificates")
        own = authority.sign("broker", addresses=["127.0.0.1"])
        both = own.key.with_suffix(".both")
        both.write_text(own.both)
        tls = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(both),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.ca),
        }
        self.settings = {
            "cluster.active.brokers": "all",
            "listener.security.protocol.map": f"PLAINTEXT:{protocol}",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.plaintext.plain.sasl.jaas.config": f'{PLAIN_MODULE} user_alice="secret" user_bob="secret";',
            **(tls if protocol == "SASL_SSL" else {}),
            **RULES,
        }
        self.cluster = cluster
        self.client = {
            "security.protocol": protocol,
            "ssl.ca.location": str(authority.ca),
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "secret",
        }


@pytest.fixture
def cluster(server: PostgresServer, tmp_path: Path) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path, server) as processes:
        yield processes


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_transaction_over_both_brokers_needs_no_rights_of_brokers(
    cluster: ClusterProcesses, tmp_path: Path, protocol: str
) -> None:
    secured = Secured(cluster, tmp_path, protocol)
    for number in BROKERS:
        cluster.start(number, **secured.settings)
    wanted = spread(frozenset(BROKERS))
    until(lambda: tuple(slot.broker for slot in cluster.engine.slots()) == wanted)
    client = {"bootstrap.servers": cluster.bootstrap, **secured.client}
    admin = AdminClient(client)
    (made,) = admin.create_topics([NewTopic("orders", PARTITIONS, 1)]).values()
    made.result(SECONDS)
    for number in range(6):
        producer = Producer({**client, "transactional.id": f"secured-{number}"})
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce("orders", b"%d" % number, partition=partition)
        producer.commit_transaction(SECONDS)
    assert not [line for number in BROKERS for line in cluster.brokers[number].log() if "cannot be verified" in line]


def test_a_change_that_any_broker_forwards_has_the_rights_of_its_client(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    """KIP-590: the controller checks them. An envelope from a client is refused, whatever rights the client has."""
    secured = Secured(cluster, tmp_path, "SASL_PLAINTEXT")
    for number in BROKERS:
        cluster.start(number, **secured.settings)
    wanted = spread(frozenset(BROKERS))
    until(lambda: tuple(slot.broker for slot in cluster.engine.slots()) == wanted)
    for number in BROKERS:
        with Wire(cluster.brokers[number].connect()) as alice, Wire(cluster.brokers[number].connect()) as bob:
            assert log_in(alice, "alice", "secret").error_code == log_in(bob, "bob", "secret").error_code == 0
            assert create(alice, f"by-{number}") == ErrorCode.NONE
            assert create(bob, f"not-by-{number}") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            asked = MetadataRequest(
                topics=[MetadataRequestTopic(name=f"asked-{number}")], allow_auto_topic_creation=True
            )
            (told,) = alice.call(3, 9, asked).topics
            assert (told.error_code, len(told.partitions)) == (ErrorCode.NONE, 1)
            refused = alice.call(
                58, 0, EnvelopeRequest(request_data=b"", request_principal=b"", client_host_address=b"")
            )
            assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    denied = [line for number in BROKERS for line in cluster.brokers[number].log().splitlines() if "User:bob" in line]
    assert denied
    assert all("127.0.0.1" in line for line in denied), "the log names the client's address, not the broker's"


def create(wire: Wire, topic: str) -> ErrorCode:
    """The answer to CreateTopics."""
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=topic, num_partitions=1, replication_factor=1)], timeout_ms=10_000
    )
    return ErrorCode(wire.call(19, 7, request).topics[0].error_code)


def test_who_does_not_know_the_secret_is_no_broker(cluster: ClusterProcesses) -> None:
    """Not on a listener without logins either; and clients are not told of the mechanism."""
    broker = cluster.start(1, **{**RULES, "super.users": "User:nobody"})
    with Wire(broker.connect()) as wire:
        login = PeerLogins(b"guessed").own_exchange()
        assert handshake(wire, MECHANISM).error_code == 0
        challenge = authenticate(wire, login.first())
        refused = authenticate(wire, login.step(bytes(challenge.auth_bytes)))
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "unknown user or wrong password" in broker.log()
    secret = cluster.engine.secret(b"there is one")
    with Wire(broker.connect()) as wire:
        login = PeerLogins(secret).own_exchange()
        assert handshake(wire, "PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert verify(wire) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        told = handshake(wire, MECHANISM)
        assert (told.error_code, told.mechanisms) == (0, [])
        challenge = authenticate(wire, login.first())
        answer = authenticate(wire, login.step(bytes(challenge.auth_bytes)))
        assert login.step(bytes(answer.auth_bytes)) is None
        assert verify(wire) == ErrorCode.NONE


def verify(wire: Wire) -> ErrorCode:
    """Ask for a transaction as a broker does; the error of the whole request."""
    transaction = AddPartitionsToTxnTransaction(
        transactional_id="none",
        producer_id=1,
        producer_epoch=0,
        verify_only=True,
        topics=[AddPartitionsToTxnTopic(name="none", partitions=[0])],
    )
    return ErrorCode(wire.call(24, 5, AddPartitionsToTxnRequest(transactions=[transaction])).error_code)


def test_a_broker_trusts_none_without_the_secret() -> None:
    """Both sides prove it."""
    ours = PeerLogins(b"ours")
    login, exchange = ours.own_exchange(), PeerLogins(b"ours").new_exchange()
    answer = exchange.step(proof(login, exchange.step(login.first())))
    assert exchange.login is not None
    assert login.step(answer) is None
    for made_up in (b"v=", answer[:-4] + b"AAA="):
        login, exchange = ours.own_exchange(), PeerLogins(b"theirs").new_exchange()
        login.step(exchange.step(login.first()))
        with pytest.raises(SaslError, match="did not prove"):
            login.step(made_up)
    login = ours.own_exchange()
    login.first()
    with pytest.raises(SaslError, match="nonce"):
        login.step(b"r=another,s=AAAA,i=4096")


def proof(login: Scram, challenge: bytes) -> bytes:
    """The second message of a login."""
    answer = login.step(challenge)
    assert answer is not None
    return answer
