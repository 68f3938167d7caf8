"""Reads batches of records in Spark's workers. A worker keeps its schemas from batch to batch and task to task."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fencepost.client.schema_registry import shown_id
from fencepost.spark_connector.schemas.codec import Reader
from fencepost.spark_connector.schemas.errors import PoisonRecordError, RegistryError, SchemaError
from fencepost.spark_connector.schemas.formats import codec_of
from fencepost.spark_connector.schemas.framing import frame_id, id_number, shown_bytes
from fencepost.spark_connector.schemas.registry import Registry, SchemaText, UnknownSchemaError

FAIL, NULL, KEEP = ON_ERROR = ("fail", "null", "keep")
ERROR_TYPE = pa.struct([pa.field("reason", pa.string()), pa.field("schema_id", pa.int64())])
_ASK_AGAIN_SECONDS = 60.0
_UNREADABLE_MAX = 10_000
_REASON_CHARS = 500


@dataclass(frozen=True)
class Reading:
    """What Spark sends to its workers with the query."""

    registry: Registry
    schema: SchemaText
    message: str | None
    on_error: str


_decoders: dict[Reading, "Decoder"] = {}
"""This worker's. They hold the schemas of all writers that it has met."""


def decode(reading: Reading, frames: pa.Array) -> pa.Array:
    """The rows of a batch. Raises PoisonRecordError with on_error="fail", and RegistryError whatever on_error is."""
    decoder = _decoders.get(reading)
    if decoder is None:
        decoder = _decoders[reading] = Decoder(reading)
    if pa.types.is_string(frames.type) or pa.types.is_large_string(frames.type):
        raise SchemaError("the column of records is string, but must be binary")
    return decoder.decode(frames.to_pylist())


class Decoder:
    """The reader's schema, and a function for each writer's."""

    def __init__(self, reading: Reading) -> None:
        self._registry, self._kind = reading.registry, reading.schema.kind
        self._on_error = reading.on_error
        self._codec = codec_of(reading.schema, reading.message)
        self._readers: dict[bytes, Reader] = {}
        self._unreadable: dict[bytes, tuple[str, float]] = {}
        """By schema id: why it cannot be read, and until when the registry is not asked again."""

    def decode(self, frames: Sequence[bytes | None]) -> pa.Array:
        """The rows of these records. Null records are null rows."""
        reasons: dict[int, str] = {}
        values = self._read_all(frames, reasons)
        rows = self._assemble(values, reasons)
        if reasons and self._on_error == FAIL:
            first = min(reasons)
            raise PoisonRecordError(_explained(frames[first] or b"", reasons[first]))
        if self._on_error != KEEP:
            return rows
        errors = pa.array([_error(reasons.get(index), frame) for index, frame in enumerate(frames)], ERROR_TYPE)
        return pa.StructArray.from_arrays([rows, errors], names=["value", "error"])

    def _read_all(self, frames: Sequence[bytes | None], reasons: dict[int, str]) -> list[Any]:
        """The values of all records; where one cannot be read None, and its reason is noted."""
        values: list[Any] = [None] * len(frames)
        places: dict[bytes, list[int]] = {}
        for index, frame in enumerate(frames):
            if frame is not None:
                try:
                    places.setdefault(frame_id(frame), []).append(index)
                except PoisonRecordError as error:
                    reasons[index] = str(error)
        for found, indexes in places.items():
            same = [frames[index] or b"" for index in indexes]
            try:
                reader = self._readers.get(found) or self._reader_of(found)
            except PoisonRecordError as error:
                reasons |= dict.fromkeys(indexes, str(error))
                continue
            read = reader.many(same, len(found))
            for number, index in enumerate(indexes):
                try:
                    values[index] = reader.one(same[number], len(found)) if read is None else read[number]
                except PoisonRecordError as error:
                    reasons[index] = str(error)
                except Exception as error:  # noqa: BLE001 - the formats' libraries have no common error for bad data
                    reasons[index] = _reason(error)
        return values

    def _reader_of(self, found: bytes) -> Reader:
        reason, until = self._unreadable.get(found, ("", 0.0))
        if time.monotonic() < until:
            raise PoisonRecordError(reason)
        try:
            writer = self._writer(found)
            if writer.kind != self._kind:
                raise SchemaError(f"schema {shown_id(found)} is {writer.kind}, and {self._kind} is wanted")
            if writer.rules:
                raise SchemaError(f"schema {shown_id(found)} has rules (such as encryption), which Spark does not run")
            reader = self._codec.reader(writer)
        except RegistryError:
            raise  # the registry's failure is no fault of the record: the task fails, and Spark runs it again
        except Exception as error:  # the formats' libraries have no common error for schemas that they cannot use
            reason = _reason(error)
            if len(self._unreadable) >= _UNREADABLE_MAX:
                self._unreadable.clear()  # data that is no record at all may hold any id
            self._unreadable[found] = reason, time.monotonic() + _ASK_AGAIN_SECONDS
            raise PoisonRecordError(reason) from error
        self._readers[found] = reader
        return reader

    def _writer(self, found: bytes) -> SchemaText:
        number = id_number(found)
        if number is None:
            return self._registry.by_guid(found[1:], self._kind)
        return self._registry.by_id(number, self._kind)

    def _assemble(self, values: list[Any], reasons: dict[int, str]) -> pa.Array:
        """All values as one array. A value that Arrow cannot take is poison, and its reason is noted."""
        try:
            return self._codec.assemble(values)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            for index, value in enumerate(values):
                try:
                    self._codec.assemble([value])
                except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
                    reasons[index], values[index] = f"a value does not fit its column: {_reason(error)}", None
            return self._codec.assemble(values)


def _reason(error: Exception) -> str:
    """Why a record cannot be read. It goes into a column and a header, so it has a limit."""
    if isinstance(error, UnknownSchemaError | SchemaError | PoisonRecordError | pa.ArrowException):
        said = str(error)
    elif isinstance(error, EOFError):
        said = "it ends before its last field"
    elif isinstance(error, IndexError):
        said = "it has a number of a union's type, or of an enum's symbol, that its schema does not have"
    else:
        said = f"{type(error).__name__}: {error}"
    return said if len(said) <= _REASON_CHARS else f"{said[:_REASON_CHARS]} ..."


def _error(reason: str | None, frame: bytes | None) -> dict[str, Any] | None:
    if reason is None or frame is None:
        return None
    try:
        number = id_number(frame_id(frame))
    except PoisonRecordError:
        number = None
    return {"reason": reason, "schema_id": number}


def _explained(frame: bytes, reason: str) -> str:
    try:
        schema = f"schema id {shown_id(frame_id(frame))}"
    except PoisonRecordError:
        schema = "no schema id"
    return (
        f"a record cannot be read: {reason} ({schema}; first bytes {shown_bytes(frame)}). "
        'With on_error="null" it is null, with on_error="keep" its error is in a column'
    )
