"""Takes golden bytes: drives confluent-kafka, aiokafka and kafka-python through a recording proxy and keeps exchanges.

    python -m tests.golden.capture CLIENT BROKER_HOST:PORT PROXY_PORT NAME

CLIENT is one of the scenarios below, or `command:` and a shell command that talks to 127.0.0.1:PROXY_PORT. The broker
must advertise 127.0.0.1:PROXY_PORT and create topics on demand. The result is tests/golden/NAME.jsonl: one exchange a
line, at most two of each API and version, the smallest one and the largest below EXCHANGE_BYTES_MAX.
"""

import asyncio
import json
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fencepost.protocol.registry import API_BY_KEY
from tests.kit.record_proxy import Exchange, RecordProxy

KEPT_OF_EACH = 2
EXCHANGE_BYTES_MAX = 4096
WAIT_SECONDS = 30


def run_confluent(address: str) -> None:
    """Admin, an idempotent and a transactional producer, a group, offsets in the transaction."""
    from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType

    common = {"bootstrap.servers": address, "client.id": "golden"}
    topic, group = f"golden-{uuid.uuid4().hex[:6]}", "golden-group"
    admin = AdminClient(common)
    admin.create_topics([NewTopic(topic, 2, 1, config={"retention.ms": "-1"})])[topic].result()
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result()
    admin.describe_configs([config := ConfigResource(ResourceType.TOPIC, topic)])[config].result()
    admin.list_topics(topic)

    producer = Producer(common | {"transactional.id": "golden-tx", "linger.ms": 5})
    producer.init_transactions(WAIT_SECONDS)
    for commits in (0, 1):
        producer.begin_transaction()
        producer.produce(topic, b"v%d" % commits, b"key", headers={"h": b"1"}, partition=0)
        if commits:
            producer.commit_transaction(WAIT_SECONDS)
        else:
            producer.flush()
            producer.abort_transaction(WAIT_SECONDS)
    consumer = Consumer(
        common | {"group.id": group, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    )
    consumer.subscribe([topic])
    message = None
    while message is None:
        message = consumer.poll(1)
    producer.begin_transaction()
    producer.produce(topic, b"out", partition=1)
    producer.send_offsets_to_transaction(
        consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), WAIT_SECONDS
    )
    producer.commit_transaction(WAIT_SECONDS)
    consumer.commit(asynchronous=False)
    consumer.get_watermark_offsets(TopicPartition(topic, 0), WAIT_SECONDS)
    admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()})[TopicPartition(topic, 0)].result()
    admin.list_consumer_groups().result()
    admin.describe_consumer_groups([group])[group].result()
    admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
    admin.describe_cluster().result()
    consumer.close()
    admin.delete_consumer_groups([group])[group].result()
    admin.delete_records([TopicPartition(topic, 0, 1)])
    time.sleep(0.5)
    admin.delete_topics([topic])[topic].result()


def run_aiokafka(address: str) -> None:
    """A transactional producer with offsets, and a group."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    async def main() -> None:
        topic = f"golden-{uuid.uuid4().hex[:6]}"
        options: dict[str, Any] = {"bootstrap_servers": address, "client_id": "golden"}
        producer = AIOKafkaProducer(transactional_id="golden-aio", **options)
        await producer.start()
        async with producer.transaction():
            await producer.send_and_wait(topic, b"value", key=b"key")
        consumer = AIOKafkaConsumer(
            topic,
            group_id="golden-aio",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            enable_auto_commit=False,
            **options,
        )
        await consumer.start()
        message = await consumer.getone()
        async with producer.transaction():
            await producer.send_and_wait(topic, b"again")
            await producer.send_offsets_to_transaction(
                {TopicPartition(topic, message.partition): message.offset + 1}, "golden-aio"
            )
        await consumer.commit()
        await consumer.stop()
        await producer.stop()

    asyncio.run(main())


def run_kafka_python(address: str) -> None:
    """A transactional producer with offsets, a group, and the admin client."""
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.structs import OffsetAndMetadata

    topic = f"golden-{uuid.uuid4().hex[:6]}"
    options: dict[str, Any] = {"bootstrap_servers": address, "client_id": "golden"}
    producer = KafkaProducer(transactional_id="golden-kp", **options)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"value", key=b"key", headers=[("h", b"1")]).get(WAIT_SECONDS)
    producer.commit_transaction()
    consumer = KafkaConsumer(
        topic,
        group_id="golden-kp",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        enable_auto_commit=False,
        **options,
    )
    message = next(consumer)
    producer.begin_transaction()
    producer.send(topic, b"again")
    producer.send_offsets_to_transaction(
        {TopicPartition(topic, message.partition): OffsetAndMetadata(message.offset + 1, "", -1)}, "golden-kp"
    )
    producer.abort_transaction()
    consumer.commit()
    consumer.close()
    producer.close()


SCENARIOS: dict[str, Callable[[str], None]] = {
    "confluent-kafka": run_confluent,
    "aiokafka": run_aiokafka,
    "kafka-python": run_kafka_python,
}


def smallest_and_largest(exchanges: list[Exchange]) -> list[Exchange]:
    """At most KEPT_OF_EACH exchanges of each API and version; bodies of the same sizes count once."""
    by_api: defaultdict[tuple[int, int], dict[tuple[int, int], Exchange]] = defaultdict(dict)
    for one in exchanges:
        if one.api_key in API_BY_KEY and len(one.request) + len(one.response) <= EXCHANGE_BYTES_MAX:
            by_api[one.api_key, one.api_version].setdefault((len(one.request), len(one.response)), one)
    return [
        exchange
        for _, found in sorted(by_api.items())
        for _, exchange in _spread(sorted(found.items(), key=lambda item: sum(item[0])))
    ]


def _spread(found: list[tuple[tuple[int, int], Exchange]]) -> list[tuple[tuple[int, int], Exchange]]:
    """The smallest and the largest: the empty form and the full one."""
    return found if len(found) <= KEPT_OF_EACH else [found[0], found[-1]]


def main() -> None:
    """Drive one client and write its file."""
    client, upstream, proxy_port, name = sys.argv[1:]
    host, _, port = upstream.rpartition(":")
    with RecordProxy((host, int(port)), int(proxy_port)) as proxy:
        if client.startswith("command:"):
            subprocess.run(["/bin/sh", "-c", client.removeprefix("command:")], check=True)
        else:
            SCENARIOS[client](proxy.address)
        kept = smallest_and_largest(list(proxy.exchanges))
    path = Path(__file__).parent / f"{name}.jsonl"
    with path.open("w", encoding="ascii") as file:
        for one in kept:
            line = {
                "api": API_BY_KEY[one.api_key].name,
                "version": one.api_version,
                "request": one.request.hex(),
                "response": one.response.hex(),
            }
            file.write(json.dumps(line) + "\n")
    print(f"{path.name}: {len(kept)} of {len(proxy.exchanges)} exchanges kept")


if __name__ == "__main__":
    main()
