"""Protobuf's types in Spark, and messages that stay the same on their way through a row."""

import base64
import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.spark_connector.schemas import PoisonRecordError, SchemaError
from fencepost.spark_connector.schemas.encoding import Encoder, Writing
from fencepost.spark_connector.schemas.formats import codec_of
from fencepost.spark_connector.schemas.framing import read_indexes, written_indexes
from fencepost.spark_connector.schemas.registry import SchemaText
from fencepost.spark_connector.schemas.spark_types import spark_type

ONE, MANY = Field.LABEL_OPTIONAL, Field.LABEL_REPEATED
SCALARS = {
    "double": "double",
    "float": "float",
    "int32": "int",
    "sint32": "int",
    "sfixed32": "int",
    "int64": "bigint",
    "sint64": "bigint",
    "sfixed64": "bigint",
    "uint32": "bigint",
    "fixed32": "bigint",
    "uint64": "decimal(20,0)",
    "fixed64": "decimal(20,0)",
    "bool": "boolean",
    "string": "string",
    "bytes": "binary",
}
GOOGLES = {
    "google.protobuf.Timestamp": "timestamp",
    "google.protobuf.Duration": "interval day to second",
    "google.protobuf.Int64Value": "bigint",
    "google.protobuf.StringValue": "string",
    "google.protobuf.UInt64Value": "decimal(20,0)",
    "google.protobuf.BytesValue": "binary",
    "google.protobuf.Struct": "string",
    "google.protobuf.Any": "struct<type_url:string,value:binary>",
}


def message(name: str, *fields: dict[str, Any], **more: Any) -> descriptor_pb2.DescriptorProto:
    made = descriptor_pb2.DescriptorProto(name=name, **more)
    for number, one in enumerate(fields, 1):
        made.field.add(**{"number": number, "label": ONE, **one})
    return made


