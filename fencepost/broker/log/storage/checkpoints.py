"""Kafka's small text files of a log directory: offset checkpoints, leader epochs, partition metadata."""

import base64
import logging
import re
from collections.abc import Container, Iterable, Mapping

import crc32c

from fencepost.broker.log.storage.store import CorruptLogFile, Store
from fencepost.protocol.topics import TopicPartition

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"

LOG_STARTS_TWIN = LOG_STARTS + ".twin"
"""A copy: a flipped bit in one file must not make records readable again that DeleteRecords hid."""

_VERSION = "0"
CHECKSUM = b"#crc32c"
"""Replaces the topic's name in the row with the CRC-32C of the rows before it. Kafka ignores rows of unknown topics."""
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_OWNED = re.compile(
    r"#(?P<topic_id>[a-zA-Z0-9_-]{22})#(?P<topic>[a-zA-Z0-9._-]{1,249})#(?P<partitions>[0-9]{1,9}(,[0-9]{1,9})*)"
)
NO_TOPIC_ID = bytes(16)

logger = logging.getLogger(__name__)


def encode_offsets(
    offsets: Mapping[TopicPartition, int], owners: Mapping[TopicPartition, bytes] | None = None, *, exact: bool = False
) -> bytes:
    """A checkpoint of one offset per partition, then a checksum of these rows.

    Rows behind it name the topic ids in `owners`: `#TOPIC-ID#TOPIC#PARTITION,... 0 0`, and are followed by a checksum
    of their own. Kafka takes them for unknown topics, and older versions read no row behind the first checksum.

    `exact`: each change of the logs that makes a row wrong waits until the row was changed, so that a row that does not
    fit the files proves a loss. Kafka and earlier versions change the row later.
    """
    rows = [f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items())]
    text = [*rows, f"{CHECKSUM.decode()} {exact:d} {_checksum(rows)}"]
    if owners:
        by_topic: dict[tuple[str, bytes], list[str]] = {}
        for tp in sorted(owners):
            by_topic.setdefault((tp.topic, owners[tp]), []).append(str(tp.partition))
        owned = [f"#{topic_id_text(one)}#{name}#{','.join(found)} 0 0" for (name, one), found in by_topic.items()]
        text += [*owned, f"{CHECKSUM.decode()} 0 {_checksum(owned)}"]
    return _encode(text)


def is_exact(data: bytes | None) -> bool:
    return data is not None and b"\n%s 1 " % CHECKSUM in data


def decode_offsets(data: bytes | None, place: str) -> dict[TopicPartition, int]:
    """The offsets of a checkpoint; none if there is no file. Raises CorruptLogFile."""
    if data is None:
        return {}
    offsets = {}
    rows: list[str] = []
    for number, words in _decode(data, place, 3):
        topic, partition, offset = words
        if topic == CHECKSUM.decode():
            if _checksum(rows) != _number(offset, place, number):
                raise CorruptLogFile(place, 0, "the checksum does not match")
            break
        if not _TOPIC.fullmatch(topic):
            raise CorruptLogFile(place, 0, f"line {number}: {topic!r} cannot be a topic's name")
        offsets[TopicPartition(topic, _number(partition, place, number))] = _number(offset, place, number)
        rows.append(" ".join(words))
    return offsets


def load_offsets(store: Store, name: str) -> dict[TopicPartition, int] | None:
    """The offsets of a checkpoint; None for a damaged one, which is logged. Raises OSError."""
    try:
        return decode_offsets(store.load(name), f"{store.place}/{name}")
    except CorruptLogFile as error:
        logger.warning("damaged checkpoint ignored: %s", error)
        return None


def load_owners(store: Store, name: str) -> dict[TopicPartition, bytes]:
    """The topic ids in a checkpoint by partition; none in a file of Kafka or of an older version. Raises OSError."""
    place = f"{store.place}/{name}"
    try:
        return decode_owners(store.load(name), place)
    except CorruptLogFile as error:
        logger.warning("topic ids of a damaged checkpoint ignored: %s", error)
        return {}


def load_log_start_owners(store: Store) -> dict[TopicPartition, bytes]:
    """The topic ids in the file of the log start offsets, or in its copy. Raises OSError."""
    return load_owners(store, LOG_STARTS) or load_owners(store, LOG_STARTS_TWIN)


def decode_owners(data: bytes | None, place: str) -> dict[TopicPartition, bytes]:
    """The topic ids in a checkpoint. Raises CorruptLogFile."""
    found: dict[TopicPartition, bytes] = {}
    rows: list[str] = []
    for number, (first, _, last) in () if data is None else _decode(data, place, 3):
        if first == CHECKSUM.decode():
            if rows and _checksum(rows) != _number(last, place, number):
                raise CorruptLogFile(place, 0, "the checksum of the topic ids does not match")
        elif first.startswith("#"):
            owned = _OWNED.fullmatch(first)
            if owned is None:
                raise CorruptLogFile(place, 0, f"line {number}: {first!r} names no topic id")
            rows.append(f"{first} 0 0")
            owner = base64.urlsafe_b64decode(owned["topic_id"] + "==")
            found.update((TopicPartition(owned["topic"], int(one)), owner) for one in owned["partitions"].split(","))
    return found


def load_log_starts(store: Store) -> dict[TopicPartition, int] | None:
    """The log start offsets, from the file or from its copy. Raises OSError."""
    offsets = load_offsets(store, LOG_STARTS)
    if offsets is None:
        offsets = load_offsets(store, LOG_STARTS_TWIN)
    if offsets is None:
        logger.error("%s: records that DeleteRecords hid can be read again", store.place)
    return offsets


def load_topic_id(store: Store) -> bytes:
    """The topic id in a partition's directory; zeros if there is none. Raises CorruptLogFile and OSError."""
    return decode_partition_metadata(store.load(PARTITION_METADATA), f"{store.place}/{PARTITION_METADATA}")


def other_topic_id(store: Store, topic_id: bytes, deleted: Container[bytes]) -> bytes | None:
    """The id of the deleted topic that a partition's directory belongs to; None if it is that of topic `topic_id`.

    Raises CorruptLogFile if it belongs to a topic that was not deleted, and OSError.
    """
    found = load_topic_id(store)
    if NO_TOPIC_ID in (found, topic_id) or found == topic_id:
        return None
    if found not in deleted:
        why = f"has topic id {topic_id_text(found)}, which was never deleted; the topic has {topic_id_text(topic_id)}"
        raise CorruptLogFile(f"{store.place}/{PARTITION_METADATA}", 0, why)
    return found


def encode_epochs(epochs: Iterable[tuple[int, int]]) -> bytes:
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
    """The content of `partition.metadata` for this 16-byte topic id."""
    return f"version: 0\ntopic_id: {topic_id_text(topic_id)}".encode()


def decode_partition_metadata(data: bytes | None, place: str) -> bytes:
    """The 16-byte topic id; zeros if there is no file. Raises CorruptLogFile."""
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
    if not _NUMBER.fullmatch(word):
        raise CorruptLogFile(place, 0, f"line {line}: {word!r} is not a number")
    return int(word)


def _checksum(rows: list[str]) -> int:
    return int(crc32c.crc32c("\n".join(rows).encode()))
