"""Reads whole partitions by librdkafka, which shares no code with fencepost."""

import time
from collections.abc import Sequence

from confluent_kafka import Consumer, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.kit.history import READ_COMMITTED, Log, Place

SERVE_SECONDS, READ_SECONDS = 60.0, 60.0


def read_all(bootstrap: str, places: Sequence[Place], isolation: str) -> tuple[dict[Place, Log], list[str]]:
    """Every partition from its beginning to its end, by librdkafka; and why some cannot be read to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads-all",
            "isolation.level": isolation,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(*place, 0) for place in places])
    logs: dict[Place, Log] = {place: [] for place in places}
    errors: dict[Place, str] = {}
    unread, deadline = set(places), time.monotonic() + READ_SECONDS
    while unread and time.monotonic() < deadline:
        for record in consumer.consume(1000, 0.2):
            place, error = (record.topic(), record.partition()), record.error()
            if error is None:
                logs[place].append((record.offset(), record.value().decode()))
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(place)
            else:
                errors[place] = str(error)
    consumer.close()
    return logs, [f"{place} ends after {len(logs[place])} records: {errors.get(place)}" for place in sorted(unread)]


def read_ends(bootstrap: str, places: Sequence[Place], isolation: str) -> dict[Place, int]:
    """The last stable offsets, or the high watermarks. Raises KafkaException."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    level = IsolationLevel.READ_COMMITTED if isolation == READ_COMMITTED else IsolationLevel.READ_UNCOMMITTED
    asked = admin.list_offsets(
        {TopicPartition(*place): OffsetSpec.latest() for place in places},
        isolation_level=level,
        request_timeout=SERVE_SECONDS,
    )
    return {(place.topic, place.partition): told.result().offset for place, told in asked.items()}
