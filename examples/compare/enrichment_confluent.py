"""Enrich orders with confluent-kafka, as examples/enrichment.py does: python enrichment_confluent.py 127.0.0.1:9092

Enriched orders and the position in the orders are one transaction. Kill the program with kill -9 and run it again: each
order is enriched once.
"""

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

CUSTOMERS, ORDERS, ENRICHED = "confluent-enrich-customers", "confluent-enrich-orders", "confluent-enrich-enriched"
COUNT = 600
PEOPLE = {b"c1": b"Ann, Aachen", b"c2": b"Bob, Basel", b"c3": b"Cem, Como"}


def reader(address: str, group: str, **more: str) -> Consumer:
    """A consumer of committed records without automatic commits that reports the ends of partitions."""
    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **more,
        }
    )


def consume(consumer: Consumer, count: int, at_end: set[int]) -> list[Message]:
    """The next records; `at_end` has the partitions that are read to their end."""
    messages = []
    for message in consumer.consume(count, 0.2):
        error, partition = message.error(), message.partition()
        assert partition is not None
        if error is None:
            messages.append(message)
            at_end.discard(partition)
        elif error.code() == KafkaError._PARTITION_EOF:
            at_end.add(partition)
        else:
            raise KafkaException(error)
    return messages


def read(address: str, topic: str) -> list[tuple[bytes, bytes]]:
    """The keys and values of all committed records."""
    found, at_end = [], set[int]()
    with reader(address, "confluent-enrich-check") as consumer:
        partitions = consumer.list_topics(topic, 30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        while at_end < set(partitions):
            found += [(m.key() or b"", m.value() or b"") for m in consume(consumer, 500, at_end)]
    return found


def repeat(call: Callable[..., None], *arguments: Any) -> None:
    """Call a function of transactions again as long as its error allows that."""
    while True:
        try:
            return call(*arguments)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def prepare(address: str) -> None:
    """Write customers and orders, all of them or none, unless an earlier run did."""
    admin = AdminClient({"bootstrap.servers": address})
    customers = NewTopic(CUSTOMERS, 1, config={"cleanup.policy": "compact"})
    for created in admin.create_topics([customers, NewTopic(ORDERS, 3), NewTopic(ENRICHED, 3)]).values():
        try:
            created.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    producer = Producer({"bootstrap.servers": address, "transactional.id": ORDERS})
    repeat(producer.init_transactions, 30)
    if not read(address, ORDERS):
        producer.begin_transaction()
        for key, person in PEOPLE.items():
            producer.produce(CUSTOMERS, person, key)
        for n in range(COUNT):
            producer.produce(ORDERS, b"c%d" % (n % 3 + 1), b"order-%d" % n)
        repeat(producer.commit_transaction, 30)


def enrich(address: str) -> None:
    """Enrich the orders that are left, 20 in a transaction."""
    customers = dict(read(address, CUSTOMERS))  # the last value of each key counts
    producer = Producer({"bootstrap.servers": address, "transactional.id": "confluent-enrich-1"})
    repeat(producer.init_transactions, 30)
    at_end = set[int]()
    # The instance id gives a restarted program the partitions of its killed predecessor at once.
    with reader(address, "confluent-enrich", **{"group.instance.id": "enrich-1"}) as consumer:
        consumer.subscribe([ORDERS])
        while not consumer.assignment() or at_end < {p.partition for p in consumer.assignment()}:
            batch = consume(consumer, 20, at_end)
            if not batch:
                continue
            try:
                producer.begin_transaction()
                for order in batch:
                    producer.produce(ENRICHED, customers[order.value() or b""], order.key())
                positions = consumer.position(consumer.assignment())
                repeat(producer.send_offsets_to_transaction, positions, consumer.consumer_group_metadata(), 30)
                repeat(producer.commit_transaction, 30)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                print(f"aborted, the same orders come again: {error}")
                repeat(producer.abort_transaction, 30)
                for position in consumer.committed(consumer.assignment(), 30):
                    start = position.offset if position.offset >= 0 else OFFSET_BEGINNING
                    consumer.seek(TopicPartition(position.topic, position.partition, start))
                at_end.clear()
            else:
                print(f"enriched {len(batch)} orders", flush=True)


def main(address: str) -> bool:
    """Whether each order is enriched, once, with the right customer."""
    prepare(address)
    enrich(address)
    results = read(address, ENRICHED)
    print(f"{COUNT} orders, {len(results)} enriched orders")
    return Counter(results) == Counter((order, PEOPLE[who]) for order, who in read(address, ORDERS))


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092") else 1)
