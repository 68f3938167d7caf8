"""Avro by fastavro: bytes to rows with the rules of schema resolution, and rows to bytes."""

import datetime
import decimal
import io
import os
from collections.abc import Callable, Sequence
from typing import Any

import fastavro
import pyarrow as pa

from fencepost.spark_connector.schemas.avro_schema import (
    ArrowTypes,
    aligned,
    branches,
    is_struct,
    kind_of,
    whole_schema,
)
from fencepost.spark_connector.schemas.codec import Reader
from fencepost.spark_connector.schemas.errors import PoisonRecordError, SchemaError
from fencepost.spark_connector.schemas.framing import written_id
from fencepost.spark_connector.schemas.registry import SchemaText
from fencepost.spark_connector.schemas.spark_types import all_nullable

_END_BYTES = 8
_Change = Callable[[Any], Any]
_PYTHON = {
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "string": str,
    "enum": str,
    "bytes": bytes,
    "fixed": bytes,
    "array": list,
    "map": dict,
    "record": dict,
}
_LOGICAL_PYTHON = {
    "date": datetime.date,
    "decimal": decimal.Decimal,
    "local-timestamp-micros": datetime.datetime,
    "local-timestamp-millis": datetime.datetime,
    "timestamp-micros": datetime.datetime,
    "timestamp-millis": datetime.datetime,
}
"""What fastavro makes of each type."""


class AvroCodec:
    """One schema: reads what was written with any version of it, and writes with it."""

    def __init__(self, schema: SchemaText, message: str | None = None) -> None:
        """Raises SchemaError. `message` is for Protobuf only."""
        if message is not None:
            raise SchemaError("message names a message of a Protobuf file, but the schema is AVRO")
        self._whole = whole_schema(schema)
        types = ArrowTypes(self._whole)
        self.arrow_type = types.of(self._whole, "value")
        self._parsed = fastavro.parse_schema(self._whole)
        changes = _Changes(types.named)
        self._read_change = changes.reading(self._whole)
        self._write_change = changes.writing(self._whole)
        self._prefix = written_id(schema.schema_id or 0)

    def reader(self, writer: SchemaText) -> Reader:
        """Reads what was written with the writer's schema. Raises SchemaError if it does not fit."""
        whole = aligned(whole_schema(writer), self._whole)
        if kind_of(whole) == "bytes" and kind_of(self._whole) == "bytes":
            return _BytesReader()
        return _AvroReader(whole, self._whole, self._read_change)

    def assemble(self, values: Sequence[Any]) -> pa.Array:
        """The rows as one Arrow array."""
        return pa.array(values, all_nullable(self.arrow_type))

    def write(self, value: Any) -> bytes:
        """One record with its framing. Raises ValueError or TypeError."""
        if self._write_change is not None:
            value = self._write_change(value)
        if kind_of(self._whole) == "bytes":
            return self._prefix + bytes(value)
        stream = io.BytesIO()
        stream.write(self._prefix)
        fastavro.schemaless_writer(stream, self._parsed, value)
        return stream.getvalue()


class _AvroReader:
    """From one version of a schema to the reader's."""

    def __init__(self, writer: Any, reader: Any, change: _Change | None) -> None:
        self._writer, self._reader = fastavro.parse_schema(writer), fastavro.parse_schema(reader)
        self._writers, self._readers = (fastavro.parse_schema(_array_of(one)) for one in (writer, reader))
        self._change = change

    def one(self, frame: bytes, at: int) -> Any:
        """The record in these bytes, from an offset on."""
        stream = io.BytesIO(frame)
        stream.seek(at)
        value = self._read(stream, self._writer, self._reader)
        left = len(frame) - stream.tell()
        if left:
            raise PoisonRecordError(f"{left} bytes are left behind its last field")
        return value if self._change is None else self._change(value)

    def many(self, frames: Sequence[bytes], at: int) -> list[Any] | None:
        """All records, read as one array of Avro, which is several times quicker; None if one cannot be read.

        Random bytes stand behind each record. So none can end before or behind its own end without notice.
        """
        end = os.urandom(_END_BYTES)
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, "long", len(frames))
        for frame in frames:
            stream.write(memoryview(frame)[at:])
            stream.write(end)
        stream.write(b"\0")  # the array has no more blocks
        stream.seek(0)
        try:
            found = self._read(stream, self._writers, self._readers)
        except Exception:  # noqa: BLE001 - whatever it is, reading them one by one says which record it is
            return None
        if len(found) != len(frames) or any(one["end"] != end for one in found):
            return None
        change = self._change
        return [one["record"] if change is None else change(one["record"]) for one in found]

    def _read(self, stream: io.BytesIO, writer: Any, reader: Any) -> Any:
        return fastavro.schemaless_reader(stream, writer, reader, return_named_type=self._change is not None)


