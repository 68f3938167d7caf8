"""Quotas with three active brokers: any broker takes a change, and each enforces what all know, as in Kafka."""

from functools import partial
from pathlib import Path

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api19_create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.api49_alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from tests.kit.many_brokers import BROKERS, ManyBrokers
from tests.kit.postgres_server import PostgresServer
from tests.kit.waiting import until
from tests.kit.wire import PRODUCE, Wire, batch_of, produce_request

ALTER, CREATE_TOPICS = 49, 19
CLIENT = "loud"


class Limited(ManyBrokers):
    """A rate covers one second and more, not Kafka's ten: throttles are short."""

    def settings_of(self, number: int) -> dict[str, str]:
        return {"quota.window.num": "2", "controller.quota.window.num": "2"}


def limit(cluster: Limited, number: int, **quotas: float) -> None:
    """Set quotas of the client at one broker."""
    entry = EntryData(
        entity=[EntityData(entity_type="client-id", entity_name=CLIENT)],
        ops=[OpData(key=key, value=value, remove=False) for key, value in quotas.items()],
    )
    with Wire(cluster.brokers[number].connect()) as wire:
        (made,) = wire.call(ALTER, 1, AlterClientQuotasRequest(entries=[entry], validate_only=False)).entries
        assert made.error_code == ErrorCode.NONE


def produce(cluster: Limited, number: int, partition: int) -> int:
    """One batch to the partition's leader, which takes it. Returns for how many ms the client is muted."""
    with Wire(cluster.brokers[number].connect(), client_id=CLIENT) as wire:
        answer = wire.call(PRODUCE, 9, produce_request("orders", batch_of(b"x" * 1500), partition=partition))
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    return int(answer.throttle_time_ms)


def create(cluster: Limited, number: int, topic: str) -> int:
    """Ask this broker for a topic. Returns the error."""
    wanted = CreatableTopic(name=topic, num_partitions=20, replication_factor=1)
    with Wire(cluster.brokers[number].connect(), client_id=CLIENT) as wire:
        (made,) = wire.call(CREATE_TOPICS, 7, CreateTopicsRequest(topics=[wanted], timeout_ms=30_000)).topics
    return int(made.error_code)


def test_a_byte_rate_holds_at_each_broker(server: PostgresServer, tmp_path: Path) -> None:
    """KIP-13: a quota is one of each broker, not one of the cluster. The change came by another broker."""
    with Limited(tmp_path, server) as cluster:
        cluster.start_all()
        cluster.make("orders")
        limit(cluster, 2, producer_byte_rate=1000.0)
        led = {leader: partition for partition, leader in cluster.leaders("orders").items()}
        for number in BROKERS:
            until(partial(produce, cluster, number, led[number]), what="the client to be throttled")


def test_a_rate_of_changes_holds_over_all_brokers(server: PostgresServer, tmp_path: Path) -> None:
    """KIP-599: the controller counts changes, whichever broker the client asks."""
    with Limited(tmp_path, server) as cluster:
        cluster.start_all()
        limit(cluster, 3, controller_mutation_rate=0.1)
        errors = [create(cluster, number, f"topic-{number}") for number in BROKERS]
        assert errors == [ErrorCode.NONE, *[ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 2]
