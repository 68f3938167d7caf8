"""JSON Schema's types in Spark, and JSON that stays the same on its way through a row."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.spark_connector.schemas import PoisonRecordError, SchemaError
from fencepost.spark_connector.schemas.encoding import Encoder, Writing
from fencepost.spark_connector.schemas.formats import codec_of
from fencepost.spark_connector.schemas.registry import SchemaText
from fencepost.spark_connector.schemas.spark_types import spark_type

TEXT = {"type": "string"}
LINE = {"type": "object", "properties": {"sku": TEXT}, "required": ["sku"]}


def json_text(schema: Any, **references: Any) -> SchemaText:
    return SchemaText("JSON", json.dumps(schema), 1, tuple((name, json.dumps(one)) for name, one in references.items()))


def read(schema: SchemaText, text: str) -> Any:
    codec = codec_of(schema, None)
    return codec.assemble([codec.reader(schema).one(b"\0\0\0\0\1" + text.encode(), 5)]).to_pylist()[0]


def of_one(schema: Any) -> SchemaText:
    return json_text({"type": "object", "properties": {"f": schema}})


@pytest.mark.parametrize(
    ("schema", "spark"),
    [
        (TEXT, "string"),
        ({"type": "integer"}, "bigint"),
        ({"type": "number"}, "double"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "null"}, "void"),
        ({"type": ["string", "null"]}, "string"),
        ({"type": ["integer", "number"]}, "double"),
        ({"type": ["integer", "string"]}, "string"),
        ({"oneOf": [{"type": "null"}, {"type": "integer"}]}, "bigint"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "bigint"),
        ({"oneOf": [{"type": "integer"}, TEXT]}, "string"),
        ({"enum": ["a", "b"]}, "string"),
        ({"enum": ["a", None]}, "string"),
        ({"const": "a"}, "string"),
        ({"type": "array", "items": LINE}, "array<struct<sku:string>>"),
        ({"type": "array"}, "string"),
        ({"type": "array", "items": [TEXT, TEXT]}, "string"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "map<string,bigint>"),
        ({"type": "object"}, "string"),
        (LINE, "struct<sku:string>"),
        ({"properties": {"x": TEXT}}, "struct<x:string>"),
        (
            {"allOf": [LINE, {"properties": {"n": {"type": "integer"}}}], "type": "object"},
            "struct<sku:string,n:bigint>",
        ),
        ({}, "string"),
        (True, "string"),
    ],
    ids=str,
)
def test_a_type(schema: Any, spark: str) -> None:
    assert spark_type(codec_of(of_one(schema), None).arrow_type).simpleString() == f"struct<f:{spark}>"


def test_references_lead_into_the_schema_and_out_of_it() -> None:
    address = {"$id": "https://shop/address.json", "type": "object", "properties": {"city": {"$ref": "#/$defs/name"}}}
    address["$defs"] = {"name": TEXT}
    schema = json_text(
        {
            "type": "object",
            "properties": {
                "a": {"$ref": "#/definitions/line"},
                "b": {"$ref": "address.json"},
                "c": {"oneOf": [{"type": "null"}, {"$ref": "https://shop/address.json#/$defs/name"}]},
            },
            "definitions": {"line": LINE},
        },
        **{"address.json": address},
    )
    assert spark_type(codec_of(schema, None).arrow_type).simpleString() == (
        "struct<a:struct<sku:string>,b:struct<city:string>,c:string>"
    )
    again = Encoder(Writing("s", schema, None))
    value = {"a": {"sku": "x"}, "b": {"city": "Rome"}, "c": None}
    assert json.loads(again.encode(pa.array([value])).to_pylist()[0][5:]) == {"a": {"sku": "x"}, "b": {"city": "Rome"}}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (
            {"type": "object", "properties": {"next": {"$ref": "#"}}},
            r"value\.next\.next refers to #, in which it stands",
        ),
        (
            {"type": "object", "properties": {"x": {"$ref": "other.json"}}},
            r"refers to other\.json, but has no reference",
        ),
        ({"$ref": "#/definitions/x"}, "refers to #/definitions/x, which is not there"),
    ],
)
def test_what_is_no_spark_type_is_refused_with_the_reason(schema: Any, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        codec_of(json_text(schema), None)


ORDER = json_text(
    {
        "type": "object",
        "required": ["id"],
        "properties": {
            "id": {"type": "integer"},
            "price": {"type": "number"},
            "note": {"type": ["string", "null"]},
            "lines": {"type": "array", "items": LINE},
            "any": {},
        },
    }
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"id": 1}', {"id": 1}),
        ('{"id": 1.0, "price": 3}', {"id": 1, "price": 3.0}),
        ('{"id": 1, "price": null, "new": {"x": 1}}', {"id": 1}),
        ('{"id": 1, "lines": [{"sku": "ä", "more": 1}]}', {"id": 1, "lines": [{"sku": "ä"}]}),
        ('{"id": 1, "any": {"x": [1, "ä"]}}', {"id": 1, "any": '{"x": [1, "ä"]}'}),
    ],
)
def test_records_are_read_by_names(text: str, expected: Any) -> None:
    assert read(ORDER, text) == dict.fromkeys(("id", "price", "note", "lines", "any")) | expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{}", "value has no id, which its schema requires"),
        ('{"id": "1"}', r"value\.id is string, but its schema says integer"),
        ('{"id": true}', r"value\.id is boolean"),
        ('{"id": 1.5}', r"value\.id is number"),
        ('{"id": null}', r"value\.id is null"),
        ('{"id": 9223372036854775808}', r"value\.id is an integer with more than 64 bits"),
        ('{"id": 1, "price": NaN}', "NaN is not JSON"),
        ('{"id": 1, "price": 1e999}', r"value\.price is a number that no double can hold"),
        ('{"id": 1, "lines": [{}]}', r"value\.lines\[\] has no sku"),
        ('{"id": 1, "lines": {}}', r"value\.lines is object, but its schema says array"),
        ("[]", "value is array, but its schema says object"),
    ],
)
def test_records_that_are_not_of_the_schema_say_where(text: str, reason: str) -> None:
    with pytest.raises(PoisonRecordError, match=reason):
        read(ORDER, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12345678901234567890.123456789", None),
        (
            '{"a": [1e400, 0.1000000000000000055511151231257827]}',
            '{"a": [1E+400, 0.1000000000000000055511151231257827]}',
        ),
        ("10000000000000000000000001", None),
        ("-1.5", None),
        ("1e2", "100.0"),
        ('"1e400"', None),
    ],
)
def test_a_text_keeps_all_digits(text: str, expected: str | None) -> None:
    schema = of_one({"type": ["number", "object", "string"]})
    expected = expected or text
    assert read(schema, f'{{"f": {text}}}') == {"f": expected}
    (written,) = Encoder(Writing("orders", schema, None)).encode(pa.array([{"f": text}])).to_pylist()
    assert written[5:].decode() == f'{{"f":{expected}}}'.replace(": [", ":[").replace(", 0", ",0")


@pytest.mark.parametrize(("text", "number"), [("9007199254740993.0", 2**53 + 1), ("-9223372036854775808.0", -(2**63))])
def test_an_integer_with_a_point_is_exact(text: str, number: int) -> None:
    assert read(of_one({"type": "integer"}), f'{{"f": {text}}}') == {"f": number}


@pytest.mark.parametrize("text", ["1.00000000000000000001", "1e400", "9223372036854775808.0", "1e-400"])
def test_what_is_nearly_an_integer_is_none(text: str) -> None:
    with pytest.raises(PoisonRecordError, match=r"value\.f is number, but its schema says integer"):
        read(of_one({"type": "integer"}), f'{{"f": {text}}}')


def test_a_pointer_of_a_reference_is_part_of_a_url() -> None:
    schema = {"type": "object", "properties": {"f": {"$ref": "#/definitions/a~1b%20c"}}}
    assert read(json_text(schema | {"definitions": {"a/b c": {"type": "integer"}}}), '{"f": 1}') == {"f": 1}


def test_what_is_written_is_valid_by_the_schema() -> None:
    schema = json_text({"type": "object", "properties": {"n": {"type": "integer", "maximum": 9}}, "required": ["n"]})
    encoder = Encoder(Writing("orders-value", schema, None))
    assert encoder.encode(pa.array([{"n": 9}, None])).to_pylist() == [b'\0\0\0\0\1{"n":9}', None]
    with pytest.raises(SchemaError, match=r"value\.n: 10 is greater than the maximum of 9"):
        encoder.encode(pa.array([{"n": 10}]))
    with pytest.raises(SchemaError, match=r"value\.n: None is not of type 'integer'"):
        encoder.encode(pa.array([{"n": None}], pa.struct([("n", pa.int64())])))


_PARTS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (TEXT, st.text(st.characters(exclude_categories=["Cs"]), max_size=5)),
    ({"type": "integer"}, st.integers(-(2**63), 2**63 - 1)),
    ({"type": "number"}, st.floats(allow_nan=False, allow_infinity=False)),
    ({"type": "boolean"}, st.booleans()),
    ({"type": ["null", "boolean"]}, st.none() | st.booleans()),
]


def _trees() -> st.SearchStrategy[tuple[Any, Any]]:
    """Pairs of a schema and a value of it."""

    def above(inner: st.SearchStrategy[tuple[Any, Any]]) -> st.SearchStrategy[tuple[Any, Any]]:
        return st.one_of(
            inner.map(lambda one: ({"type": "array", "items": one[0]}, [one[1], one[1]])),
            inner.map(lambda one: ({"type": "object", "additionalProperties": one[0]}, {"k": one[1], "ä": one[1]})),
            st.dictionaries(st.sampled_from("abc"), inner, min_size=1).map(
                lambda found: (
                    {"type": "object", "properties": {k: one[0] for k, one in found.items()}, "required": [*found]},
                    {k: one[1] for k, one in found.items()},
                )
            ),
        )

    return st.recursive(st.sampled_from(_PARTS).flatmap(lambda one: st.tuples(st.just(one[0]), one[1])), above)


@settings(max_examples=80, deadline=None)
@given(_trees())
def test_bytes_are_the_same_after_a_row(tree: tuple[Any, Any]) -> None:
    schema = of_one(tree[0])
    value = {} if tree[1] is None else {"f": tree[1]}
    frame = b"\0\0\0\0\1" + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    codec = codec_of(schema, None)
    row = codec.assemble([codec.reader(schema).one(frame, 5)])
    assert Encoder(Writing("s", schema, None)).encode(row).to_pylist() == [frame]
