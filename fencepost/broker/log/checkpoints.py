"""Kafka's small text files of a log directory: offset checkpoints, leader epochs, partition metadata."""

import base64
from collections.abc import Iterable, Mapping

from fencepost.broker.log.store import CorruptLogFile
from fencepost.protocol.topics import TopicPartition

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"

_VERSION = "0"
NO_TOPIC_ID = bytes(16)


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """A checkpoint of one offset per partition."""
    return _encode(f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items()))


def decode_offsets(data: bytes | None, place: str) -> dict[TopicPartition, int]:
    """The offsets of a checkpoint; none where there is no file. Raises CorruptLogFile."""
    if data is None:
        return {}
    offsets = {}
    for number, words in _decode(data, place, 3):
        topic, partition, offset = words
        offsets[TopicPartition(topic, _number(partition, place, number))] = _number(offset, place, number)
    return offsets


def encode_epochs(epochs: Iterable[tuple[int, int]]) -> bytes:
    """A leader epoch checkpoint: (epoch, the offset at which it began)."""
    return _encode(f"{epoch} {start}" for epoch, start in epochs)


def decode_epochs(data: bytes | None, place: str) -> list[tuple[int, int]]:
    """The entries of a leader epoch checkpoint. Raises CorruptLogFile."""
    if data is None:
        return []
    return [
        (_number(words[0], place, number), _number(words[1], place, number))
        for number, words in _decode(data, place, 2)
    ]


def encode_partition_metadata(topic_id: bytes) -> bytes:
    """`partition.metadata` of a partition of the topic with this 16-byte id."""
    return f"version: 0\ntopic_id: {topic_id_text(topic_id)}".encode()


def decode_partition_metadata(data: bytes | None, place: str) -> bytes:
    """The 16-byte topic id; zeros where there is no file. Raises CorruptLogFile."""
    if data is None:
        return NO_TOPIC_ID
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines()):
        name, _, value = line.partition(":")
        if name == "topic_id":
            try:
                topic_id = base64.b64decode(value.strip() + "==", altchars=b"-_", validate=True)
            except ValueError as error:
                raise CorruptLogFile(place, number, f"topic id {value.strip()!r} is not base64") from error
            if len(topic_id) == 16:
                return topic_id
    raise CorruptLogFile(place, 0, "holds no topic id of 16 bytes")


def topic_id_text(topic_id: bytes) -> str:
    """A topic id as Kafka writes it: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def _encode(lines: Iterable[str]) -> bytes:
    text = list(lines)
    return "\n".join([_VERSION, str(len(text)), *text, ""]).encode()


def _decode(data: bytes, place: str, width: int) -> Iterable[tuple[int, list[str]]]:
    lines = data.decode("utf-8", "replace").splitlines()
    if len(lines) < 2 or lines[0] != _VERSION:
        raise CorruptLogFile(place, 0, "is not a checkpoint of version 0")
    rows = [(number, line.split(" ")) for number, line in enumerate(lines[2:], 3) if line]
    if _number(lines[1], place, 2) != len(rows):
        raise CorruptLogFile(place, 0, f"says {lines[1]} lines, has {len(rows)}")
    for number, words in rows:
        if len(words) != width:
            raise CorruptLogFile(place, 0, f"line {number} does not have {width} words")
    return rows


def _number(word: str, place: str, line: int) -> int:
    try:
        return int(word)
    except ValueError as error:
        raise CorruptLogFile(place, 0, f"line {line}: {word!r} is not a number") from error
