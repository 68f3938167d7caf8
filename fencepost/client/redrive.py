"""Dead letters of share groups (KIP-1191): what they say, and how their records go back to where they were."""

import hashlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NamedTuple

from fencepost.client.admin.client import parts_of
from fencepost.client.admin.fetching import fetch
from fencepost.client.admin.parts import AdminParts
from fencepost.client.consumer.consumed import ConsumerBatch, ConsumerRecord
from fencepost.client.errors import KafkaError
from fencepost.protocol.batch_header import iter_headers
from fencepost.protocol.compression import DEFAULT_LIMIT_BYTES
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.records import Record, decode_records
from fencepost.protocol.topics import IsolationLevel, TopicPartition

if TYPE_CHECKING:
    from fencepost.client.client import Client

_PREFIX = "__dlq.errors."


class DeadLetter(NamedTuple):
    """One dead letter: the record that a share group gave up, and why."""

    group_id: str
    partition: TopicPartition
    offset: int
    delivery_count: int
    message: str
    letter: ConsumerRecord[bytes, bytes]
    """As it stands in the dead-letter topic."""

    @property
    def is_copy(self) -> bool:
        """Whether it has the key or the value of its record."""
        return self.letter.key is not None or self.letter.value is not None


class Redriven(NamedTuple):
    """What a redrive did, or would do."""

    sent: dict[TopicPartition, list[int]]
    """The offsets that the records had, by partition. Records of a topic that was created again may share one."""
    lost: list[DeadLetter]
    """Those whose record is no longer in its topic, and that have no copy of it."""


def dead_letter_of(letter: ConsumerRecord[bytes, bytes]) -> DeadLetter | None:
    """What a record of a dead-letter topic says; None for one without Kafka's headers."""
    said = {name.removeprefix(_PREFIX): value or b"" for name, value in letter.headers if name.startswith(_PREFIX)}
    try:
        return DeadLetter(
            said["group"].decode(),
            TopicPartition(said["topic"].decode(), int(said["partition"])),
            int(said["offset"]),
            int(said.get("delivery.count", b"0")),
            said.get("message", b"").decode(),
            letter,
        )
    except (KeyError, ValueError):
        return None


async def dead_letter_topic(kafka: "Client", group_id: str) -> str | None:
    """The dead-letter topic that is set for a share group. Raises KafkaError."""
    async with kafka.admin() as admin:
        entry = (await admin.describe_configs(group=group_id)).get("errors.deadletterqueue.topic.name")
    return None if entry is None else entry.value or None


async def dead_letters(kafka: "Client", topic: str, group_id: str) -> AsyncIterator[DeadLetter]:
    """The dead letters of a share group that are in a topic now, redriven ones too."""
    async with kafka.consumer(topic) as consumer:
        async for batch in consumer.read_to_end():
            for letter in batch:
                found = dead_letter_of(letter)
                if found is not None and found.group_id == group_id:
                    yield found


async def redrive(kafka: "Client", topic: str, group_id: str, *, dry_run: bool = False) -> Redriven:
    """Send the records of a share group's dead letters again, to the topics and partitions where they were.

    Each dead letter is redriven once, also if this ends in the middle or runs twice at a time: the position in `topic`
    is that of a group of its own, and is committed in the transaction that sends the records. It expires as every
    group's position. Of several dead letters of one record, as a crash of the broker leaves them, one run sends one. A
    record is sent as its topic has it, with its headers, or else as the dead letter has it. All groups that read the
    topic get it again. `dry_run` reads the same, and changes nothing.
    Raises FencedError if another redrive of this group began meanwhile, and AbortableError if a transaction failed.
    """
    name = f"redrive.{topic}.{group_id}"
    found, sent = Redriven({}, []), _Sent({})
    async with kafka.admin() as admin, kafka.consumer(group=name) as consumer:
        if dry_run:
            consumer.assign(await consumer.partitions_for(topic))
            async for batch in consumer.read_to_end():
                async for _ in _records_of(parts_of(admin), batch, group_id, found, sent):
                    pass
            return found
        async with kafka.transactional_producer(name) as producer:
            consumer.assign(await consumer.partitions_for(topic))  # now: the producer has ended what others left open
            async for batch in consumer.read_to_end():
                async with producer.transaction() as txn:
                    async for where, one in _records_of(parts_of(admin), batch, group_id, found, sent):
                        to, partition = where
                        await txn.send(to, one.value, key=one.key, partition=partition, headers=one.headers)
                    await txn.send_offsets(consumer)
    return found


class _Sent(NamedTuple):
    """The records that a run sends: of several dead letters of one record it sends one."""

    contents: dict[tuple[TopicPartition, int], set[bytes]]
    """Digests of keys and values, by where the records were."""

    def has(self, dead: DeadLetter) -> bool:
        """A letter with another copy is of another record: the topic was deleted, and created again."""
        there = self.contents.get((dead.partition, dead.offset))
        return there is not None and (not dead.is_copy or _digest(dead.letter.key, dead.letter.value) in there)

    def add(self, dead: DeadLetter, record: Record) -> None:
        there = self.contents.setdefault((dead.partition, dead.offset), set())
        there.add(_digest(record.key, record.value))


def _digest(key: bytes | None, value: bytes | None) -> bytes:
    return hashlib.blake2b(repr((key, value)).encode(), digest_size=16).digest()


async def _records_of(
    admin: AdminParts, letters: ConsumerBatch[bytes, bytes], group_id: str, found: Redriven, sent: "_Sent"
) -> AsyncIterator[tuple[TopicPartition, Record]]:
    """What to send for each dead letter, and where to; all is noted in `found`."""
    for letter in letters:
        dead = dead_letter_of(letter)
        if dead is None or dead.group_id != group_id or sent.has(dead):
            continue
        record = await _source_of(admin, dead)
        if record is not None and dead.is_copy and (record.key, record.value) != (letter.key, letter.value):
            record = None  # the topic was deleted, and created again
        if record is None and not dead.is_copy:
            found.lost.append(dead)
            continue
        record = record or Record(letter.offset, letter.timestamp_ms, letter.key, letter.value)
        found.sent.setdefault(dead.partition, []).append(dead.offset)
        sent.add(dead, record)
        yield dead.partition, record


async def _source_of(admin: AdminParts, dead: DeadLetter) -> Record | None:
    """The record itself, if its topic still has it."""
    try:
        found = await fetch(admin, dead.partition, dead.offset, 1, isolation=IsolationLevel.READ_UNCOMMITTED, wait_ms=0)
    except KafkaError as error:
        if error.code in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            return None
        raise
    for start, header in iter_headers(found.records):
        if header.base_offset <= dead.offset <= header.last_offset and not header.is_control:
            records = decode_records(found.records, start, header, DEFAULT_LIMIT_BYTES)
            return next((record for record in records if record.offset == dead.offset), None)
    return None
