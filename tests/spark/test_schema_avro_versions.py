"""Avro of one version read as another: defaults, units of time, and which of a union's types a value is."""

import datetime
import decimal
import math
from typing import Any

import pyarrow as pa
import pytest

from fencepost.spark_connector.schemas import SchemaError
from fencepost.spark_connector.schemas.encoding import Encoder, Writing
from fencepost.spark_connector.schemas.formats import codec_of
from tests.spark.schema_world import SUBJECT, avro_frame, avro_text, read_one, record, written_again

ID = ("id", "long")
DAY = {"type": "int", "logicalType": "date"}
CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
COLOUR = {"type": "enum", "name": "shop.Colour", "symbols": ["RED", "GREEN"]}
HASH = {"type": "fixed", "name": "shop.Hash", "size": 2}
LINE = record(("sku", "string"), ("count", "int", 1), name="shop.Line")
AT = datetime.datetime(1970, 1, 1, 0, 0, 3, tzinfo=datetime.UTC)


def instant(unit: str, kind: str = "timestamp") -> dict[str, str]:
    return {"type": "long", "logicalType": f"{kind}-{unit}"}


def evolved(old: Any, new: Any, *values: Any) -> list[Any]:
    """The field `a` of records that were written with its old type, read with its new one."""
    reader, writer = record(("a", new)), record(("a", old))
    found = [read_one(avro_text(reader), avro_text(writer), avro_frame(writer, {"a": one})) for one in values]
    return [one["a"] for one in found]


@pytest.mark.parametrize(
    ("kind", "given", "value"),
    [
        (["bytes", "null"], "\u00ff\u0001", b"\xff\x01"),
        (HASH, "\u0000\u00ff", b"\0\xff"),
        (CENTS, "\u0001\u0000", decimal.Decimal("2.56")),
        (["null", CENTS], "\u00ff", decimal.Decimal("-0.01")),
        ({**HASH, "logicalType": "decimal", "precision": 3}, "\u0000\u0010", decimal.Decimal(16)),
        (instant("millis"), 3000, AT),
        (instant("micros"), 3_000_000, AT),
        (instant("millis", "local-timestamp"), 3000, AT.replace(tzinfo=None)),
        (DAY, 1, datetime.date(1970, 1, 2)),
        ({"type": "int", "logicalType": "time-millis"}, 5, 5),
        ("double", 1, 1.0),
        ("float", "-Infinity", -math.inf),
        (["null", "int"], 5, 5),
        (LINE, {"sku": "a"}, {"sku": "a", "count": 1}),
        ({"type": "array", "items": LINE}, [{"sku": "a"}], [{"sku": "a", "count": 1}]),
        ({"type": "map", "values": instant("millis")}, {"a": 3000}, [("a", AT)]),
        (["int", "string", "null"], "x", {"member0": None, "member1": "x"}),
        ([LINE, "string"], {"sku": "a"}, {"member0": {"sku": "a", "count": 1}, "member1": None}),
        (COLOUR, "GREEN", "GREEN"),
        ("boolean", True, True),
        ("null", None, None),
    ],
)
def test_a_default_is_what_its_type_says(kind: Any, given: Any, value: Any) -> None:
    """In JSON a default has a character for each byte, a number for a time, and nothing for fields with defaults.

    fastavro/fastavro 869, flavray/avro-rs 96, confluentinc/schema-registry 833.
    """
    writer, reader = record(ID), record(ID, ("more", kind, given))
    frame = avro_frame(writer, {"id": 1})
    assert read_one(avro_text(reader), avro_text(writer), frame) == {"id": 1, "more": value}
    (written,) = Encoder(Writing(SUBJECT, avro_text(reader), None)).encode(pa.array([{"id": 1}])).to_pylist()
    assert read_one(avro_text(reader), avro_text(reader), written) == {"id": 1, "more": value}


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("int", None),
        ("int", 2**31),
        ("long", 1.5),
        ("int", True),
        (COLOUR, "BLUE"),
        (HASH, "abc"),
        ("bytes", "\u0100"),
        (LINE, {}),
        (DAY, 2**31 - 1),
        (["int", "null"], "x"),
        ({"type": "array", "items": "int"}, [None]),
    ],
)
def test_a_default_that_is_no_value_of_its_field_is_none(kind: Any, given: Any) -> None:
    """Old registries took any: AbsaOSS/ABRiS 34. Records that have the field can be read all the same."""
    writer, reader = record(ID), record(ID, ("more", kind, given))
    codec_of(avro_text(reader), None).reader(avro_text(reader))
    with pytest.raises(Exception, match="No default value for field more"):
        read_one(avro_text(reader), avro_text(writer), avro_frame(writer, {"id": 1}))
    with pytest.raises(SchemaError, match="no field more, but its schema requires it"):
        Encoder(Writing(SUBJECT, avro_text(reader), None)).encode(pa.array([{"id": 1}]))


@pytest.mark.parametrize(
    ("union", "value", "number", "plain"),
    [
        (["null", COLOUR, "string"], ("string", "RED"), 1, "RED"),
        (["null", COLOUR, "string"], ("shop.Colour", "RED"), 0, "RED"),
        (["string", HASH, "bytes"], ("bytes", b"ab"), 2, b"ab"),
        ([HASH, {**HASH, "name": "shop.Other"}], ("shop.Other", b"ab"), 1, b"ab"),
        ([LINE, {"type": "map", "values": "string"}], ("map", {"sku": "a"}), 1, [("sku", "a")]),
        (["int", "long", "string"], ("long", 1), 1, 1),
        (["float", "double", "int"], ("float", 1.0), 0, 1.0),
        ([instant("millis"), DAY, "string"], AT, 0, AT),
        ([DAY, instant("micros"), "string"], AT.date(), 0, AT.date()),
    ],
)
def test_a_union_has_the_type_that_was_written(union: Any, value: Any, number: int, plain: Any) -> None:
    """Not the first of its types that the value could be: a text that is a symbol of an enum stays a text.

    fastavro/fastavro 48 and 788.
    """
    schema = record(("a", union))
    frame = avro_frame(schema, {"a": value})
    found = read_one(avro_text(schema), avro_text(schema), frame)["a"]
    assert {name: one for name, one in found.items() if one is not None} == {f"member{number}": plain}
    assert written_again(avro_text(schema), frame) == frame


