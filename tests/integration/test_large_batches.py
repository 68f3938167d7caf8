"""Large batches, which a thread writes, between small ones, markers and a kill: with librdkafka on both ends."""

import os
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.conftest import StartBroker
from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import verify

TOPIC, PARTITIONS = "mixed", 2
LARGE_BYTES = 300_000
TRANSACTIONS = 12
WAIT_SECONDS = 100
PARTITION_END = -191


def key_of(value: bytes) -> bytes:
    return value[:40].rstrip(b".")


def write(address: str, name: str) -> set[bytes]:
    """Transactions of large and small records, every third one aborted; the keys of what was committed."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(WAIT_SECONDS)
    committed: set[bytes] = set()
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        keys = set()
        for turn in range(4):
            key = f"{name}/{number}/{turn}".encode()
            value = key.ljust(40, b".") + (os.urandom(LARGE_BYTES) if turn % 2 else b"")
            producer.produce(TOPIC, value, key, partition=(number + turn // 2) % PARTITIONS)
            producer.flush(WAIT_SECONDS)
            keys.add(key)
        if number % 3 == 2:
            producer.abort_transaction(WAIT_SECONDS)
        else:
            producer.commit_transaction(WAIT_SECONDS)
            committed |= keys
    return committed


def read_committed(address: str) -> list[bytes]:
    """The keys of all that a reader of committed records gets; each value is what its key says."""
    settings = {
        "bootstrap.servers": address,
        "group.id": "reader",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    found: list[bytes] = []
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(WAIT_SECONDS)
        assert message is not None, "nothing came for long"
        error = message.error()
        if error is not None:
            assert error.code() == PARTITION_END, error
            ended.add(message.partition())
            continue
        key, value = message.key(), message.value()
        assert key is not None
        assert value is not None
        assert key_of(value) == key
        assert len(value) in (40, 40 + LARGE_BYTES)
        found.append(key)
    consumer.close()
    return found


def test_large_and_small_batches_of_many_producers_are_read_once_if_committed(start_broker: StartBroker) -> None:
    """Rows I1 to I4 and P2 to P4; and after kill -9 the same again, from files that `fencepost verify` finds sound."""
    broker: BrokerProcess = start_broker(files=True, settings={"num.partitions": str(PARTITIONS)})
    names = [f"writer-{number}" for number in range(4)]
    with ThreadPoolExecutor(len(names)) as pool:
        committed = set().union(*pool.map(lambda name: write(broker.address, name), names))
    assert len(committed) == 4 * 4 * TRANSACTIONS * 2 // 3
    assert sorted(read_committed(broker.address)) == sorted(committed)
    broker.kill()
    assert broker.data_dir is not None
    assert verify(broker.data_dir).returncode == 0
    broker.start()
    assert sorted(read_committed(broker.address)) == sorted(committed)
