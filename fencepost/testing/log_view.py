"""A partition's log for a test: batches, control batches and records, each with its verdict."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, overload

from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.reading import read_batches
from fencepost.broker.log.storage.store import FileRegion, Piece
from fencepost.protocol.batch_header import CONTROL_BIT, BatchHeader, iter_headers
from fencepost.protocol.control_records import ControlType, control_type
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.records import decode_records
from fencepost.protocol.topics import IsolationLevel, TopicPartition

Verdict = Literal["plain", "committed", "aborted", "open", "COMMIT", "ABORT", "control"]
"""The state of a batch: "plain" outside of transactions, else committed, aborted or open, as its transaction is.
A control batch is a COMMIT or ABORT marker, or "control" if it does not belong to a transaction."""

READ_BYTES = 4 << 20
SHOWN_MAX = 40
SHOWN_BYTES_MAX = 60


@dataclass(frozen=True)
class LoggedRecord:
    """One record, with its partition, offset and verdict."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    verdict: Verdict

    def __repr__(self) -> str:
        key = f"{short(self.key)}=" if self.key is not None else ""
        return f"<{self.topic}-{self.partition}@{self.offset} {key}{short(self.value)} {self.verdict}>"


@dataclass(frozen=True)
class Batch:
    """One batch. `records` are empty in control batches; sequence and producer id are -1 without a producer."""

    base_offset: int
    last_offset: int
    verdict: Verdict
    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool
    timestamp_ms: int
    records: tuple[LoggedRecord, ...] = field(repr=False)

    @property
    def is_control(self) -> bool:
        """Whether it is a control batch, which no consumer receives."""
        return self.verdict in ("COMMIT", "ABORT", "control")

    def __repr__(self) -> str:
        offsets = f"{self.base_offset}" + (f"-{self.last_offset}" if self.last_offset != self.base_offset else "")
        who = f"producer {self.producer_id} epoch {self.producer_epoch}" if self.producer_id >= 0 else "no producer"
        if self.is_control:
            return f"{offsets:>9}  {self.verdict} of {who}"
        shown = ", ".join(_pair(record) for record in self.records[:4])
        more = f", ... {len(self.records)} in all" if len(self.records) > 4 else ""
        return f"{offsets:>9}  {self.verdict:9} {who}: {shown}{more}"


@dataclass(frozen=True, repr=False)
class LogView(Sequence[Batch]):
    """A partition's log at one moment: a sequence of its batches, control batches included.

    `lso` is the last stable offset: read_committed consumers get only records below it.
    """

    topic: str
    partition: int
    batches: tuple[Batch, ...]
    start: int
    lso: int
    high_watermark: int
    end: int

    @overload
    def __getitem__(self, index: int) -> Batch: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Batch]: ...
    def __getitem__(self, index: int | slice) -> Batch | Sequence[Batch]:
        return self.batches[index]

    def __len__(self) -> int:
        return len(self.batches)

    @cached_property
    def records(self) -> list[LoggedRecord]:
        """Every data record, whatever its verdict."""
        return [record for batch in self.batches for record in batch.records if record.offset >= self.start]

    @property
    def committed(self) -> list[LoggedRecord]:
        """The records that a consumer with isolation.level=read_committed gets now."""
        return [r for r in self.records if r.verdict in ("plain", "committed") and r.offset < self.lso]

    @property
    def markers(self) -> list[Batch]:
        """The control batches."""
        return [batch for batch in self.batches if batch.is_control]

    @property
    def verdicts(self) -> list[Verdict]:
        """The verdicts of all batches, in order."""
        return [batch.verdict for batch in self.batches]

    def __repr__(self) -> str:
        bounds = f"offsets {self.start} to {self.end}, last stable {self.lso}, high watermark {self.high_watermark}"
        shown = [repr(batch) for batch in self.batches[-SHOWN_MAX:]]
        if len(self.batches) > SHOWN_MAX:
            shown.insert(0, f"          ... {len(self.batches) - SHOWN_MAX} batches before")
        return "\n".join([f"<log of {self.topic}-{self.partition}: {bounds}", *shown, ">"])


def view_of(log: PartitionLog) -> LogView:
    """The present log; in the broker's thread. Raises OSError if it cannot be read."""
    return LogView(
        log.tp.topic,
        log.tp.partition,
        tuple(_batches(log.tp, _all_bytes(log))),
        log.log_start_offset,
        log.last_stable_offset,
        log.high_watermark,
        log.log_end_offset,
    )


def _all_bytes(log: PartitionLog) -> bytes:
    pieces: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.high_watermark:
        read = read_batches(log, offset, READ_BYTES, IsolationLevel.READ_UNCOMMITTED)
        if read.error is not ErrorCode.NONE:
            raise OSError(f"{log.tp} cannot be read at {offset}: {read.error.name}")
        data = b"".join(map(_bytes_of, read.parts))
        ends = [header.next_offset for _, header in iter_headers(data)]
        if not ends:
            break
        pieces.append(data)
        offset = ends[-1]
    return b"".join(pieces)


def _bytes_of(piece: Piece) -> bytes:
    return os.pread(piece.fd, piece.length, piece.offset) if isinstance(piece, FileRegion) else bytes(piece)


def _batches(tp: TopicPartition, data: bytes) -> Iterator[Batch]:
    found = list(iter_headers(data))
    verdicts = _verdicts(data, found)
    for (at, header), verdict in zip(found, verdicts, strict=True):
        records = () if header.attributes & CONTROL_BIT else decode_records(data, at, header)
        yield Batch(
            header.base_offset,
            header.last_offset,
            verdict,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.is_transactional,
            header.max_timestamp,
            tuple(LoggedRecord(*tp, r.offset, r.key, r.value, r.headers, r.timestamp_ms, verdict) for r in records),
        )


def _verdicts(data: bytes, found: list[tuple[int, BatchHeader]]) -> list[Verdict]:
    """The verdict of each batch: a marker decides its producer's batches since the marker before it."""
    verdicts: list[Verdict] = []
    undecided: dict[int, list[int]] = {}
    for number, (at, header) in enumerate(found):
        if not header.attributes & CONTROL_BIT:
            verdicts.append("open" if header.is_transactional else "plain")
            if header.is_transactional:
                undecided.setdefault(header.producer_id, []).append(number)
            continue
        kind = control_type(data, at, header)
        if kind is not ControlType.COMMIT and kind is not ControlType.ABORT:
            verdicts.append("control")
            continue
        verdicts.append("COMMIT" if kind is ControlType.COMMIT else "ABORT")
        for earlier in undecided.pop(header.producer_id, ()):
            verdicts[earlier] = "committed" if kind is ControlType.COMMIT else "aborted"
    return verdicts


def short(data: bytes | None) -> str:
    """Bytes as text for messages, shortened."""
    shown = repr(data)
    return shown if len(shown) <= SHOWN_BYTES_MAX else f"{shown[: SHOWN_BYTES_MAX - 3]}..."


def _pair(record: LoggedRecord) -> str:
    return short(record.value) if record.key is None else f"{short(record.key)}={short(record.value)}"