def test_a_type_finds_its_place_in_another_versions_union() -> None:
    either = ["null", "string", "long", COLOUR]
    assert evolved(["int", "null", "string", "long"], either, ("int", 5), None, "x", ("long", 7)) == [
        {"member0": None, "member1": 5, "member2": None},
        None,
        {"member0": "x", "member1": None, "member2": None},
        {"member0": None, "member1": 7, "member2": None},
    ]
    assert evolved(COLOUR, either, "RED")[0]["member2"] == "RED"
    assert evolved("string", either, "RED")[0]["member0"] == "RED"
    with pytest.raises(Exception, match="mismatch"):
        evolved(["double", "string"], either, 1.5)


def test_a_type_may_be_defined_at_another_place_of_another_version() -> None:
    union, named = ["null", LINE, "string"], ["null", "shop.Line", "string"]
    writer = record(("gone", LINE), ("b", named), ("a", named))
    reader = record(("a", union), ("b", named))
    row = {"gone": {"sku": "g"}, "b": ("shop.Line", {"sku": "b"}), "a": ("shop.Line", {"sku": "a"})}
    found = read_one(avro_text(reader), avro_text(writer), avro_frame(writer, row))
    assert (found["a"]["member0"]["sku"], found["b"]["member0"]["sku"]) == ("a", "b")


@pytest.mark.parametrize("outer", ["Order", "shop.Order"])
def test_names_need_no_namespace(outer: str) -> None:
    """Not even inside of a type that has one, where an empty namespace says so."""

    def order(name: str, **space: str) -> Any:
        bare = record(("x", "int"), name="Bare", **space)
        return record(("a", ["null", bare, "string"]), ("b", {"type": "array", "items": "Bare"}), name=name)

    schema = avro_text(order(outer, namespace=""))
    frame = avro_frame(order("Order"), {"a": ("Bare", {"x": 1}), "b": [{"x": 2}]})
    assert read_one(schema, schema, frame) == {"a": {"member0": {"x": 1}, "member1": None}, "b": [{"x": 2}]}
    assert written_again(schema, frame) == frame


def test_a_number_keeps_its_unit_where_its_type_is_named_only() -> None:
    """The type's definition stands in a field that the reader leaves out."""
    old, new = (record(("at", kind), name="shop.Seen") for kind in ("long", instant("millis")))
    writer, reader = record(("gone", old), ("a", "shop.Seen")), record(("a", new))
    frame = avro_frame(writer, {"gone": {"at": 1}, "a": {"at": 3000}})
    assert read_one(avro_text(reader), avro_text(writer), frame) == {"a": {"at": AT}}


@pytest.mark.parametrize(
    ("old", "new", "number", "value"),
    [
        (instant("millis"), ["null", instant("micros")], 3000, AT),
        (["null", instant("millis"), "string"], ["string", instant("micros")], 3000, {"member0": None, "member1": AT}),
        (instant("millis", "local-timestamp"), instant("micros"), 3000, AT),
        (instant("micros"), instant("millis", "local-timestamp"), 3_000_000, AT.replace(tzinfo=None)),
        ("long", ["null", instant("millis")], 3000, AT),
        (["null", "long"], ["null", instant("millis")], 3000, AT),
        (instant("millis"), "long", 3000, 3000),
        (instant("nanos"), "long", 3000, 3000),
    ],
)
def test_an_instant_stays_the_same_in_another_unit(old: Any, new: Any, number: int, value: Any) -> None:
    assert evolved(old, new, number) == [value]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (instant("nanos"), instant("micros"), "written as timestamp-nanos, and timestamp-micros is wanted"),
        (instant("micros"), instant("nanos"), "written as timestamp-micros, and timestamp-nanos is wanted"),
        (["null", instant("nanos")], ["null", instant("millis")], "written as timestamp-nanos"),
        ({"type": "long", "logicalType": "time-micros"}, instant("micros"), "written as time-micros"),
        (DAY, {"type": "int", "logicalType": "time-millis"}, "written as date, and time-millis is wanted"),
        (["null", "int"], ["null", instant("millis")], "written as int, which is no timestamp-millis"),
        ("int", ["null", instant("micros"), "string"], "written as int, which is no timestamp-micros"),
    ],
)
def test_numbers_of_another_meaning_are_refused(old: Any, new: Any, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        evolved(old, new, 3)


@pytest.mark.parametrize(
    "impossible",
    [
        {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 5},
        {"type": "bytes", "logicalType": "decimal", "precision": 0},
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": "2"},
        {**HASH, "logicalType": "decimal", "precision": 5},
    ],
)
def test_an_impossible_decimal_is_its_bytes(impossible: Any) -> None:
    """Avro: a logical type that is not valid is ignored. MaterializeInc/materialize 3612."""
    plain = {key: impossible[key] for key in ("type", "name", "size") if key in impossible}
    frame = avro_frame(record(("a", plain)), {"a": b"ab"})
    assert read_one(avro_text(record(("a", impossible))), avro_text(record(("a", impossible))), frame) == {"a": b"ab"}
