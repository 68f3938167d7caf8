"""The facts of an audit: a row for each batch of a log. The scan writes them, the rules and Spark read them."""

from __future__ import annotations

from typing import Any, NamedTuple

from fencepost.protocol.batch_header import BatchHeader, Buffer, CorruptBatch, check_crc
from fencepost.protocol.control_records import ControlType, control_type

DATA, COMMIT, ABORT, CONTROL, INDEXED, DAMAGE = "data", "commit", "abort", "control", "indexed", "damage"
"""The kinds of rows: records, the two markers, other control batches, an entry of the list of aborted transactions,
and bytes that are no batch."""
DIFFERS, LOST, CHANGED = "differs", "lost", "changed"
"""Further kinds, from the stores of a cluster: a row of the database that differs from its batches; a row whose batches
cannot be read; offsets that a broker deleted or compacted while the audit ran."""


class Fact(NamedTuple):
    """One row. `piece` and `position` give the order of the batches in the log.

    In an INDEXED row `base_offset` is the start of the aborted transaction, and `last_offset` its marker, or -1 if the
    source does not report it. `note` describes a fault; None means no fault.
    """

    topic: str
    partition: int
    piece: int
    position: int
    kind: str
    base_offset: int
    last_offset: int
    records: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool
    size_bytes: int
    max_timestamp_ms: int
    note: str | None


SCHEMA = (
    "topic string, partition int, piece int, position bigint, kind string, base_offset bigint, last_offset bigint, "
    "records int, producer_id bigint, producer_epoch int, base_sequence int, transactional boolean, size_bytes bigint, "
    "max_timestamp_ms bigint, note string"
)
"""The columns of a fact, as a Spark schema."""


def arrow_schema() -> Any:
    """The columns of a fact, as an Arrow schema."""
    import pyarrow as pa

    of = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "boolean": pa.bool_()}
    pairs = [part.split() for part in SCHEMA.split(", ")]
    return pa.schema([(name, of[kind]) for name, kind in pairs])


def fact_of(
    topic: str, partition: int, piece: int, position: int, buffer: Buffer, start: int, header: BatchHeader
) -> Fact:
    """The row of the batch that begins at `start`. It checks the checksum and reads the type of a marker."""
    kind, note = DATA, None
    if not check_crc(buffer, start, header):
        note = "the CRC-32C does not match its bytes"
    if header.is_control:
        kind = CONTROL
        try:
            found = control_type(buffer, start, header) if header.record_count else None
        except CorruptBatch as error:
            found, note = None, note or f"a control batch that cannot be read: {error}"
        if found is ControlType.COMMIT or found is ControlType.ABORT:
            kind = COMMIT if found is ControlType.COMMIT else ABORT
    return Fact(
        topic,
        partition,
        piece,
        position,
        kind,
        header.base_offset,
        header.last_offset,
        header.record_count,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.is_transactional,
        header.size_bytes,
        header.max_timestamp,
        note,
    )


def indexed(topic: str, partition: int, piece: int, producer_id: int, first_offset: int, last_offset: int) -> Fact:
    """The row of an entry in the list of aborted transactions."""
    return Fact(
        topic, partition, piece, -1, INDEXED, first_offset, last_offset, 0, producer_id, -1, -1, True, 0, -1, None
    )


def damage(topic: str, partition: int, piece: int, position: int, offset: int, note: str) -> Fact:
    """The row of bytes that are no batch. `offset` is the offset of the expected batch."""
    return Fact(topic, partition, piece, position, DAMAGE, offset, offset, 0, -1, -1, -1, False, 0, -1, note)


def of_row(kind: str, topic: str, partition: int, piece: int, position: int, span: tuple[int, int], note: str) -> Fact:
    """A fact of kind DIFFERS, LOST or CHANGED for the offsets from the first to the last of `span`."""
    return Fact(topic, partition, piece, position, kind, *span, 0, -1, -1, -1, False, 0, -1, note)
