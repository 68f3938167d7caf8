"""One order in the three formats of a schema registry, with confluent-kafka's serializers for each."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

AVRO_ORDER = """
{"type": "record", "name": "Order", "namespace": "shop", "fields": [
  {"name": "id", "type": "long"}, {"name": "item", "type": "string"}]}
"""
JSON_ORDER = """
{"title": "Order", "type": "object", "required": ["id", "item"],
 "properties": {"id": {"type": "integer"}, "item": {"type": "string"}}}
"""


def _protobuf_classes() -> tuple[Any, Any]:
    """The messages `Order` and `Shop.Line` of a file that protoc would have compiled."""
    order = DescriptorProto(name="Order")
    order.field.add(name="id", number=1, type=FieldDescriptorProto.TYPE_INT64, label=1)
    order.field.add(name="item", number=2, type=FieldDescriptorProto.TYPE_STRING, label=1)
    shop = DescriptorProto(name="Shop")
    shop.nested_type.add().CopyFrom(order)
    shop.nested_type[0].name = "Line"
    file = FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3", message_type=[order, shop])
    pool = DescriptorPool()
    pool.Add(file)
    return tuple(GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}")) for name in ("Order", "Shop.Line"))


ProtobufOrder, ProtobufLine = _protobuf_classes()


class Format(NamedTuple):
    """How orders are written and read in one format."""

    serializer: Any
    deserializer: Any
    order: Any


FORMATS = ("avro", "json", "protobuf", "protobuf-nested")


@contextmanager
def open_format(name: str, url: str, *, in_header: bool = False, **conf: Any) -> Iterator[Format]:
    """Serializer, deserializer and a value; the two share no client of the registry. `conf` is the serializer's."""
    with SchemaRegistryClient({"url": url}) as writing, SchemaRegistryClient({"url": url}) as reading:
        conf = {key.replace("_", "."): value for key, value in conf.items()}
        if in_header:
            conf["schema.id.serializer"] = header_schema_id_serializer
        order = {"id": 7, "item": "green tea"}  # confluent-kafka reads no Avro below 6 bytes, wherever the id is
        if name == "avro":
            yield Format(AvroSerializer(writing, AVRO_ORDER, conf=conf), AvroDeserializer(reading), order)
        elif name == "json":
            reader = JSONDeserializer(JSON_ORDER, schema_registry_client=reading)
            yield Format(JSONSerializer(JSON_ORDER, writing, conf=conf), reader, order)
        else:
            kind = ProtobufOrder if name == "protobuf" else ProtobufLine
            protobuf_reader = ProtobufDeserializer(kind, schema_registry_client=reading)
            yield Format(ProtobufSerializer(kind, writing, conf=conf), protobuf_reader, kind(**order))
