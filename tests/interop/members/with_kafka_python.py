"""A member with kafka-python."""

import time

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata, TopicPartition

from tests.interop.members.given import BATCH, POLL_SECONDS, WAIT_SECONDS, Given, Voice


def transform(
    given: Given,
    voice: Voice,
    consumer: KafkaConsumer,
    producer: KafkaProducer,
    found: dict[TopicPartition, list],  # type: ignore[type-arg]
) -> None:
    """One transaction; where it is refused, the consumer goes back to its beginning."""
    count = sum(map(len, found.values()))
    member = consumer.group_metadata()
    if member.generation_id < 0:
        return  # its session has ended since: without a generation nothing would fence it (KIP-447)
    producer.begin_transaction()
    try:
        for place, records in found.items():
            for record in records:
                producer.send(given.target, record.value, partition=place.partition)
        ends = {place: OffsetAndMetadata(records[-1].offset + 1, "", -1) for place, records in found.items()}
        producer.send_offsets_to_transaction(ends, member)
        producer.flush(WAIT_SECONDS)
        voice.say("open", count)
        time.sleep(given.pause_s)
        producer.commit_transaction()
        voice.say("committed", count)
    except KafkaError as refused:
        producer.abort_transaction()
        voice.say("aborted", repr(refused))
        for place in consumer.assignment() & found.keys():
            consumer.seek(place, found[place][0].offset)


def main() -> None:
    """Be a member until asked to leave."""
    given, voice = Given.read(), Voice()
    producer = KafkaProducer(bootstrap_servers=given.bootstrap, transactional_id=given.transactional_id)
    producer.init_transactions()
    consumer = KafkaConsumer(
        given.source,
        bootstrap_servers=given.bootstrap,
        group_id=given.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        session_timeout_ms=given.session_ms,
        heartbeat_interval_ms=given.heartbeat_ms,
    )
    # Else it may lead before it knows the topic, assign nothing, and take the answer that comes then for old news.
    consumer.partitions_for_topic(given.source)
    while not voice.asked_to_stop:
        found = consumer.poll(timeout_ms=int(POLL_SECONDS * 1000), max_records=BATCH)
        voice.holds(one.partition for one in consumer.assignment())
        if found:
            transform(given, voice, consumer, producer, found)
    consumer.close()
    producer.close(timeout=WAIT_SECONDS)


if __name__ == "__main__":
    main()
