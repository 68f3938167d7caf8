"""Unpacking and packing batches in small steps; slow work becomes a job for a thread."""

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import outcome

from fencepost.broker.log.config import DECOMPRESSED_LIMIT
from fencepost.broker.log.storage.segment import Segment
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.protocol.batch_header import BatchHeader, OversizedBatch, UnreadableBatch, check_crc
from fencepost.protocol.compression import Compression, compress
from fencepost.protocol.record_filter import RawRecord, packed, scan
from fencepost.protocol.records import unpack_records

_INLINE_BYTES = 8 << 10
"""Up to this size a codec takes a fraction of a millisecond."""


ResultT = TypeVar("ResultT")


class Offload(Generic[ResultT]):
    """A slow job without shared state. The caller of the steps calls `run` in a thread, then continues the steps.

    `run` never raises: the step that made the job gets its result or its error. So no caller can lose an error.
    """

    def __init__(self, job: Callable[[], ResultT]) -> None:
        self._job = job
        self._outcome: outcome.Outcome[ResultT] | None = None

    def run(self) -> None:
        self._outcome = outcome.capture(self._job)

    def result(self) -> ResultT:
        """The result of the job that was run. Raises the job's error."""
        assert self._outcome is not None, "the caller of the steps did not run the job"
        return self._outcome.unwrap()


Work = int | Offload[Any]
"""One step: bytes read and written, or a job."""
Steps = Generator[Work, None, ResultT]


def offloaded(job: Callable[[], ResultT]) -> Steps[ResultT]:
    """Have the caller of the steps run `job` in a thread. Returns its result, or raises its error."""
    work = Offload(job)
    yield work
    return work.result()


class Body(NamedTuple):
    """The unpacked records of a batch."""

    header: BatchHeader
    data: bytes | bytearray

    def records(self) -> Iterator[RawRecord]:
        """The records in order. Raises CorruptBatch."""
        return scan(self.data, self.header)


def checked(segment: Segment, position: int, header: BatchHeader, data: memoryview) -> memoryview:
    """The batch, if its CRC matches: a new CRC over damaged bytes would hide the damage. Raises CorruptLogFile."""
    if not check_crc(data, 0, header):
        raise CorruptLogFile(segment.file.place, position, "the batch's CRC-32C does not match its bytes")
    return data


def _unpacked(header: BatchHeader, data: memoryview, limit_bytes: int) -> bytes | bytearray:
    try:
        return unpack_records(data, 0, header, limit_bytes)
    except OversizedBatch as error:
        raise UnreadableBatch(f"{error}; raise the broker's {DECOMPRESSED_LIMIT}") from None


def records_of(header: BatchHeader, data: memoryview, limit_bytes: int) -> Steps[Body]:
    """Unpack a batch to at most `limit_bytes`. Raises UnreadableBatch."""
    job = partial(_unpacked, header, data, limit_bytes)
    if header.compression is Compression.NONE or header.size_bytes <= _INLINE_BYTES:
        return Body(header, job())
    return Body(header, (yield from offloaded(job)))


def batch_of(header: BatchHeader, body: bytes) -> Steps[tuple[BatchHeader, bytearray]]:
    """Pack records again with the codec that the header names, at its default level, as Kafka's cleaner does."""
    if header.compression is not Compression.NONE:
        job = partial(compress, header.compression, body)
        body = job() if len(body) <= _INLINE_BYTES else (yield from offloaded(job))
    return packed(header, body)
