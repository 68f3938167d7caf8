"""What people reported of connectors and serializers with a registry, played again here."""

import json
from collections.abc import Iterator

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from fencepost.spark_connector.schemas import SchemaError
from fencepost.spark_connector.schemas.encoding import Encoder, Writing
from fencepost.spark_connector.schemas.registry import Registry
from tests.kit.schema_registry import SchemaRegistry
from tests.kit.schemas import ProtobufLine, ProtobufOrder
from tests.spark.schema_world import SUBJECT, avro_frame, decoder, read, record, register

ORDER = record(("id", "long"), ("item", "string"))


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as made:
        yield made


def test_a_batch_makes_no_request_for_each_record(registry: SchemaRegistry) -> None:
    """AbsaOSS/ABRiS 85, 105 and 219: the registry was asked for each record, and for each task again."""
    frame = avro_frame(ORDER, {"id": 1, "item": "a"}, register(registry, ORDER))
    before = len(registry.requests)
    first, second = decoder(registry), decoder(registry)
    read(first, *[frame] * 500)
    read(second, *[frame] * 500)
    assert [one for one in registry.requests[before:] if one.startswith("GET /schemas")] == ["GET /schemas/ids/1"]


def test_a_tombstone_is_no_poison_record(registry: SchemaRegistry) -> None:
    """confluentinc/confluent-kafka-python 189: the Avro decoder failed in PySpark for records without a value."""
    register(registry, ORDER)
    before = len(registry.requests)
    assert read(decoder(registry, on_error="fail"), None, None) == [None, None]
    assert not [one for one in registry.requests[before:] if "ids" in one]


def test_avro_without_framing_is_not_read_as_nulls(registry: SchemaRegistry) -> None:
    """datacontract/datacontract-cli 1344: five bytes were cut from records without framing; all fields were null."""
    frame = avro_frame(ORDER, {"id": 1, "item": "a"}, register(registry, ORDER))
    ((value, reason),) = read(decoder(registry), frame[5:])
    assert value is None
    assert "was not written with a schema registry" in reason


@pytest.mark.parametrize("indexes", [b"\x02\x01", b"\x02\x08", b"\x01", b"\x02", b"\xff" * 6, b"\x04\x02\x63"])
def test_message_indexes_out_of_range_are_poison(registry: SchemaRegistry, indexes: bytes) -> None:
    """confluentinc/confluent-kafka-python 2271 and -javascript 467: index -1 read another message, 4 was a crash."""
    with SchemaRegistryClient({"url": registry.url}) as client:
        good = ProtobufSerializer(ProtobufOrder, client)(
            ProtobufOrder(id=7, item="tea"), SerializationContext("orders", MessageField.VALUE)
        )
    assert good is not None
    found = read(decoder(registry), good, good[:5] + indexes + good[6:])
    assert found[0] == ({"id": 7, "item": "tea"}, None)
    assert found[1][0] is None
    assert "indexes" in found[1][1]


def test_nested_messages_have_the_outer_index_first(registry: SchemaRegistry) -> None:
    """confluentinc/confluent-kafka-dotnet 2505: the indexes of nested messages were written in the wrong order."""
    with SchemaRegistryClient({"url": registry.url}) as client:
        frame = ProtobufSerializer(ProtobufLine, client)(
            ProtobufLine(id=7, item="tea"), SerializationContext("orders", MessageField.VALUE)
        )
    found = Encoder(Writing(SUBJECT, Registry.of(registry.url).latest(SUBJECT), "shop.Shop.Line"))
    rows = pa.array([{"item": "tea", "id": 7}])
    assert found.encode(rows).to_pylist() == [frame]


def test_a_record_of_few_bytes_is_read(registry: SchemaRegistry) -> None:
    """confluentinc/confluent-kafka-python 306: "message is too small". A record without data has five bytes."""
    nothing = record(("n", "null"))
    frame = avro_frame(nothing, {"n": None}, register(registry, nothing))
    assert len(frame) == 5
    assert read(decoder(registry), frame) == [({"n": None}, None)]


