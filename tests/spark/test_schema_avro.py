"""Avro's types in Spark, evolution, and bytes that stay the same on their way through a row."""

import datetime
import decimal
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as t

from fencepost.spark_connector.schemas import SchemaError, avro_schema_of
from fencepost.spark_connector.schemas.encoding import Encoder, Writing
from fencepost.spark_connector.schemas.formats import codec_of
from fencepost.spark_connector.schemas.spark_types import spark_type
from tests.spark.schema_world import avro_frame, avro_text, read_one, record, written_again

MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
TIME_MILLIS = {"type": "int", "logicalType": "time-millis"}
DATE = {"type": "int", "logicalType": "date"}
UUID = {"type": "string", "logicalType": "uuid"}
COLOUR = {"type": "enum", "name": "shop.Colour", "symbols": ["RED", "GREEN"]}
LINE = record(("sku", "string"), name="shop.Line")
NOON = datetime.datetime(2026, 5, 4, 12, 0, 0, 123000, tzinfo=datetime.UTC)


def spark_name(schema: Any) -> str:
    found = codec_of(avro_text(schema), None).arrow_type
    return str(spark_type(found).simpleString())


@pytest.mark.parametrize(
    ("avro", "spark"),
    [
        ("boolean", "boolean"),
        ("int", "int"),
        ("long", "bigint"),
        ("float", "float"),
        ("double", "double"),
        ("bytes", "binary"),
        ("string", "string"),
        ("null", "void"),
        ({"type": "string", "avro.java.string": "String"}, "string"),
        ({"type": {"type": "string"}}, "string"),
        (UUID, "string"),
        (DATE, "date"),
        (MILLIS, "timestamp"),
        (MICROS, "timestamp"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, "timestamp_ntz"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, "timestamp_ntz"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "bigint"),
        (TIME_MILLIS, "int"),
        ({"type": "long", "logicalType": "time-micros"}, "bigint"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "decimal(9,2)"),
        ({"type": "bytes", "logicalType": "decimal"}, "binary"),
        ({"type": "fixed", "name": "Cents", "size": 8, "logicalType": "decimal", "precision": 9}, "decimal(9,0)"),
        ({"type": "fixed", "name": "Hash", "size": 16}, "binary"),
        (COLOUR, "string"),
        ({"type": "array", "items": ["null", "long"]}, "array<bigint>"),
        ({"type": "map", "values": LINE}, "map<string,struct<sku:string>>"),
        (["null", "string"], "string"),
        (["string", "null"], "string"),
        (["null"], "void"),
        (["int", "long"], "bigint"),
        (["null", "float", "double"], "double"),
        (["null", "int", "string"], "struct<member0:int,member1:string>"),
        ([LINE, "bytes"], "struct<member0:struct<sku:string>,member1:binary>"),
    ],
    ids=str,
)
def test_a_type_is_that_of_sparks_from_avro(avro: Any, spark: str) -> None:
    assert spark_name(record(("f", avro))) == f"struct<f:{spark}>"
    assert spark_name(avro) == spark


