"""A member with confluent-kafka; the variant is `eager`, `cooperative` or `consumer` (KIP-848)."""

import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.interop.members.given import BATCH, POLL_SECONDS, WAIT_SECONDS, Given, Voice

STRATEGY = {"eager": "range", "cooperative": "cooperative-sticky"}


def consumer_of(given: Given) -> Consumer:
    """A consumer that commits nothing by itself."""
    settings: dict[str, Any] = {
        "bootstrap.servers": given.bootstrap,
        "group.id": given.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
    if given.variant == "consumer":
        return Consumer(settings | {"group.protocol": "consumer"})
    classic = {"session.timeout.ms": given.session_ms, "heartbeat.interval.ms": given.heartbeat_ms}
    return Consumer(settings | classic | {"partition.assignment.strategy": STRATEGY[given.variant]})


def positions(records: list[Message]) -> dict[int, tuple[int, int]]:
    """Partition -> first offset of these records, and the one behind the last."""
    found: dict[int, tuple[int, int]] = {}
    for record in records:
        partition, offset = record.partition(), record.offset()
        assert partition is not None
        assert offset is not None
        found[partition] = (found.get(partition, (offset, 0))[0], offset + 1)
    return found


def transform(given: Given, voice: Voice, consumer: Consumer, producer: Producer, records: list[Message]) -> None:
    """One transaction; where it is refused, the consumer goes back to its beginning."""
    moved = positions(records)
    producer.begin_transaction()
    try:
        for record in records:
            partition = record.partition()
            assert partition is not None
            producer.produce(given.target, record.value(), partition=partition)
        offsets = [TopicPartition(given.source, partition, end) for partition, (_, end) in moved.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), WAIT_SECONDS)
        producer.flush(WAIT_SECONDS)
        voice.say("open", len(records))
        time.sleep(given.pause_s)
        producer.commit_transaction(WAIT_SECONDS)
        voice.say("committed", len(records))
    except KafkaException as refused:
        if not refused.args[0].txn_requires_abort():
            raise
        producer.abort_transaction(WAIT_SECONDS)
        voice.say("aborted", refused)
        held = {one.partition for one in consumer.assignment()}
        for partition in held & moved.keys():
            consumer.seek(TopicPartition(given.source, partition, moved[partition][0]))


def only_in_consume(*_: object) -> None:
    """That there is a callback makes librdkafka rebalance within `consume` only.

    Else it does so by the way, and a transaction would be fenced by a generation that its records are not of.
    """


def main() -> None:
    """Be a member until asked to leave."""
    given, voice = Given.read(), Voice()
    producer = Producer({"bootstrap.servers": given.bootstrap, "transactional.id": given.transactional_id})
    producer.init_transactions(WAIT_SECONDS)
    consumer = consumer_of(given)
    consumer.subscribe([given.source], on_assign=only_in_consume, on_revoke=only_in_consume, on_lost=only_in_consume)
    while not voice.asked_to_stop:
        records = consumer.consume(BATCH, POLL_SECONDS)
        voice.holds(one.partition for one in consumer.assignment())
        if good := [record for record in records if record.error() is None]:
            transform(given, voice, consumer, producer, good)
    consumer.close()


if __name__ == "__main__":
    main()
