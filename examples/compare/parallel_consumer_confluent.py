"""Process keys in parallel with confluent-kafka, as examples/parallel_consumer.py does.

Run it as python parallel_consumer_confluent.py 127.0.0.1:9092. The records of one key are processed one after the
other, different keys at the same time. The position is committed when the whole batch is done, so a kill repeats
records at most and skips none.
"""

import sys
import time
import uuid
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC, GROUP, CUSTOMERS, EACH, AT_ONCE = "confluent-parallel-clicks", "confluent-parallel", 20, 30, 8
WORK_SECONDS = 0.005


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


def write_clicks(address: str) -> list[bytes]:
    """Write numbered clicks of customers that no earlier run had; return their keys."""
    run = uuid.uuid4().hex[:8]
    keys = [f"customer-{run}-{number}".encode() for number in range(CUSTOMERS)]
    admin = AdminClient({"bootstrap.servers": address})  # with a name: it must live until the answer has come
    try:
        admin.create_topics([NewTopic(TOPIC, 3)])[TOPIC].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    errors: list[KafkaError | None] = []
    for number in range(EACH):
        for key in keys:
            producer.produce(TOPIC, b"%d" % number, key, on_delivery=lambda error, _: errors.append(error))
    producer.flush()
    for failure in filter(None, errors):
        raise KafkaException(failure)
    return keys


def process(address: str) -> dict[bytes, list[int]]:
    """What was processed for each customer, in this order."""
    processed: dict[bytes, list[int]] = defaultdict(list)

    def process_one_key(key: bytes, clicks: list[int]) -> None:
        for click in clicks:
            time.sleep(WORK_SECONDS)  # a call to some service
            processed[key].append(click)

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": GROUP,
            "group.instance.id": "parallel-1",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    at_end = set[int]()
    with consumer, ThreadPoolExecutor(AT_ONCE) as threads:
        consumer.subscribe([TOPIC])
        while not consumer.assignment() or at_end < {p.partition for p in consumer.assignment()}:
            batch = consume(consumer, 200, at_end)
            if not batch:
                continue
            by_key: dict[bytes, list[int]] = defaultdict(list)
            for record in batch:
                by_key[record.key() or b""].append(int(record.value() or b""))
            list(threads.map(process_one_key, by_key.keys(), by_key.values()))  # raises what one of them raised
            consumer.commit(asynchronous=False)  # only now: no record of the batch is left
            print(f"processed {len(batch)} clicks", flush=True)
    return processed


def main(address: str) -> bool:
    """Whether all clicks of this run, and those that a killed run left, were processed in order."""
    keys = write_clicks(address)
    begin = time.monotonic()
    processed = process(address)
    seconds = time.monotonic() - begin
    clicks = sum(map(len, processed.values()))
    in_order = [key for key, done in processed.items() if done == list(range(done[0], done[0] + len(done)))]
    print(f"{clicks} clicks in {seconds:.1f} s, one after the other at least {clicks * WORK_SECONDS:.1f} s")
    print(f"{len(in_order)} of {len(processed)} customers in order")
    return len(in_order) == len(processed) and all(len(processed[key]) == EACH for key in keys)


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092") else 1)
