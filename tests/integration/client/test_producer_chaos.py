"""The producer through a network that loses requests and answers, to a broker that is killed: once, and in order."""

import socket
from collections.abc import Callable
from typing import Any

import pytest
import trio

import fencepost
from fencepost.client.network.wire import open_socket
from tests.kit import workload_proxy
from tests.kit.broker_process import BrokerProcess

StartBroker = Callable[..., BrokerProcess]
PARTITIONS, SENDERS, EACH = 3, 6, 200


async def read_all(address: str, topic: str) -> list[list[bytes]]:
    """The values of each partition."""
    found: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    async with fencepost.Client(address) as kafka, kafka.consumer(topic) as consumer:
        ends = await consumer.end_offsets()
        with trio.fail_after(100):
            async for batch in consumer.batches():
                for record in batch:
                    found[record.partition].append(record.value)
                if sum(map(len, found)) >= sum(ends.values()):
                    return found
    raise AssertionError("the consumer ended")


@pytest.mark.parametrize("seed", ["a", "b"])
async def test_acknowledged_once_and_in_order_whatever_the_network_does(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch, seed: str
) -> None:
    """P2, P3, P9: connections live a tenth of a second, most end with answers lost; twice the broker is killed."""
    monkeypatch.setattr(workload_proxy, "LIFE_SECONDS", 0.1)
    monkeypatch.setattr(workload_proxy, "DEAF_SECONDS", 0.05)
    broker = start_broker(files=True)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    async def dial(host: str, _: int, timeout_s: float) -> Any:
        return await open_socket(host, port, timeout_s)

    async with fencepost.Client(broker.address) as direct, direct.admin() as admin:
        await admin.create_topics("t", partitions=PARTITIONS)
    acknowledged: list[dict[int, bytes]] = [{} for _ in range(PARTITIONS)]

    async def send(producer: fencepost.Producer[bytes, bytes], sender: int) -> None:
        for n in range(EACH):
            value = b"%d/%d" % (sender, n)
            meta = await producer.send("t", value, partition=sender % PARTITIONS)
            acknowledged[meta.partition][meta.offset] = value

    async def flood(producer: fencepost.Producer[bytes, bytes], partition: int) -> None:
        async with producer.batch() as batch:
            for n in range(20):
                values = [(None, b"flood/%d" % (100 * n + at)) for at in range(100)]
                await batch.send_many("t", values, partition=partition)
                await trio.sleep(0.1)

    async with trio.open_nursery() as network:
        network.start_soon(workload_proxy.relay, listener, int(broker.address.rpartition(":")[2]), seed)
        options: dict[str, Any] = {"dial": dial, "reconnect_backoff": 0.005, "retry_backoff": 0.005}
        with trio.fail_after(100):
            async with (
                fencepost.Client(broker.address, **options) as kafka,
                kafka.producer(batch_size=600) as producer,
                trio.open_nursery() as nursery,
            ):
                for sender in range(SENDERS):
                    nursery.start_soon(send, producer, sender)
                for partition in range(PARTITIONS):
                    nursery.start_soon(flood, producer, partition)
                for _ in range(2):
                    await trio.sleep(0.7)
                    await trio.to_thread.run_sync(broker.restart)
        told = producer.metrics()
        assert told.record_retry_total > 0, "nothing went wrong: that shows nothing"
        assert told.buffer_available_bytes == told.buffer_total_bytes, "all memory has come back"
        network.cancel_scope.cancel()
    logs = await read_all(broker.address, "t")
    for partition, log in enumerate(logs):
        for name in {value.partition(b"/")[0] for value in log}:
            numbers = [int(value.partition(b"/")[2]) for value in log if value.startswith(name + b"/")]
            assert numbers == list(range(2000 if name == b"flood" else EACH)), (partition, name)
        assert all(log[offset] == value for offset, value in acknowledged[partition].items())
    assert sum(map(len, logs)) == SENDERS * EACH + PARTITIONS * 2000