def scalar(name: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": Field.Type.Value(f"TYPE_{kind.upper()}"), **more}


def of(name: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": Field.TYPE_MESSAGE, "type_name": f".{kind}", **more}


def map_of(item: dict[str, Any]) -> list[descriptor_pb2.DescriptorProto]:
    entry = message("MEntry", scalar("key", "string"), {**item, "name": "value"})
    entry.options.map_entry = True
    return [entry]


def proto(
    *messages: descriptor_pb2.DescriptorProto, references: tuple[tuple[str, str], ...] = (), **more: Any
) -> SchemaText:
    imports = [f"google/protobuf/{name}.proto" for name in ("timestamp", "duration", "wrappers", "struct", "any")]
    more = {"syntax": "proto3", "package": "shop", "dependency": [*imports, *(name for name, _ in references)], **more}
    file = descriptor_pb2.FileDescriptorProto(name="f.proto", message_type=messages, **more)
    return SchemaText("PROTOBUF", base64.b64encode(file.SerializeToString()).decode(), 1, references)


def class_of(schema: SchemaText, name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for module in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(schema.text))
    kept = [one for one in file.dependency if "timestamp" in one or "wrappers" in one]
    del file.dependency[:]
    file.dependency.extend(kept)
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(name))


def frame_of(made: Any, indexes: bytes = b"\0") -> bytes:
    return b"\0\0\0\0\1" + indexes + bytes(made.SerializeToString(deterministic=True))


def read(reader: SchemaText, frame: bytes, writer: SchemaText | None = None, name: str | None = None) -> Any:
    codec = codec_of(reader, name)
    return codec.assemble([codec.reader(writer or reader).one(frame, 5), None]).to_pylist()[0]


def spark_name(schema: SchemaText) -> str:
    return str(spark_type(codec_of(schema, None).arrow_type).simpleString())


@pytest.mark.parametrize(("kind", "spark"), [*SCALARS.items(), *GOOGLES.items()])
def test_a_type(kind: str, spark: str) -> None:
    def field(name: str, **more: Any) -> dict[str, Any]:
        return of(name, kind, **more) if "." in kind else scalar(name, kind, **more)

    mapped = message("M", of("m", "shop.M.MEntry", label=MANY), nested_type=map_of(field("x")))
    assert spark_name(proto(message("M", field("x")))) == f"struct<x:{spark}>"
    assert spark_name(proto(message("M", field("x", label=MANY)))) == f"struct<x:array<{spark}>>"
    assert spark_name(proto(mapped)) == f"struct<m:map<string,{spark}>>"


def test_enums_are_names_and_numbers_without_a_name_digits() -> None:
    enum = descriptor_pb2.EnumDescriptorProto(name="E")
    enum.value.add(name="NONE", number=0)
    enum.value.add(name="RED", number=1)
    schema = proto(
        message("M", {"name": "e", "type": Field.TYPE_ENUM, "type_name": ".shop.E", "label": MANY}), enum_type=[enum]
    )
    frame = frame_of(class_of(schema, "shop.M")(e=[1, 0, 7]))
    assert read(schema, frame) == {"e": ["RED", "NONE", "7"]}
    encoder = Encoder(Writing("s", schema, None))
    assert encoder.encode(pa.array([{"e": ["RED", "NONE", "7"]}])).to_pylist() == [frame]
    with pytest.raises(SchemaError, match=r"value\.e\[\] is 'BLUE', which shop\.E does not have"):
        encoder.encode(pa.array([{"e": ["BLUE"]}]))


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([message("Node", of("next", "shop.Node"))], r"value\.next is shop\.Node inside shop\.Node"),
        ([message("M", of("e", "shop.E")), message("E")], r"value\.e is shop\.E, a message without fields"),
        ([message("M", of("x", "shop.Nowhere"))], r"cannot be used"),
    ],
)
def test_what_is_no_spark_type_is_refused_with_the_reason(messages: Any, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        codec_of(proto(*messages), None)


def test_fields_that_can_be_absent_are_null_and_others_have_their_default() -> None:
    order = message("M", scalar("a", "int32"), scalar("b", "string", proto3_optional=True, oneof_index=1))
    order.field.add(**{**scalar("c", "int64"), "number": 3, "label": ONE, "oneof_index": 0})
    order.field.add(**{**of("d", "shop.M2"), "number": 4, "label": ONE, "oneof_index": 0})
    order.oneof_decl.add(name="choice")
    order.oneof_decl.add(name="_b")
    schema = proto(order, message("M2", scalar("x", "int32"), scalar("l", "int32", label=MANY)))
    made = class_of(schema, "shop.M")
    assert read(schema, frame_of(made())) == {"a": 0, "b": None, "c": None, "d": None}
    whole = made(a=1, b="")
    whole.d.SetInParent()
    assert read(schema, frame_of(whole)) == {"a": 1, "b": "", "c": None, "d": {"x": 0, "l": []}}


def test_instants_and_unsigned_numbers_are_exact() -> None:
    schema = proto(message("M", of("at", "google.protobuf.Timestamp"), scalar("u", "uint64")))
    made = class_of(schema, "shop.M")(u=2**64 - 1)
    made.at.FromDatetime(datetime.datetime(1901, 2, 3, 4, 5, 6, 789, tzinfo=datetime.UTC))
    row = read(schema, frame_of(made))
    assert row == {
        "at": datetime.datetime(1901, 2, 3, 4, 5, 6, 789, tzinfo=datetime.UTC),
        "u": decimal.Decimal(2**64 - 1),
    }


def test_messages_of_other_files_are_found_by_references() -> None:
    line = descriptor_pb2.FileDescriptorProto(
        name="any.proto", package="shop", syntax="proto3", message_type=[message("Line", scalar("sku", "string"))]
    )
    reference = ("line.proto", base64.b64encode(line.SerializeToString()).decode())
    schema = proto(message("M", of("line", "shop.Line")), references=(reference,))
    assert read(schema, b"\0\0\0\0\1\0\x0a\x03\x0a\x01a") == {"line": {"sku": "a"}}
    with pytest.raises(SchemaError, match=r"has no message shop\.Line"):
        codec_of(schema, "shop.Line")


def test_another_version_is_read_by_the_numbers_of_fields() -> None:
    old = proto(message("M", scalar("id", "int32"), scalar("item", "string"), scalar("gone", "string")))
    new = proto(message("M", scalar("number", "int64"), scalar("item", "bytes"), scalar("added", "bool", number=9)))
    frame = frame_of(class_of(old, "shop.M")(id=7, item="tea", gone="x"))
    assert read(new, frame, old) == {"number": 7, "item": b"tea", "added": False}


def versions(old: dict[str, Any], new: dict[str, Any], value: Any, *more: Any, **file: Any) -> Any:
    """The field `f` of a record that was written with an old type, read with a new one."""
    writer, reader = (proto(message("Order", {**one, "name": "f", "number": 1}), *more, **file) for one in (old, new))
    made = class_of(writer, "shop.Order")(f=value)
    return read(reader, frame_of(made), writer)["f"]


@pytest.mark.parametrize(
    ("old", "new", "value", "expected"),
    [
        ("int32", "int64", -5, -5),
        ("uint32", "int64", 2**32 - 1, 2**32 - 1),
        ("bool", "int32", True, 1),
        ("int64", "int32", 5, 5),
        ("uint64", "int64", 2**63 - 1, 2**63 - 1),
        ("sint32", "sint64", -5, -5),
        ("fixed32", "sfixed32", 5, 5),
        ("string", "bytes", "a", b"a"),
        ("bytes", "string", b"a", "a"),
    ],
)
def test_a_value_that_another_versions_type_holds_is_read(old: str, new: str, value: Any, expected: Any) -> None:
    assert versions(scalar("", old), scalar("", new), value) == expected
    assert versions(scalar("", old, label=MANY), scalar("", new, label=MANY), [value]) == [expected]


@pytest.mark.parametrize(
    ("old", "new", "value", "reason"),
    [
        ("int64", "int32", 2**40 + 7, r"shop\.Order\.f is 1099511627783, which no int32 can hold"),
        ("int32", "uint32", -5, "is -5, which no uint32 can hold"),
        ("int64", "uint64", -5, "is -5, which no uint64 can hold"),
        ("uint64", "int64", 2**63, "which no int64 can hold"),
        ("int32", "bool", 5, "is 5, which no bool can hold"),
        ("sint64", "sint32", 2**40, "which no sint32 can hold"),
        ("sfixed32", "fixed32", -1, "is -1, which no fixed32 can hold"),
        ("int32", "sint32", 5, r"written as (repeated )?int32, and (repeated )?sint32 is wanted"),
        ("fixed64", "double", 5, r"written as (repeated )?fixed64, and (repeated )?double is wanted"),
        ("float", "double", 1.5, r"written as (repeated )?float, and (repeated )?double is wanted"),
        ("int32", "string", 5, r"written as (repeated )?int32, and (repeated )?string is wanted"),
        ("bytes", "string", b"\xff", "bad UTF-8"),
    ],
)
def test_a_value_that_another_versions_type_would_change_is_poison(old: str, new: str, value: Any, reason: str) -> None:
    """Protobuf's own parsers give another number, or the default, and say nothing."""
    with pytest.raises((PoisonRecordError, SchemaError), match=reason):
        versions(scalar("", old), scalar("", new), value)
    with pytest.raises((PoisonRecordError, SchemaError), match=reason):
        versions(scalar("", old, label=MANY), scalar("", new, label=MANY), [value])


def test_types_of_other_versions_are_found_at_any_depth() -> None:
    old, new = (message("Old", scalar("x", "int64")), message("New", scalar("x", "int32")))
    both = (old, new)
    assert versions(of("", "shop.Old"), of("", "shop.New"), {"x": 5}, *both) == {"x": 5}
    many = {"label": MANY}
    for value, reader in (({"x": 2**40}, {}), ([{"x": 5}, {"x": 2**40}], many)):
        with pytest.raises(PoisonRecordError, match=r"shop\.New\.x is 1099511627776, which no int32"):
            versions(of("", "shop.Old", **reader), of("", "shop.New", **reader), value, *both)
    with pytest.raises(SchemaError, match="f was written as repeated int32, and int32 is wanted"):
        versions(scalar("", "int32", label=MANY), scalar("", "int32"), [1, 2])
    with pytest.raises(SchemaError, match=r"f was written as shop\.Old, and int32 is wanted"):
        versions(of("", "shop.Old"), scalar("", "int32"), {"x": 1}, *both)
    assert versions(scalar("", "int32"), scalar("", "int32", label=MANY), 5) == [5]
    assert versions(scalar("", "int64"), scalar("", "int32", label=MANY), 0) == []


@pytest.mark.parametrize(("value", "kept"), [(5, True), (2**40, False)])
def test_items_of_maps_are_not_changed_in_silence(value: int, kept: bool) -> None:
    def order(kind: str) -> SchemaText:
        entries = map_of(scalar("value", kind))
        return proto(message("Order", of("m", "shop.Order.MEntry", label=MANY), nested_type=entries))

    frame = frame_of(class_of(order("int64"), "shop.Order")(m={"a": 1, "b": value}))
    if kept:
        assert read(order("int32"), frame, order("int64")) == {"m": [("a", 1), ("b", value)]}
    else:
        with pytest.raises(PoisonRecordError, match="value is 1099511627776, which no int32 can hold"):
            read(order("int32"), frame, order("int64"))


def test_a_record_without_a_required_field_is_poison() -> None:
    fields = (scalar("a", "int32", label=Field.LABEL_REQUIRED), scalar("b", "int32"))
    writer = proto(message("Order", {**fields[1], "number": 2}), syntax="proto2")
    frame = frame_of(class_of(writer, "shop.Order")(b=1))
    with pytest.raises(PoisonRecordError, match="it has no a, which its schema requires"):
        read(proto(message("Order", *fields), syntax="proto2"), frame, writer)


def test_only_one_field_of_a_oneof_can_be_written() -> None:
    """The last one won, and the others were lost."""
    made = message("Order", scalar("a", "int64", oneof_index=0), scalar("b", "string", oneof_index=0))
    made.oneof_decl.add(name="either")
    encoder = Encoder(Writing("orders", proto(made), None))
    assert len(encoder.encode(pa.array([{"a": 1, "b": None}, {"a": None, "b": ""}, {"a": None, "b": None}]))) == 3
    with pytest.raises(SchemaError, match="value has a and b, but its schema takes one of them"):
        encoder.encode(pa.array([{"a": 1, "b": "x"}]))


def test_what_is_no_json_is_not_written_into_a_struct() -> None:
    encoder = Encoder(Writing("orders", proto(message("Order", of("s", "google.protobuf.Struct"))), None))
    with pytest.raises(SchemaError, match="NaN is not JSON"):
        encoder.encode(pa.array([{"s": '{"a": NaN}'}]))


def test_a_nested_message_is_named_and_its_indexes_are_those_of_its_file() -> None:
    inner = message("Inner", scalar("x", "int32"))
    schema = proto(message("A", scalar("a", "int32")), message("B", nested_type=[message("Other"), inner]))
    frame = frame_of(class_of(schema, "shop.B.Inner")(x=3), b"\x04\x02\x02")
    assert read(schema, frame, name="shop.B.Inner") == {"x": 3}
    encoder = Encoder(Writing("s", schema, "shop.B.Inner"))
    assert encoder.encode(pa.array([{"x": 3}], pa.struct([("x", pa.int32())]))).to_pylist() == [frame]
    with pytest.raises(PoisonRecordError, match=r"it is a shop\.B\.Inner, and shop\.A is wanted"):
        read(schema, frame)
    with pytest.raises(SchemaError, match=r"has no message shop\.C"):
        codec_of(schema, "shop.C")


@given(st.lists(st.integers(0, 2**30), min_size=1, max_size=5))
def test_indexes_are_read_as_they_were_written(numbers: list[int]) -> None:
    written = written_indexes(tuple(numbers))
    assert read_indexes(b"12345" + written + b"rest", 5) == (tuple(numbers), 5 + len(written))


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "double": st.floats(allow_nan=False),
    "float": st.floats(width=32, allow_nan=False),
    "bool": st.booleans(),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    "bytes": st.binary(max_size=4),
    **{kind: st.integers(-(2**31), 2**31 - 1) for kind in ("int32", "sint32", "sfixed32")},
    **{kind: st.integers(-(2**63), 2**63 - 1) for kind in ("int64", "sint64", "sfixed64")},
    **{kind: st.integers(0, 2**32 - 1) for kind in ("uint32", "fixed32")},
    **{kind: st.integers(0, 2**64 - 1) for kind in ("uint64", "fixed64")},
}
ALL = message("All")
for _number, _kind in enumerate(VALUES):
    ALL.field.add(**{**scalar(f"one_{_kind}", _kind), "number": _number + 1, "label": ONE})
    ALL.field.add(**{**scalar(f"many_{_kind}", _kind), "number": _number + 51, "label": MANY})
