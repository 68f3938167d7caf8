"""Values of rows where Spark has no Arrow UDFs: Spark 4.0."""

import datetime
from typing import Any

import pyarrow as pa

from fencepost.spark_connector.schemas.errors import SchemaError


def python_of_arrow(array: pa.Array) -> list[Any]:
    """The array's values as a Python UDF returns them: maps are dicts."""
    return [_returned(value, array.type) for value in array.to_pylist()]


def _returned(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {one.name: _returned(value[one.name], one.type) for one in kind}
    if pa.types.is_list(kind):
        return [_returned(one, kind.value_type) for one in value]
    if pa.types.is_map(kind):
        return {key: _returned(one, kind.item_type) for key, one in dict(value).items()}
    return value


def python_of_rows(value: Any, kind: pa.DataType) -> Any:
    """What a Python UDF gets, as Arrow gives it. Raises SchemaError if fields do not fit `kind`, the schema's type."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        given = value if isinstance(value, dict) else value.asDict()  # a dict comes from another UDF, without the JVM
        unknown = [name for name in given if kind.get_field_index(name) < 0]
        missing = [one.name for one in kind if one.name not in given and not (one.metadata or {}).get(b"optional")]
        if unknown or missing:
            raise SchemaError(f"missing fields: {missing}, fields that its schema does not have: {unknown}")
        return {name: python_of_rows(one, kind.field(name).type) for name, one in given.items()}
    if pa.types.is_list(kind):
        return [python_of_rows(one, kind.value_type) for one in value]
    if pa.types.is_map(kind):
        return {key: python_of_rows(one, kind.item_type) for key, one in value.items()}
    if pa.types.is_timestamp(kind) and kind.tz is not None and isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC)  # Spark gives the time of this machine's zone
    return bytes(value) if isinstance(value, bytearray) else value
