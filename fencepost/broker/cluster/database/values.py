"""Rows, arrays and bytes as the functions of the schema take and return them. This module imports psycopg."""

import struct
from collections.abc import Iterable, Sequence
from typing import Any

from psycopg import pq
from psycopg.abc import Buffer
from psycopg.adapt import Dumper

from fencepost.broker.cluster.engine import Identity, Placement, Row, RowKind, Session

BYTEA_OID = 17
BYTEA_ARRAY_OID = 1001


class Blobs(list[bytes | None]):
    """An array of bytes for PostgreSQL."""


class BlobsDumper(Dumper):
    """Dumps `Blobs` in binary format: the number of dimensions, of nulls, the type, the length, the first index."""

    format = pq.Format.BINARY
    oid = BYTEA_ARRAY_OID

    def dump(self, obj: Blobs) -> Buffer:
        parts = [struct.pack("!iiIii", 1, 1, BYTEA_OID, len(obj), 1)]
        for blob in obj:
            parts += (struct.pack("!i", len(blob)), blob) if blob is not None else (struct.pack("!i", -1),)
        return b"".join(parts) if obj else struct.pack("!iiI", 0, 0, BYTEA_OID)


def array(values: Iterable[int | str | None]) -> str:
    """PostgreSQL's text of an array. The function that takes it knows the type, so one prepared statement serves all
    values; psycopg would choose a type for each list.
    """
    return "{" + ",".join("NULL" if value is None else str(value) for value in values) + "}"


def columns(rows: Sequence[Row]) -> tuple[Any, ...]:
    """An array for each column of the rows, as fp_append and fp_replace take them; their bases are not among them."""
    return (
        array(row.count for row in rows),
        array(int(row.kind) for row in rows),
        array(row.leader_epoch for row in rows),
        array(row.placement.object_id for row in rows),
        array(row.placement.position for row in rows),
        array(row.placement.size_bytes for row in rows),
        array(row.max_timestamp_ms for row in rows),
        array(row.batches for row in rows),
        [array(row.producer_ids) for row in rows],
        Blobs(row.heads for row in rows),
        Blobs(row.aborted for row in rows),
        Blobs(row.inline for row in rows),
        array(row.checksum for row in rows),
    )


def row_of(
    base: int, count: int, kind: int, leader_epoch: int, object_id: int, position: int, size_bytes: int, *rest: Any
) -> Row:
    """A row of the table `entry`, from its columns."""
    max_timestamp_ms, batches, producer_ids, heads, aborted, inline, checksum = rest
    placement = Placement(object_id, position, size_bytes)
    facts = (RowKind(kind), leader_epoch, placement, max_timestamp_ms, batches, tuple(producer_ids))
    return Row(base, count, *facts, heads, aborted, inline, checksum)


def session_of(broker: int, incarnation: int, session: int, commit_seq: int, bases: Sequence[int]) -> Session:
    return Session(Identity(broker, incarnation, session), commit_seq, tuple(bases))
