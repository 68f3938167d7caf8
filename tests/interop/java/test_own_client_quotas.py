"""Our client under a real Kafka's quotas."""

import os

import pytest
import trio

import fencepost
from fencepost.client.admin.security_types import QuotaEntity
from fencepost.client.network.connection import Connection
from tests.interop.java.real_kafka import RealKafka

SECONDS = 100
QUOTA_BYTES = 50_000
SENT_BYTES = 600_000


async def test_a_producer_over_its_quota_waits_and_loses_nothing(
    real_kafka: RealKafka, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KIP-219: Kafka answers at once and tells how long to be quiet; requests wait that long without timing out."""
    told: list[tuple[Connection, float, float]] = []
    went_on: list[tuple[Connection, float]] = []
    rest, release = Connection.rest, Connection.release

    def noting_rest(connection: Connection, seconds: float) -> None:
        told.append((connection, trio.current_time(), seconds))
        rest(connection, seconds)

    def noting_release(connection: Connection) -> None:
        went_on.append((connection, trio.current_time()))
        release(connection)

    monkeypatch.setattr(Connection, "rest", noting_rest)
    monkeypatch.setattr(Connection, "release", noting_release)
    with trio.fail_after(SECONDS):
        async with fencepost.Client(real_kafka.address) as kafka, kafka.admin() as admin:
            await admin.create_topics(name, partitions=1)
            quota = {QuotaEntity(client_id=name): {"producer_byte_rate": float(QUOTA_BYTES)}}
            await admin.alter_client_quotas(quota)
            while await admin.describe_client_quotas(*quota) != quota:  # noqa: ASYNC110
                await trio.sleep(0.02)  # the broker learns of it a moment after its controller
        try:
            async with fencepost.Client(real_kafka.address, client_id=name, request_timeout=2) as kafka:
                async with kafka.producer(batch_size=20_000) as producer, producer.batch() as batch:
                    for _ in range(SENT_BYTES // 20_000):
                        await batch.send(name, os.urandom(19_000))
                [(_, end)] = (await ends(kafka, name)).items()
        finally:
            async with fencepost.Client(real_kafka.address) as kafka, kafka.admin() as admin:
                await admin.alter_client_quotas({QuotaEntity(client_id=name): {"producer_byte_rate": None}})
    assert end == SENT_BYTES // 20_000, "each record once"
    assert max(seconds for _, _, seconds in told) > 0.1
    assert went_on, "what was kept back was sent, and not given up"
    for connection, at, seconds in told:
        early = [when for who, when in went_on if who is connection and at < when < at + seconds - 0.001]
        assert not early, f"told at {at} to be quiet for {seconds} s, and sent at {early[0]}"


async def ends(kafka: fencepost.Client, topic: str) -> dict[fencepost.TopicPartition, int]:
    """The partitions' ends."""
    async with kafka.admin() as admin:
        found = await admin.list_offsets([fencepost.TopicPartition(topic, 0)])
        return {partition: info.offset for partition, info in found.items()}
