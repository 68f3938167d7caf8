"""Arrow types, which the formats speak, and the Spark types that they are in a DataFrame."""

from typing import Any

import pyarrow as pa

from fencepost.spark_connector.schemas.errors import SchemaError

OPTIONAL = {b"optional": b"1"}
"""The metadata of a field that a writer may leave out."""
TIMESTAMP = pa.timestamp("us", tz="UTC")
LOCAL_TIMESTAMP = pa.timestamp("us")
_DECIMAL_DIGITS_MAX = 38
_SPARK_NAMES = {
    "bool": "boolean",
    "date32[day]": "date",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "int8": "tinyint",
    "large_binary": "binary",
    "large_string": "string",
    "null": "void",
}
_WIDER = {
    "int64": ("int8", "int16", "int32"),
    "int32": ("int8", "int16"),
    "double": ("float", "int8", "int16", "int32"),
    "float": ("int8", "int16"),
}
"""By Arrow type: those whose values it can hold without loss."""


def decimal_type(precision: int, scale: int, path: str) -> pa.DataType:
    """A decimal. Raises SchemaError if Spark has none as large."""
    if not 0 < precision <= _DECIMAL_DIGITS_MAX or not 0 <= scale <= precision:
        raise SchemaError(f"{path} is decimal({precision}, {scale}), but Spark's decimals have 38 digits at most")
    return pa.decimal128(precision, scale)


def map_parts(kind: pa.DataType) -> tuple[pa.DataType, pa.DataType]:
    return kind.key_type, kind.item_type


def all_nullable(kind: pa.DataType) -> pa.DataType:
    """The same type without metadata, where each field may be null: a record that cannot be read is null as a whole."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, all_nullable(one.type)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(all_nullable(kind.value_type))
    if pa.types.is_map(kind):
        key, item = map_parts(kind)
        return pa.map_(all_nullable(key), all_nullable(item))
    return kind


def spark_type(kind: pa.DataType) -> Any:
    """The Spark type. Every field is nullable. Raises SchemaError for a type that no format makes."""
    from pyspark.sql import types

    if pa.types.is_struct(kind):
        return types.StructType([types.StructField(one.name, spark_type(one.type)) for one in kind])
    if pa.types.is_list(kind):
        return types.ArrayType(spark_type(kind.value_type))
    if pa.types.is_map(kind):
        key, item = map_parts(kind)
        return types.MapType(spark_type(key), spark_type(item))
    if pa.types.is_decimal(kind):
        return types.DecimalType(kind.precision, kind.scale)
    plain: list[tuple[pa.DataType, Any]] = [
        (pa.null(), types.NullType()),
        (pa.bool_(), types.BooleanType()),
        (pa.int32(), types.IntegerType()),
        (pa.int64(), types.LongType()),
        (pa.float32(), types.FloatType()),
        (pa.float64(), types.DoubleType()),
        (pa.string(), types.StringType()),
        (pa.binary(), types.BinaryType()),
        (pa.date32(), types.DateType()),
        (TIMESTAMP, types.TimestampType()),
        (LOCAL_TIMESTAMP, types.TimestampNTZType()),
        (pa.duration("us"), types.DayTimeIntervalType()),
    ]
    for arrow, spark in plain:
        if kind.equals(arrow):
            return spark
    raise SchemaError(f"Spark has no type for {kind}")


def _spark_name(kind: pa.DataType) -> str:
    """A type as Spark writes it, in short."""
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    for is_one, name in ((pa.types.is_struct, "struct"), (pa.types.is_list, "array"), (pa.types.is_map, "map")):
        if is_one(kind):
            return name
    return _SPARK_NAMES.get(str(kind), str(kind))


def check_fits(actual: pa.DataType, wanted: pa.DataType, path: str) -> None:
    """Raise SchemaError unless columns of the type `actual` can be written as `wanted`. Fields are found by name."""
    if pa.types.is_struct(wanted):
        if not pa.types.is_struct(actual):
            raise SchemaError(f"{path} is {_spark_name(actual)}, but its schema needs a struct")
        _check_fields(actual, wanted, path)
    elif pa.types.is_list(wanted):
        if not (pa.types.is_list(actual) or pa.types.is_large_list(actual)):
            raise SchemaError(f"{path} is {_spark_name(actual)}, but its schema needs an array")
        check_fits(actual.value_type, wanted.value_type, f"{path}[]")
    elif pa.types.is_map(wanted):
        if not pa.types.is_map(actual):
            raise SchemaError(f"{path} is {_spark_name(actual)}, but its schema needs a map")
        for given, needed in zip(map_parts(actual), map_parts(wanted), strict=True):
            check_fits(given, needed, f"{path}{{}}")
    elif not _holds(wanted, actual):
        needed = _spark_name(wanted)
        raise SchemaError(f"{path} is {_spark_name(actual)}, but its schema needs {needed}. Cast the column")


def _check_fields(actual: pa.DataType, wanted: pa.DataType, path: str) -> None:
    given = {one.name: one.type for one in actual}
    for one in wanted:
        if one.name in given:
            check_fits(given.pop(one.name), one.type, f"{path}.{one.name}")
        elif not (one.metadata or {}).get(b"optional"):
            raise SchemaError(f"{path} has no field {one.name}, but its schema requires it")
    if given:
        raise SchemaError(f"{path} has fields that its schema does not have: {', '.join(given)}. Drop them")


def _holds(wanted: pa.DataType, actual: pa.DataType) -> bool:
    if actual.equals(wanted) or pa.types.is_null(actual):
        return True
    if pa.types.is_timestamp(wanted) and pa.types.is_timestamp(actual):
        return (wanted.tz is None) == (actual.tz is None)
    if pa.types.is_decimal(wanted) and pa.types.is_decimal(actual):
        whole = wanted.precision - wanted.scale
        return bool(actual.scale <= wanted.scale and actual.precision - actual.scale <= whole)
    if wanted.equals(pa.string()):
        return bool(pa.types.is_large_string(actual))
    if wanted.equals(pa.binary()):
        return bool(pa.types.is_large_binary(actual))
    return str(actual) in _WIDER.get(str(wanted), ())


def column_of(given: Any) -> Any:
    """A column of Spark, from itself or its name."""
    from pyspark.sql import functions

    return functions.col(given) if isinstance(given, str) else given
