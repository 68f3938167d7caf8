"""The sizes and checksums of a segment's files when they were last complete, in a small file that Kafka does not have.

Kafka's indexes have no checksum, so Kafka trusts a flipped bit in one: read_committed readers could receive an aborted
record, or miss a record. The seal holds the checksums; an index that differs is rebuilt from the batches
(docs/decisions/0013-damaged-files.md). Kafka ignores files with unknown names.
"""

from struct import Struct
from typing import NamedTuple

import crc32c

from fencepost.broker.log.storage.indexes import FileSeal
from fencepost.broker.log.storage.store import CorruptLogFile

SEAL_SUFFIX = ".seal"

_MAGIC = b"fps1"
_BODY = Struct(">qqqqqIqIqI")
_CRC = Struct(">I")
SEAL_BYTES = len(_MAGIC) + _BODY.size + _CRC.size


class Seal(NamedTuple):
    """The state of a segment's files when the log ended at `end_offset`."""

    end_offset: int
    log_bytes: int
    max_timestamp_ms: int
    max_timestamp_offset: int
    offsets: FileSeal
    times: FileSeal
    aborted: FileSeal


def encode_seal(seal: Seal) -> bytes:
    """The file: a magic word, the numbers, and a CRC-32C over both."""
    data = _MAGIC + _BODY.pack(*seal[:4], *seal.offsets, *seal.times, *seal.aborted)
    return data + _CRC.pack(crc32c.crc32c(data))


def decode_seal(data: bytes, place: str) -> Seal:
    """Decode a seal. Raises CorruptLogFile, which names `place`."""
    size = len(_MAGIC) + _BODY.size
    if len(data) != size + _CRC.size or not data.startswith(_MAGIC):
        raise CorruptLogFile(place, 0, f"is no seal: {len(data)} bytes")
    if _CRC.unpack_from(data, size) != (crc32c.crc32c(data[:size]),):
        raise CorruptLogFile(place, size, "the checksum of the seal does not match")
    end_offset, log_bytes, timestamp_ms, offset, *files = _BODY.unpack_from(data, len(_MAGIC))
    seals = [FileSeal(files[at], files[at + 1]) for at in range(0, 6, 2)]
    return Seal(end_offset, log_bytes, timestamp_ms, offset, *seals)
