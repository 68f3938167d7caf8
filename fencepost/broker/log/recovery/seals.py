"""What the files of a segment were when they were last complete: sizes and checksums, in a small file of our own.

Kafka's indexes carry no checksum, so a bit that flips in one is believed: an aborted record could come to readers of
committed data, or a record be passed over. The seal beside them says what they must be; what differs is made again
from the batches (docs/decisions/0013-damaged-files.md). Kafka passes over files with names it does not know.
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
    """What `encode_seal` made. Raises CorruptLogFile, naming `place`."""
    size = len(_MAGIC) + _BODY.size
    if len(data) != size + _CRC.size or not data.startswith(_MAGIC):
        raise CorruptLogFile(place, 0, f"is no seal: {len(data)} bytes")
    if _CRC.unpack_from(data, size) != (crc32c.crc32c(data[:size]),):
        raise CorruptLogFile(place, size, "the checksum of the seal does not match")
    end_offset, log_bytes, timestamp_ms, offset, *files = _BODY.unpack_from(data, len(_MAGIC))
    seals = [FileSeal(files[at], files[at + 1]) for at in range(0, 6, 2)]
    return Seal(end_offset, log_bytes, timestamp_ms, offset, *seals)