def test_a_newer_schema_does_not_move_values_to_other_fields(registry: SchemaRegistry) -> None:
    """Apicurio/apicurio-registry 9125: with the latest schema, values were written by position under wrong names."""
    register(registry, ORDER)
    newer = record(("note", ["null", "string"], None), ("item", "string"), ("id", "long"))
    register(registry, newer)
    encoder = Encoder(Writing(SUBJECT, Registry.of(registry.url).latest(SUBJECT), None))
    rows = pa.array([{"id": 7, "item": "tea"}])
    assert encoder.encode(rows).to_pylist() == [avro_frame(newer, {"note": None, "item": "tea", "id": 7}, 2)]
    renamed = record(("number", "long", 0), ("item", "string"))
    encoder = Encoder(Writing(SUBJECT, Registry.of(registry.url).latest(SUBJECT, 1), None))
    with pytest.raises(SchemaError, match="has no field id"):
        encoder.encode(pa.array([{"number": 7, "item": renamed["name"]}]))


def test_an_optional_reference_in_json_may_be_null_or_missing(registry: SchemaRegistry) -> None:
    """confluentinc/schema-registry 1800 and 1801: fields with oneOf of null and a $ref were required."""
    part = {"type": "object", "properties": {"x": {"type": "integer"}}}
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "part": {"oneOf": [{"type": "null", "title": "Not included"}, {"$ref": "#/definitions/part"}]},
        },
        "required": ["id"],
        "definitions": {"part": part},
    }
    head = b"\0" + register(registry, schema, kind="JSON").to_bytes(4, "big")
    texts = [{"id": "a"}, {"id": "b", "part": None}, {"id": "c", "part": {"x": 1}}]
    found = read(decoder(registry), *(head + json.dumps(text).encode() for text in texts))
    assert found == [
        ({"id": "a", "part": None}, None),
        ({"id": "b", "part": None}, None),
        ({"id": "c", "part": {"x": 1}}, None),
    ]


def test_a_schema_with_references_reads_records_of_the_same_schema_in_one_piece(registry: SchemaRegistry) -> None:
    """confluentinc/confluent-kafka-python 2173: an expanded schema and one with references did not go together."""
    line = record(("sku", "string"), name="shop.Line")
    register(registry, line, subject="line")
    whole = record(("line", line), ("more", {"type": "array", "items": "shop.Line"}))
    expanded = register(registry, whole, subject="expanded")
    split = record(("line", "shop.Line"), ("more", {"type": "array", "items": "shop.Line"}))
    id_of_split = register(registry, split, **{"shop.Line": "line"})
    value = {"line": {"sku": "a"}, "more": [{"sku": "b"}]}
    frames = [avro_frame(whole, value, one) for one in (expanded, id_of_split)]
    assert read(decoder(registry), *frames) == [(value, None)] * 2
    assert read(decoder(registry, subject="expanded"), *frames) == [(value, None)] * 2


def test_what_is_written_is_what_confluents_serializer_writes(registry: SchemaRegistry) -> None:
    """confluentinc/confluent-kafka-python 1302 is of arrays of references; their bytes are those of any array."""
    with SchemaRegistryClient({"url": registry.url}) as client:
        frame = AvroSerializer(client, json.dumps(ORDER))(
            {"id": 7, "item": "tea"}, SerializationContext("orders", MessageField.VALUE)
        )
    encoder = Encoder(Writing(SUBJECT, Registry.of(registry.url).latest(SUBJECT), None))
    assert encoder.encode(pa.array([{"id": 7, "item": "tea"}])).to_pylist() == [frame]


def test_a_registry_with_proto_text_only_is_refused_with_the_reason(registry: SchemaRegistry) -> None:
    """confluentinc/confluent-kafka-python reads descriptors only, and says `Incorrect padding` of .proto text."""
    register(registry, 'syntax = "proto3"; message M { int32 x = 1; }', kind="PROTOBUF")
    with pytest.raises(SchemaError, match=r"gives subject orders-value as \.proto text"):
        Registry.of(registry.url).latest(SUBJECT)