def _array_of(schema: Any) -> Any:
    end = {"name": "end", "type": {"type": "fixed", "name": "fencepost_end", "size": _END_BYTES}}
    fields = [{"name": "record", "type": schema}, end]
    return {"type": "array", "items": {"type": "record", "name": "fencepost_record", "fields": fields}}


class _BytesReader:
    """Confluent's serializers write bytes without their length."""

    def one(self, frame: bytes, at: int) -> Any:
        """All behind the offset."""
        return frame[at:]

    def many(self, frames: Sequence[bytes], at: int) -> list[Any] | None:
        """The same for each."""
        return [frame[at:] for frame in frames]


class _Changes:
    """What fastavro's values need to be Arrow's, and the reverse; None where they are the same."""

    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named

    def reading(self, node: Any) -> _Change | None:
        """Unions become structs. Where there is one, fastavro names every type, so all names are taken off."""
        return self._read(node) if self._has_struct(node) else None

    def _has_struct(self, node: Any) -> bool:
        node = self._resolved(node)
        if isinstance(node, list):
            return is_struct(node) or any(map(self._has_struct, node))
        if not isinstance(node, dict):
            return False
        inner = [node.get("items"), node.get("values"), *(one["type"] for one in node.get("fields", ()))]
        return any(self._has_struct(one) for one in inner if one is not None)

    def _resolved(self, node: Any) -> Any:
        return self._named.get(node, node) if isinstance(node, str) else node

    def _read(self, node: Any) -> _Change:
        node = self._resolved(node)
        if isinstance(node, list):
            return self._read_union(node)
        kind = kind_of(node)
        if kind == "record":
            fields = [(one["name"], self._read(one["type"])) for one in node["fields"]]
            return lambda value: {name: change(value[name]) for name, change in fields}
        if kind == "array":
            item = self._read(node["items"])
            return lambda value: [item(one) for one in value]
        if kind == "map":
            values = self._read(node["values"])
            return lambda value: {key: values(one) for key, one in value.items()}
        return lambda value: value

    def _read_union(self, union: list[Any]) -> _Change:
        kept = [self._resolved(one) for one in branches(union)]
        changes = [self._read(one) for one in kept]
        if not is_struct(union):

            def plain(value: Any) -> Any:
                value = value[1] if type(value) is tuple else value
                return value if value is None or len(changes) != 1 else changes[0](value)

            return plain

        def member(value: Any) -> Any:
            if value is None:
                return None
            number = _branch(kept, value)
            value = value[1] if type(value) is tuple else value
            return {f"member{number}": changes[number](value)}

        return member

    def writing(self, node: Any) -> _Change | None:
        """Maps, which Arrow gives as pairs, and unions."""
        node = self._resolved(node)
        if isinstance(node, list):
            return self._write_union(node)
        kind = kind_of(node)
        if kind == "record":
            return self._write_record(node)
        if kind == "array":
            item = self.writing(node["items"])
            return None if item is None else _unless_null(lambda value: [item(one) for one in value])
        if kind == "map":
            values = self.writing(node["values"])
            if values is None:
                return _unless_null(dict)
            return _unless_null(lambda value: {key: values(one) for key, one in dict(value).items()})
        return None

    def _write_record(self, node: Any) -> _Change | None:
        found = ((one["name"], self.writing(one["type"])) for one in node["fields"])
        changes = [(name, change) for name, change in found if change is not None]
        if not changes:
            return None

        def change_fields(value: Any) -> Any:
            return value | {name: change(value[name]) for name, change in changes if name in value}

        return _unless_null(change_fields)

    def _write_union(self, union: list[Any]) -> _Change | None:
        kept = branches(union)
        changes = [self.writing(one) for one in kept]
        if not is_struct(union):
            only = changes[0] if len(changes) == 1 else None
            return None if only is None else _unless_null(only)
        names = [one["name"] if isinstance(one, dict) and "name" in one else kind_of(one) for one in kept]

        def branch(value: Any) -> Any:
            given = [number for number in range(len(kept)) if value.get(f"member{number}") is not None]
            if len(given) != 1:
                raise ValueError(f"{len(given)} of its members are not null, but a union has one value")
            (number,) = given
            change, found = changes[number], value[f"member{number}"]
            return names[number], found if change is None else change(found)

        return _unless_null(branch)


def _unless_null(change: _Change) -> _Change:
    return lambda value: None if value is None else change(value)


def _branch(kept: list[Any], value: Any) -> int:
    """Which of a union's types a value of fastavro is."""
    if type(value) is tuple:
        names = [one.get("name") if isinstance(one, dict) else None for one in kept]
        if value[0] in names:
            return names.index(value[0])
        value = value[1]
    for number, one in enumerate(kept):
        logical = one.get("logicalType") if isinstance(one, dict) else None
        if type(value) is (_PYTHON[kind_of(one)] if logical is None else _LOGICAL_PYTHON[logical]):
            return number
    raise PoisonRecordError(f"a union holds a {type(value).__name__}, which none of its types is")
