"""Confluent's client of a schema registry, and its serializers, with fencepost's own registry."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from fencepost.testing import Broker

pytestmark = pytest.mark.interop

USERS = {"ann": "ann-secret"}
ORDER = '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"long"}]}'
GROWN = ORDER[:-2] + ',{"name":"note","type":"string","default":""}]}'
BROKEN = ORDER[:-2] + ',{"name":"note","type":"string"}]}'
CART = '{"type":"record","name":"Cart","namespace":"shop","fields":[{"name":"order","type":"Order"}]}'

Connect = Callable[[], SchemaRegistryClient]


@pytest.fixture(scope="module", params=[{}, USERS], ids=["without login", "with login"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Makes clients that share no cache."""
    with Broker(schema_registry=True, users=request.param) as broker:
        login = {"basic.auth.user.info": "ann:ann-secret"} if request.param else {}
        made: list[SchemaRegistryClient] = []

        def one_more() -> SchemaRegistryClient:
            made.append(SchemaRegistryClient({"url": broker.schema_registry_url, "max.retries": 0, **login}))
            return made[-1]

        yield one_more
        for client in made:
            client.close()


def value_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_a_schema_evolves_and_data_of_old_versions_stays_readable(connect: Connect) -> None:
    old = AvroSerializer(connect(), ORDER)({"id": 70_000}, value_of("orders"))
    new = AvroSerializer(connect(), GROWN)({"id": 8, "note": "fragile"}, value_of("orders"))
    read = AvroDeserializer(connect(), GROWN)
    assert read(old, value_of("orders")) == {"id": 70_000, "note": ""}
    assert read(new, value_of("orders")) == {"id": 8, "note": "fragile"}
    assert connect().get_versions("orders-value") == [1, 2]


def test_an_incompatible_schema_is_refused(connect: Connect) -> None:
    client = connect()
    client.register_schema("strict-value", Schema(ORDER))
    assert client.test_compatibility("strict-value", Schema(GROWN))
    assert not client.test_compatibility("strict-value", Schema(BROKEN))
    with pytest.raises(SchemaRegistryError, match="note") as caught:
        AvroSerializer(connect(), BROKEN)({"id": 1, "note": ""}, value_of("strict"))
    assert (caught.value.http_status_code, caught.value.error_code) == (409, 40901)
    client.set_compatibility("strict-value", "NONE")
    assert client.get_compatibility("strict-value") == "NONE"
    assert client.register_schema("strict-value", Schema(BROKEN)) > 0


def test_avro_with_a_reference(connect: Connect) -> None:
    client = connect()
    client.register_schema("order-type", Schema(ORDER))
    named = [SchemaReference("shop.Order", "order-type", 1)]
    data = AvroSerializer(connect(), Schema(CART, "AVRO", named))({"order": {"id": 7}}, value_of("carts"))
    assert AvroDeserializer(connect())(data, value_of("carts")) == {"order": {"id": 7}}
    [cart] = client.get_referenced_by("order-type", 1)
    assert client.get_schema(cart).references == named
    with pytest.raises(SchemaRegistryError) as caught:
        client.delete_subject("order-type")
    assert caught.value.error_code == 42206


def test_json_schema_with_a_reference(connect: Connect) -> None:
    order = {"$id": "order.json", "type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
    cart = {"title": "Cart", "type": "object", "properties": {"order": {"$ref": "order.json"}}}
    connect().register_schema("order-json", Schema(json.dumps(order), "JSON"))
    schema = Schema(json.dumps(cart), "JSON", [SchemaReference("order.json", "order-json", 1)])
    data = JSONSerializer(schema, connect())({"order": {"id": 7}}, value_of("json-carts"))
    read = JSONDeserializer(schema, schema_registry_client=connect())
    assert read(data, value_of("json-carts")) == {"order": {"id": 7}}


def _cart_class() -> Any:
    """A message of a file that imports another file, as protoc would have compiled them."""
    pool, optional = DescriptorPool(), 1
    order = DescriptorProto(name="Order")
    order.field.add(name="id", number=1, type=FieldDescriptorProto.TYPE_INT64, label=optional)
    pool.Add(FileDescriptorProto(name="order.proto", package="shop", syntax="proto3", message_type=[order]))
    cart = DescriptorProto(name="Cart")
    cart.field.add(
        name="order", number=1, type=FieldDescriptorProto.TYPE_MESSAGE, type_name=".shop.Order", label=optional
    )
    pool.Add(
        FileDescriptorProto(
            name="cart.proto", package="shop", syntax="proto3", dependency=["order.proto"], message_type=[cart]
        )
    )
    return GetMessageClass(pool.FindMessageTypeByName("shop.Cart"))


def test_protobuf_with_a_reference(connect: Connect) -> None:
    """The serializer registers the imported file first, and then the file with a reference to it."""
    cart = _cart_class()
    made = cart()
    made.order.id = 7
    data = ProtobufSerializer(cart, connect())(made, value_of("proto-carts"))
    read = ProtobufDeserializer(cart, schema_registry_client=connect())
    assert read(data, value_of("proto-carts")) == made
    references = connect().get_latest_version("proto-carts-value").schema.references or []
    assert [(one.name, one.subject, one.version) for one in references] == [("order.proto", "order.proto", 1)]


def test_a_writer_takes_the_latest_version(connect: Connect) -> None:
    connect().register_schema("latest-value", Schema(GROWN))
    write = AvroSerializer(connect(), conf={"auto.register.schemas": False, "use.latest.version": True})
    data = write({"id": 1, "note": "n"}, value_of("latest"))
    assert AvroDeserializer(connect())(data, value_of("latest")) == {"id": 1, "note": "n"}


def test_a_writer_finds_a_version_by_its_metadata(connect: Connect) -> None:
    from confluent_kafka.schema_registry import Metadata, MetadataProperties

    for text, stage in ((ORDER, "old"), (GROWN, "new")):
        metadata = Metadata(tags=None, properties=MetadataProperties({"stage": stage}), sensitive=None)
        connect().register_schema("staged-value", Schema(text, "AVRO", metadata=metadata))
    assert connect().get_latest_with_metadata("staged-value", {"stage": "old"}).version == 1


def test_every_call_of_the_client(connect: Connect) -> None:
    client = connect()
    number = client.register_schema("all-value", Schema(ORDER))
    registered = client.lookup_schema("all-value", Schema(ORDER))
    assert (registered.schema_id, registered.version, registered.schema.schema_str) == (number, 1, ORDER)
    assert registered.guid is not None
    assert connect().get_schema_by_guid(registered.guid).schema_str == ORDER
    assert client.get_version("all-value", 1).guid == registered.guid
    assert "all-value" in client.get_subjects_by_schema_id(number)
    assert ("all-value", 1) in [(one.subject, one.version) for one in client.get_schema_versions(number)]
    assert set(client.get_schema_types()) == {"AVRO", "JSON", "PROTOBUF"}
    assert client.get_contexts() == ["."]
    assert client.get_config().compatibility_level == "BACKWARD"
    assert client.update_mode("all-value", "READONLY") == "READONLY"
    assert (client.get_mode("all-value"), client.get_global_mode()) == ("READONLY", "READWRITE")
    assert client.delete_mode("all-value") == "READONLY"
    assert client.delete_version("all-value", 1) == 1
    assert "all-value" not in client.get_subjects()
    assert "all-value" in client.get_subjects(deleted=True)
    assert client.delete_subject("all-value", permanent=True) == [1]