ALL.field.add(**{**of("part", "shop.All.Part"), "number": 101, "label": ONE})
ALL.field.add(**{**of("parts", "shop.All.Part"), "number": 102, "label": MANY})
ALL.field.add(**{**of("m", "shop.All.MEntry"), "number": 103, "label": MANY})
ALL.field.add(**{**of("w", "google.protobuf.StringValue"), "number": 104, "label": ONE})
ALL.nested_type.extend([message("Part", scalar("x", "int32"), scalar("y", "string", label=MANY))])
ALL.nested_type.extend(map_of(of("value", "shop.All.Part")))
ALL_SCHEMA = proto(ALL)
PART = st.fixed_dictionaries({}, optional={"x": VALUES["int32"], "y": st.lists(VALUES["string"], max_size=2)})


@settings(max_examples=80, deadline=None)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            **{f"one_{kind}": values for kind, values in VALUES.items()},
            **{f"many_{kind}": st.lists(values, max_size=2) for kind, values in VALUES.items()},
            "part": PART,
            "parts": st.lists(PART, max_size=2),
            "m": st.dictionaries(VALUES["string"], PART, max_size=2),
            "w": VALUES["string"].map(lambda text: {"value": text}),
        },
    )
)
def test_bytes_are_the_same_after_a_row(value: dict[str, Any]) -> None:
    frame = frame_of(class_of(ALL_SCHEMA, "shop.All")(**value))
    codec = codec_of(ALL_SCHEMA, None)
    row = codec.assemble([codec.reader(ALL_SCHEMA).one(frame, 5)])
    assert Encoder(Writing("s", ALL_SCHEMA, None)).encode(row).to_pylist() == [frame]
