"""Transfer money with confluent-kafka, as examples/bank_transfer.py does: python bank_transfer_confluent.py HOST:PORT

A debit, a credit and the position in the queue of requests are one transaction. Kill the program with kill -9 and run
it again: no transfer is made twice.
"""

import random
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

REQUESTS, BOOKINGS, COUNT = "confluent-bank-requests", "confluent-bank-bookings", 400
NAMES = (b"ann", b"bob", b"cem", b"dee", b"eva")


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
    with reader(address, "confluent-bank-check") as consumer:
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


def place_requests(address: str) -> None:
    """Write the requests, all of them or none, unless an earlier run did."""
    admin = AdminClient({"bootstrap.servers": address})
    for created in admin.create_topics([NewTopic(REQUESTS, 3), NewTopic(BOOKINGS, 3)]).values():
        try:
            created.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    producer = Producer({"bootstrap.servers": address, "transactional.id": REQUESTS})
    repeat(producer.init_transactions, 30)
    if not read(address, REQUESTS):
        producer.begin_transaction()
        for n in range(COUNT):
            payer, payee = random.sample(NAMES, 2)
            producer.produce(REQUESTS, b"%s %s %d" % (payer, payee, random.randint(1, 99)), b"%d" % n)
        repeat(producer.commit_transaction, 30)


def transfer(address: str) -> None:
    """Book the requests that are left, ten in a transaction."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": "confluent-bank-1"})
    repeat(producer.init_transactions, 30)
    at_end = set[int]()
    # The instance id gives a restarted program the partitions of its killed predecessor at once.
    with reader(address, "confluent-bank", **{"group.instance.id": "bank-1"}) as consumer:
        consumer.subscribe([REQUESTS])
        while not consumer.assignment() or at_end < {p.partition for p in consumer.assignment()}:
            batch = consume(consumer, 10, at_end)
            if not batch:
                continue
            try:
                producer.begin_transaction()
                for request in batch:
                    payer, payee, amount = (request.value() or b"").split()
                    number = request.key() or b""
                    producer.produce(BOOKINGS, b"%s -%s" % (number, amount), payer)
                    producer.produce(BOOKINGS, b"%s +%s" % (number, amount), payee)
                positions = consumer.position(consumer.assignment())
                repeat(producer.send_offsets_to_transaction, positions, consumer.consumer_group_metadata(), 30)
                repeat(producer.commit_transaction, 30)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                print(f"aborted, the same requests come again: {error}")
                repeat(producer.abort_transaction, 30)
                for position in consumer.committed(consumer.assignment(), 30):
                    start = position.offset if position.offset >= 0 else OFFSET_BEGINNING
                    consumer.seek(TopicPartition(position.topic, position.partition, start))
                at_end.clear()
            else:
                print(f"booked {len(batch)} requests", flush=True)


def check(address: str) -> bool:
    """Whether each request has its debit and its credit, and nothing else is booked."""
    expected: Counter[tuple[bytes, bytes]] = Counter()
    for number, request in read(address, REQUESTS):
        payer, payee, amount = request.split()
        expected[payer, b"%s -%s" % (number, amount)] += 1
        expected[payee, b"%s +%s" % (number, amount)] += 1
    bookings = read(address, BOOKINGS)
    total = sum(int(booking.split()[1]) for _, booking in bookings)
    print(f"{COUNT} transfers, {len(bookings)} bookings, sum of all accounts {total}")
    return Counter(bookings) == expected and len(bookings) == 2 * COUNT and total == 0


def main(address: str) -> bool:
    """Whether the books are right."""
    place_requests(address)
    transfer(address)
    return check(address)


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092") else 1)
