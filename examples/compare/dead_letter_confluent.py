"""Set bad records aside with confluent-kafka, as examples/dead_letter.py does: python dead_letter_confluent.py

Results, dead letters and the position are one transaction: each record is in one of the two topics, once.
"""

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

READINGS, CELSIUS, DEAD, COUNT = "confluent-dead-readings", "confluent-dead-celsius", "confluent-dead-letters", 600


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


def read(address: str, topic: str) -> list[Message]:
    """All committed records."""
    found, at_end = list[Message](), set[int]()
    with reader(address, "confluent-dead-check") as consumer:
        partitions = consumer.list_topics(topic, 30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        while at_end < set(partitions):
            found += consume(consumer, 500, at_end)
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
    """Write readings in Fahrenheit, some of them damaged, unless an earlier run did."""
    admin = AdminClient({"bootstrap.servers": address})
    for created in admin.create_topics([NewTopic(topic, 2) for topic in (READINGS, CELSIUS, DEAD)]).values():
        try:
            created.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    producer = Producer({"bootstrap.servers": address, "transactional.id": READINGS})
    repeat(producer.init_transactions, 30)
    if not read(address, READINGS):
        producer.begin_transaction()
        for n in range(COUNT):
            producer.produce(READINGS, b"#?!" if n % 50 == 7 else b"%d" % (n % 100), b"reading-%d" % n)
        repeat(producer.commit_transaction, 30)


def convert_one(producer: Producer, record: Message) -> None:
    """Produce the result, or the record to the dead letters."""
    try:
        celsius = (int(record.value() or b"") - 32) * 5 / 9
    except ValueError as error:
        origin = f"{record.topic()}-{record.partition()}@{record.offset()}"
        headers: list[tuple[str, str | bytes | None]] = [("error", str(error)), ("origin", origin)]
        producer.produce(DEAD, record.value(), record.key(), headers=headers)
    else:
        producer.produce(CELSIUS, b"%.1f" % celsius, record.key())


def convert(address: str) -> None:
    """Convert the readings that are left, 20 in a transaction."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": "confluent-dead-1"})
    repeat(producer.init_transactions, 30)
    at_end = set[int]()
    # The instance id gives a restarted program the partitions of its killed predecessor at once.
    with reader(address, "confluent-dead", **{"group.instance.id": "dead-1"}) as consumer:
        consumer.subscribe([READINGS])
        while not consumer.assignment() or at_end < {p.partition for p in consumer.assignment()}:
            batch = consume(consumer, 20, at_end)
            if not batch:
                continue
            try:
                producer.begin_transaction()
                for record in batch:
                    convert_one(producer, record)
                positions = consumer.position(consumer.assignment())
                repeat(producer.send_offsets_to_transaction, positions, consumer.consumer_group_metadata(), 30)
                repeat(producer.commit_transaction, 30)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                print(f"aborted, the same readings come again: {error}")
                repeat(producer.abort_transaction, 30)
                for position in consumer.committed(consumer.assignment(), 30):
                    start = position.offset if position.offset >= 0 else OFFSET_BEGINNING
                    consumer.seek(TopicPartition(position.topic, position.partition, start))
                at_end.clear()
            else:
                print(f"converted {len(batch)} readings", flush=True)


def main(address: str) -> bool:
    """Whether each reading is in one of the two topics, once."""
    prepare(address)
    convert(address)
    readings, good, dead = [read(address, topic) for topic in (READINGS, CELSIUS, DEAD)]
    print(f"{len(readings)} readings, {len(good)} converted, {len(dead)} dead letters")
    for name, value in dict(dead[0].headers() or []).items():
        print(f"  {name}: {value.decode() if isinstance(value, bytes) else value}")
    return Counter(r.key() for r in readings) == Counter(r.key() for r in (*good, *dead)) and len(dead) == COUNT // 50


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092") else 1)
