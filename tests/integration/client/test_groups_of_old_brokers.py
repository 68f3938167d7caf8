"""Groups with the requests that Apache Kafka 2.1 knows: no static members, no stable offsets, one group a fetch."""

import pytest
import trio

import fencepost
from fencepost import KafkaError, TopicPartition
from fencepost.client import CommittedOffset
from fencepost.client.network.connection import Connection
from tests.integration.client.group_kit import create, until

KAFKA_2_1 = {0: 7, 1: 10, 2: 4, 3: 7, 8: 6, 9: 5, 10: 2, 11: 3, 12: 2, 13: 2, 14: 2, 18: 2, 22: 1}
"""The newest version that it has of each request that consumers send."""
LATER = {68, 69}
"""ConsumerGroupHeartbeat and ConsumerGroupDescribe came with Kafka 3.7."""


@pytest.fixture(autouse=True)
def old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the broker offers, no more is taken than Kafka 2.1 has."""
    negotiate = Connection.negotiate

    async def and_forget(connection: Connection, *args: object, **more: object) -> None:
        await negotiate(connection, *args, **more)  # type: ignore[arg-type]
        offered = connection.session.versions.items()
        connection.session.versions = {
            key: (low, min(high, KAFKA_2_1.get(key, high))) for key, (low, high) in offered if key not in LATER
        }

    monkeypatch.setattr(Connection, "negotiate", and_forget)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
async def test_members_share_commit_and_leave(kafka: fencepost.Client, name: str, strategy: str) -> None:
    """JoinGroup 3 gives the member id at once; the assignors' data needs nothing newer."""
    await create(kafka, name, partitions=4, records=40)
    values: list[bytes] = []

    async def read(consumer: fencepost.Consumer) -> None:
        async for batch in consumer.batches():
            values.extend(record.value for record in batch)
            await consumer.commit()

    options = {"group": name, "heartbeat_interval": 0.05, "partition_assignment_strategy": strategy}
    with trio.fail_after(100):
        async with kafka.consumer(name, **options) as one, trio.open_nursery() as first:
            first.start_soon(read, one)
            await until(lambda: len(values) == 40, "all is read")
            async with kafka.consumer(name, **options) as two, trio.open_nursery() as second:
                second.start_soon(read, two)
                await until(lambda: len(one.assignment) == len(two.assignment) == 2, "two each")
                second.cancel_scope.cancel()
            await until(lambda: len(one.assignment) == 4, "all again: the other one has left")
            first.cancel_scope.cancel()
        assert len(values) == 40
        async with kafka.consumer(group=name) as reader:
            wanted = [TopicPartition(name, number) for number in range(4)]
            assert await reader.committed(*wanted) == dict.fromkeys(wanted, 10)
            await reader.commit({wanted[0]: CommittedOffset(3, 0, "a note")})
            assert (await reader.committed_offsets(wanted[0]))[wanted[0]] == CommittedOffset(3, 0, "a note")


@pytest.mark.parametrize("options", [{"group_instance_id": "one"}, {"group_protocol": "consumer"}])
async def test_what_the_broker_is_too_old_for_is_told(
    kafka: fencepost.Client, name: str, options: dict[str, str]
) -> None:
    """KIP-345 and KIP-848: better an error than a member that is something else than was asked for."""
    await create(kafka, name, partitions=1, records=1)
    with trio.fail_after(100):
        async with kafka.consumer(name, group=name, **options) as consumer:
            with pytest.raises(KafkaError, match="needed is"):
                await anext(consumer.batches())
