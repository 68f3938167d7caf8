"""Rows where Spark has no Arrow UDFs: what a Python UDF returns and gets."""

import datetime
import decimal

import pyarrow as pa
import pytest
from pyspark.sql import Row

from fencepost.spark_connector.schemas import SchemaError
from fencepost.spark_connector.schemas.row_values import python_of_arrow, python_of_rows
from fencepost.spark_connector.schemas.spark_types import LOCAL_TIMESTAMP, OPTIONAL, TIMESTAMP

KIND = pa.struct(
    [
        pa.field("at", TIMESTAMP),
        pa.field("local", LOCAL_TIMESTAMP),
        pa.field("m", pa.map_(pa.string(), pa.list_(pa.struct([pa.field("x", pa.binary())])))),
        pa.field("d", pa.decimal128(5, 2)),
        pa.field("note", pa.string(), True, OPTIONAL),
    ]
)
NOON = datetime.datetime(2026, 5, 4, 12)
LOCAL = {"local": NOON, "d": decimal.Decimal("1.25")}


def test_maps_are_dicts_and_instants_have_a_time_zone() -> None:
    value = {**LOCAL, "at": NOON.replace(tzinfo=datetime.UTC), "m": [("k", [{"x": b"1"}, None])], "note": None}
    assert python_of_arrow(pa.array([value, None], KIND)) == [value | {"m": {"k": [{"x": b"1"}, None]}}, None]


def test_a_row_is_what_arrow_gives() -> None:
    """Spark gives instants in the zone of the machine, without a zone."""
    row = Row(at=NOON, local=NOON, m={"k": [Row(x=bytearray(b"1")), None]}, d=decimal.Decimal("1.25"))
    assert python_of_rows(row, KIND) == {**LOCAL, "at": NOON.astimezone(datetime.UTC), "m": {"k": [{"x": b"1"}, None]}}
    assert python_of_rows(None, KIND) is None
    assert python_of_rows({"at": NOON, "m": {}, **LOCAL}, KIND) == {
        "at": NOON.astimezone(datetime.UTC),
        "m": {},
        **LOCAL,
    }


def test_fields_must_fit() -> None:
    with pytest.raises(SchemaError, match=r"missing fields: \['at', 'm', 'd'\], .* not have: \['more'\]"):
        python_of_rows(Row(local=NOON, more=1), KIND)