def test_named_types_are_found_in_their_namespace_and_in_references() -> None:
    inner = record(("a", COLOUR), ("b", "Colour"), ("c", "shop.Colour"), name="Order", namespace="shop")
    assert spark_name(inner) == "struct<a:string,b:string,c:string>"
    used = record(("line", "Line"), ("more", {"type": "array", "items": "shop.Line"}))
    schema = avro_text(used, references=[("shop.Line", LINE)])
    assert str(codec_of(schema, None).arrow_type.field("more").type) == "list<item: struct<sku: string not null>>"
    value = {"line": {"sku": "a"}, "more": [{"sku": "b"}]}
    frame = avro_frame(record(("line", LINE), ("more", {"type": "array", "items": "shop.Line"})), value)
    assert read_one(schema, schema, frame) == value


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (record(("next", ["null", "shop.Order"])), r"value\.next is shop\.Order inside shop\.Order"),
        (record(("e", record(name="shop.Empty"))), r"value\.e is shop\.Empty, a record without fields"),
        (record(("d", {"type": "bytes", "logicalType": "decimal", "precision": 39})), "38 digits"),
        (record(("x", "shop.Nowhere")), r"uses shop\.Nowhere, but does not define it"),
    ],
)
def test_what_is_no_spark_type_is_refused_with_the_reason(schema: Any, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        codec_of(avro_text(schema), None)


OLD = record(("id", "int"), ("gone", "string"), ("colour", COLOUR), ("at", MILLIS))


@pytest.mark.parametrize(
    ("reader", "expected"),
    [
        (record(("id", "int")), {"id": 7}),
        (record(("id", "long")), {"id": 7}),
        (record(("id", "double")), {"id": 7.0}),
        (record(("id", ["null", "long"], None)), {"id": 7}),
        (record(("id", "int"), ("new", "string", "none")), {"id": 7, "new": "none"}),
        (record(("new", ["null", LINE], None), ("id", "int")), {"new": None, "id": 7}),
        (record(("at", MICROS)), {"at": NOON}),
        (record(("at", "long")), {"at": 1777896000123}),
        (record(("gone", "bytes")), {"gone": b"x"}),
        (
            {"type": "record", "name": "shop.Order", "fields": [{"name": "n", "type": "int", "aliases": ["id"]}]},
            {"n": 7},
        ),
        (
            record(("colour", {**COLOUR, "symbols": ["RED", "OTHER"], "default": "OTHER"})),
            {"colour": "OTHER"},
        ),
        (record(("id", ["string", "long"])), {"id": {"member0": None, "member1": 7}}),
    ],
)
def test_a_record_of_another_version_is_what_the_readers_schema_says(reader: Any, expected: Any) -> None:
    frame = avro_frame(OLD, {"id": 7, "gone": "x", "colour": "GREEN", "at": NOON})
    assert read_one(avro_text(reader, 2), avro_text(OLD), frame) == expected


def test_a_number_that_gets_a_logical_type_is_read_as_that() -> None:
    old, new = (
        record(("at", "long"), ("d", "int")),
        record(("at", MILLIS), ("d", {"type": "int", "logicalType": "date"})),
    )
    found = read_one(avro_text(new), avro_text(old), avro_frame(old, {"at": 1777896000123, "d": 1}))
    assert found == {"at": NOON, "d": datetime.date(1970, 1, 2)}


@pytest.mark.parametrize(
    ("writer", "reader", "reason"),
    [
        (
            {"type": "int", "logicalType": "time-millis"},
            {"type": "long", "logicalType": "time-micros"},
            "numbers differ",
        ),
        ("int", MILLIS, "written as int, which is no timestamp-millis"),
    ],
)
def test_numbers_that_would_be_wrong_are_refused(writer: Any, reader: Any, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        codec_of(avro_text(record(("f", reader))), None).reader(avro_text(record(("f", writer))))


def test_instants_and_decimals_are_exact() -> None:
    money = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4}
    schema = record(("at", MICROS), ("local", {"type": "long", "logicalType": "local-timestamp-micros"}), ("m", money))
    value = {
        "at": NOON.replace(microsecond=999999, year=1901),
        "local": datetime.datetime(1, 1, 1, 0, 0, 0, 1),
        "m": decimal.Decimal("-1234567890123456.7891"),
    }
    frame = avro_frame(schema, value)
    assert read_one(avro_text(schema), avro_text(schema), frame) == value
    assert written_again(avro_text(schema), frame) == frame


def _types() -> st.SearchStrategy[Any]:
    plain = st.sampled_from(
        ["boolean", "int", "long", "float", "double", "bytes", "string", MILLIS, MICROS, DATE, UUID]
    )

    def above(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.one_of(
            inner.map(lambda one: {"type": "array", "items": one}),
            inner.map(lambda one: {"type": "map", "values": one}),
            inner.filter(lambda one: not isinstance(one, list)).map(lambda one: ["null", one]),
            st.lists(inner, min_size=1, max_size=3).map(lambda found: {"fields": found}),
            st.sampled_from([["int", "string"], ["null", "bytes", "long", "string"], ["boolean", "double"]]),
        )

    return st.recursive(plain, above, max_leaves=6)


def _named(node: Any, numbers: list[int]) -> Any:
    """Every record with a name of its own."""
    if isinstance(node, list):
        return [_named(one, numbers) for one in node]
    if not isinstance(node, dict):
        return node
    if "fields" in node:
        numbers.append(len(numbers))
        name = f"r{len(numbers)}"
        return record(*((f"f{i}", _named(one, numbers)) for i, one in enumerate(node["fields"])), name=name)
    return {key: _named(one, numbers) if key in ("items", "values") else one for key, one in node.items()}


def _values(node: Any, draw: Any) -> Any:
    """A value that fastavro writes; a branch of a union is named."""
    if isinstance(node, list):
        one = draw(st.sampled_from(node))
        value = _values(one, draw)
        return value if one == "null" or isinstance(one, dict) else (one, value)
    kind = node["type"] if isinstance(node, dict) else node
    if isinstance(node, dict) and "logicalType" in node:
        if node["logicalType"] == "uuid":
            return str(draw(st.uuids()))
        if node["logicalType"] == "date":
            return draw(st.dates())
        found = draw(st.datetimes(min_value=datetime.datetime(1700, 1, 1), timezones=st.just(datetime.UTC)))
        return found.replace(microsecond=found.microsecond // 1000 * 1000)
    if kind == "record":
        return {one["name"]: _values(one["type"], draw) for one in node["fields"]}
    if kind == "array":
        return [_values(node["items"], draw) for _ in range(draw(st.integers(0, 2)))]
    if kind == "map":
        return {key: _values(node["values"], draw) for key in draw(st.sets(st.text(max_size=3), max_size=2))}
    return draw(
        {
            "null": st.none(),
            "boolean": st.booleans(),
            "int": st.integers(-(2**31), 2**31 - 1),
            "long": st.integers(-(2**63), 2**63 - 1),
            "float": st.floats(width=32, allow_nan=False),
            "double": st.floats(allow_nan=False),
            "bytes": st.binary(max_size=5),
            "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
        }[kind]
    )


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_bytes_are_the_same_after_a_row(data: st.DataObject) -> None:
    types = data.draw(st.lists(_types(), min_size=1, max_size=3))
    schema = _named({"fields": types}, [])
    frame = avro_frame(schema, _values(schema, data.draw))
    assert written_again(avro_text(schema), frame) == frame
    read_one(avro_text(schema), avro_text(schema), frame)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (pa.array([{"id": 1}]), "value has no field item"),
        (pa.array([{"id": 1, "item": "a", "more": 1, "most": 2}]), "fields that its schema does not have: more, most"),
        (pa.array([{"id": "1", "item": "a"}]), r"value\.id is string, but its schema needs bigint\. Cast"),
        (pa.array([{"id": 1, "item": b"a"}]), r"value\.item is binary"),
        (pa.array([1]), "value is bigint, but its schema needs a struct"),
        (pa.array([{"id": None, "item": "a"}], pa.struct([("id", pa.int64()), ("item", pa.string())])), "on field id"),
    ],
)
def test_columns_that_do_not_fit_say_which(rows: pa.Array, reason: str) -> None:
    schema = avro_text(record(("id", "long"), ("item", "string"), ("note", ["null", "string"], None)))
    with pytest.raises(SchemaError, match=reason) as raised:
        Encoder(Writing("orders-value", schema, None)).encode(rows)
    assert "subject orders-value" in str(raised.value)


def test_columns_may_be_in_any_order_narrower_and_without_those_that_have_a_default() -> None:
    schema = record(("id", "long"), ("item", "string"), ("note", ["null", "string"], None), ("x", "double", 1.5))
    rows = pa.array([{"item": "a", "id": 7}, None], pa.struct([("item", pa.string()), ("id", pa.int8())]))
    found = Encoder(Writing("s", avro_text(schema), None)).encode(rows).to_pylist()
    assert found == [avro_frame(schema, {"id": 7, "item": "a"}), None]


def test_the_schema_of_columns_has_their_types() -> None:
    inner = t.StructType([t.StructField("x", t.DateType()), t.StructField("y", t.BinaryType())])
    columns = (
        t.StructType()
        .add("id", t.LongType(), nullable=False)
        .add("at", t.TimestampType())
        .add("m", t.MapType(t.StringType(), t.DecimalType(9, 2)))
        .add("l", t.ArrayType(inner))
    )
    found = codec_of(avro_text(json.loads(avro_schema_of(columns, "shop.Row"))), None).arrow_type
    assert spark_type(found).simpleString() == columns.simpleString()
    assert [one.nullable for one in found] == [False, True, True, True]


@pytest.mark.parametrize(
    ("name", "kind", "reason"),
    [
        ("m", t.MapType(t.IntegerType(), t.LongType()), "keys of int"),
        ("a b", t.LongType(), "'a b' is no name in Avro"),
        ("v", t.VariantType(), "Row_v is variant, which Avro does not have"),
    ],
)
def test_columns_without_a_schema_in_avro_are_refused(name: str, kind: t.DataType, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        avro_schema_of(t.StructType().add(name, kind))
