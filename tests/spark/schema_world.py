"""Records with schemas, without Spark: what is registered, read and written as Spark's workers do it."""

import io
import json
from collections.abc import Sequence
from typing import Any

import fastavro
import pyarrow as pa
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient

from fencepost.spark_connector.schemas.decoding import Decoder, Reading
from fencepost.spark_connector.schemas.encoding import Encoder, Writing
from fencepost.spark_connector.schemas.formats import codec_of
from fencepost.spark_connector.schemas.registry import Registry, SchemaText
from tests.kit.schema_registry import SchemaRegistry

SUBJECT = "orders-value"


def record(*fields: tuple[str, Any], name: str = "shop.Order", **more: Any) -> dict[str, Any]:
    """An Avro record; a field is (name, type) or (name, type, default)."""
    made = [{"name": one[0], "type": one[1], **({"default": one[2]} if len(one) > 2 else {})} for one in fields]
    return {"type": "record", "name": name, "fields": made, **more}


def avro_text(schema: Any, schema_id: int = 1, references: Sequence[tuple[str, Any]] = ()) -> SchemaText:
    """As the registry gives it."""
    return SchemaText("AVRO", json.dumps(schema), schema_id, tuple((name, json.dumps(one)) for name, one in references))


def avro_frame(schema: Any, value: Any, schema_id: int = 1) -> bytes:
    """What a serializer writes."""
    stream = io.BytesIO()
    stream.write(b"\0" + schema_id.to_bytes(4, "big"))
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def read_one(reader: SchemaText, writer: SchemaText, frame: bytes) -> Any:
    """A record by the reader's schema, the single way and as one of many, which must give the same."""
    codec = codec_of(reader, None)
    found = codec.reader(writer)
    single = codec.assemble([found.one(frame, 5)]).to_pylist()
    many = found.many([frame, frame], 5)
    assert many is None or codec.assemble(many).to_pylist() == single * 2
    return single[0]


def written_again(schema: SchemaText, frame: bytes) -> bytes:
    """Bytes to a row and back."""
    codec = codec_of(schema, None)
    row = codec.assemble([codec.reader(schema).one(frame, 5)])
    found: bytes = Encoder(Writing(SUBJECT, schema, None)).encode(row).to_pylist()[0]
    return found


def register(
    registry: SchemaRegistry, schema: Any, *, kind: str = "AVRO", subject: str = SUBJECT, **references: str
) -> int:
    """The id. `references` are name and subject, each of its first version."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    named = [SchemaReference(name, of, 1) for name, of in references.items()]
    with SchemaRegistryClient({"url": registry.url}) as client:
        return int(client.register_schema(subject, Schema(text, kind, named)))


def decoder(registry: SchemaRegistry, *, subject: str = SUBJECT, on_error: str = "keep", **more: Any) -> Decoder:
    """A worker's."""
    source = Registry.of(registry.url)
    return Decoder(Reading(source, source.latest(subject), more.get("message"), on_error))


def read(found: Decoder, *frames: bytes | None) -> list[Any]:
    """Rows, with on_error="keep" as (value, reason)."""
    rows = found.decode(frames)
    if not pa.types.is_struct(rows.type) or rows.type.get_field_index("error") < 0:
        return rows.to_pylist()  # type: ignore[no-any-return]
    return [(one["value"], one["error"] and one["error"]["reason"]) for one in rows.to_pylist()]
