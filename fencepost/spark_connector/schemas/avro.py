"""Avro by fastavro: bytes to rows with the rules of schema resolution, and rows to bytes."""

import io
import os
from collections.abc import Callable, Sequence
from typing import Any

import fastavro
import pyarrow as pa

from fencepost.spark_connector.schemas.avro_defaults import parsed, with_usable_defaults, without_defaults
from fencepost.spark_connector.schemas.avro_schema import (
    ArrowTypes,
    branches,
    definitions,
    in_namespaces,
    is_member,
    kind_of,
    whole_schema,
    with_members,
)
from fencepost.spark_connector.schemas.avro_versions import aligned
from fencepost.spark_connector.schemas.codec import Reader
from fencepost.spark_connector.schemas.errors import PoisonRecordError, SchemaError
from fencepost.spark_connector.schemas.framing import written_id
from fencepost.spark_connector.schemas.registry import SchemaText
from fencepost.spark_connector.schemas.spark_types import all_nullable

_END_BYTES = 8
_Change = Callable[[Any], Any]


class AvroCodec:
    """One schema: reads what was written with any version of it, and writes with it."""

    def __init__(self, schema: SchemaText, message: str | None = None) -> None:
        """Raises SchemaError. `message` is for Protobuf only."""
        if message is not None:
            raise SchemaError("message names a message of a Protobuf file, but the schema is AVRO")
        whole = with_usable_defaults(whole_schema(schema))
        self.arrow_type = ArrowTypes(whole).of(whole, "value")
        self._written = without_defaults(in_namespaces(whole))
        self._whole = with_members(in_namespaces(whole))
        self._parsed, self._parsed_rows = parsed(self._whole), parsed(_rows_of(self._whole))
        self._change = _Changes(dict(definitions(self._whole))).of(self._whole)
        self._prefix = written_id(schema.schema_id or 0)

    def reader(self, writer: SchemaText) -> Reader:
        """Reads what was written with the writer's schema. Raises SchemaError if it does not fit."""
        whole = without_defaults(in_namespaces(whole_schema(writer)))
        if kind_of(whole) == "bytes" and kind_of(self._whole) == "bytes":
            return _BytesReader()
        parsed_reader = self._parsed, self._parsed_rows
        if whole == self._written:
            return _AvroReader(parsed_reader, parsed_reader)  # there is nothing to resolve, which is quicker
        whole = aligned(whole, self._whole)
        return _AvroReader((fastavro.parse_schema(whole), fastavro.parse_schema(_rows_of(whole))), parsed_reader)

    def assemble(self, values: Sequence[Any]) -> pa.Array:
        return pa.array(values, all_nullable(self.arrow_type))

    def write(self, value: Any) -> bytes:
        """One record with its framing. Raises ValueError or TypeError."""
        if self._change is not None:
            value = self._change(value)
        if kind_of(self._whole) == "bytes":
            return self._prefix + bytes(value)
        stream = io.BytesIO()
        stream.write(self._prefix)
        fastavro.schemaless_writer(stream, self._parsed, value)
        return stream.getvalue()


class _AvroReader:
    """From one version of a schema to the reader's. Each is parsed for a record, and for an array of records."""

    def __init__(self, writer: tuple[Any, Any], reader: tuple[Any, Any]) -> None:
        self._record, self._rows = zip(writer, reader, strict=True)

    def one(self, frame: bytes, at: int) -> Any:
        """The record in these bytes, from an offset on."""
        stream = io.BytesIO(frame)
        stream.seek(at)
        value = fastavro.schemaless_reader(stream, *self._record)
        left = len(frame) - stream.tell()
        if left:
            raise PoisonRecordError(f"{left} bytes are left behind its last field")
        return value

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
            found: Any = fastavro.schemaless_reader(stream, *self._rows)
        except Exception:  # noqa: BLE001 - whatever it is, reading them one by one says which record it is
            return None
        if len(found) != len(frames) or any(one["end"] != end for one in found):
            return None
        return [one["record"] for one in found]


def _rows_of(schema: Any) -> Any:
    end = {"name": "end", "type": {"type": "fixed", "name": "fencepost_end", "size": _END_BYTES}}
    fields = [{"name": "record", "type": schema}, end]
    return {"type": "array", "items": {"type": "record", "name": "fencepost_record", "fields": fields}}


class _BytesReader:
    """Confluent's serializers write bytes without their length."""

    def one(self, frame: bytes, at: int) -> Any:
        return frame[at:]

    def many(self, frames: Sequence[bytes], at: int) -> list[Any] | None:
        return [frame[at:] for frame in frames]


class _Changes:
    """What rows of Arrow need to be fastavro's values; None where they are the same."""

    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named

    def of(self, node: Any) -> _Change | None:
        """Maps, which Arrow gives as pairs, and unions."""
        node = self._named.get(node, node) if isinstance(node, str) else node
        if isinstance(node, list):
            return self._union(node)
        kind = kind_of(node)
        if kind == "record":
            return self._record(node)
        if kind == "array":
            item = self.of(node["items"])
            return None if item is None else _unless_null(lambda value: [item(one) for one in value])
        if kind == "map":
            values = self.of(node["values"])
            if values is None:
                return _unless_null(dict)
            return _unless_null(lambda value: {key: values(one) for key, one in dict(value).items()})
        return None

    def _record(self, node: Any) -> _Change | None:
        found = ((one["name"], self.of(one["type"])) for one in node["fields"])
        changes = [(name, change) for name, change in found if change is not None]
        if not changes:
            return None

        def change_fields(value: Any) -> Any:
            return value | {name: change(value[name]) for name, change in changes if name in value}

        return _unless_null(change_fields)

    def _union(self, union: list[Any]) -> _Change | None:
        kept = branches(union)
        if not any(map(is_member, kept)):
            only = self.of(kept[0]) if len(kept) == 1 else None
            return None if only is None else _unless_null(only)
        names = {one["fields"][0]["name"]: (one["name"], self.of(one["fields"][0]["type"])) for one in kept}

        def branch(value: Any) -> Any:
            given = [name for name, one in value.items() if one is not None]
            if len(given) != 1:
                raise ValueError(f"{len(given)} of its members are not null, but a union has one value")
            (name,) = given
            record, change = names[name]
            return record, {name: value[name] if change is None else change(value[name])}

        return _unless_null(branch)


def _unless_null(change: _Change) -> _Change:
    return lambda value: None if value is None else change(value)
