"""Confluent's framing: a magic byte and a schema id in front of the data; with Protobuf, the message's indexes, too."""

from fencepost.client.schema_registry import ID_SIZES
from fencepost.protocol.varints import Malformed, get_varint, put_signed_varint
from fencepost.spark_connector.schemas.errors import PoisonRecordError

_INDEXES_MAX = 100
_SHOWN_BYTES = 16


def frame_id(frame: bytes) -> bytes:
    """The magic byte and the schema id. Raises PoisonRecordError if the record does not begin with them."""
    size = ID_SIZES.get(frame[0]) if frame else None
    if size is None:
        raise PoisonRecordError("it does not begin with magic byte 0, so it was not written with a schema registry")
    if len(frame) < size:
        raise PoisonRecordError(f"it has {len(frame)} bytes, but magic byte and schema id have {size}")
    return frame[:size]


def id_number(found: bytes) -> int | None:
    """The number of a schema id, or None for a GUID."""
    return int.from_bytes(found[1:], "big") if found[0] == 0 else None


def shown_bytes(frame: bytes) -> str:
    """The first bytes of a record, for an error."""
    more = " ..." if len(frame) > _SHOWN_BYTES else ""
    return (frame[:_SHOWN_BYTES].hex(" ") or "none") + more


def written_id(schema_id: int) -> bytes:
    """What stands in front of each record with this schema."""
    return b"\0" + schema_id.to_bytes(4, "big")


def read_indexes(frame: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Protobuf: where the message stands in its file, and where the data begins. Raises PoisonRecordError."""
    count, at = _read_varint(frame, at)
    if count == 0:
        return (0,), at
    if not 0 < count <= _INDEXES_MAX:
        raise PoisonRecordError(f"it has {count} message indexes, so it was not written by a Protobuf serializer")
    indexes = []
    for _ in range(count):
        index, at = _read_varint(frame, at)
        indexes.append(index)
    return tuple(indexes), at


def written_indexes(indexes: tuple[int, ...]) -> bytes:
    """Protobuf: where the message stands in its file. The first message of a file is one byte, 0."""
    if indexes == (0,):
        return b"\0"
    return b"".join(put_signed_varint(number) for number in (len(indexes), *indexes))


def _read_varint(frame: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint, and where it ends."""
    try:
        found, at = get_varint(frame, at)
    except IndexError:
        raise PoisonRecordError("it ends in its message indexes") from None
    except Malformed:
        raise PoisonRecordError("its message indexes are too large") from None
    return (found >> 1) ^ -(found & 1), at
