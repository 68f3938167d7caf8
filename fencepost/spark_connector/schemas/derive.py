"""Avro's schema of a Spark type, for rows that have no schema yet."""

import json
import re
from typing import Any

from fencepost.spark_connector.schemas.errors import SchemaError

_PLAIN = {
    "boolean": "boolean",
    "tinyint": "int",
    "smallint": "int",
    "int": "int",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def avro_schema_of(struct: Any, name: str = "Row") -> str:
    """The schema of a StructType, as JSON: nullable fields are unions with null, whose default is null.

    `name` is the record's full name; nested records get its name, `_` and the field's. Raises SchemaError.
    """
    return json.dumps(_of(struct, name))


def _of(kind: Any, name: str) -> Any:
    from pyspark.sql import types

    if isinstance(kind, types.StructType):
        return {"type": "record", "name": name, "fields": [_field(one, name) for one in kind.fields]}
    if isinstance(kind, types.ArrayType):
        return {"type": "array", "items": _maybe(kind.elementType, kind.containsNull, name)}
    if isinstance(kind, types.MapType):
        if not isinstance(kind.keyType, types.StringType):
            raise SchemaError(f"{name} is a map with keys of {kind.keyType.simpleString()}, and Avro's are strings")
        return {"type": "map", "values": _maybe(kind.valueType, kind.valueContainsNull, name)}
    if isinstance(kind, types.DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    found = _PLAIN.get(kind.simpleString())
    if found is None:
        raise SchemaError(f"{name} is {kind.simpleString()}, which Avro does not have. Cast the column")
    return found


def _field(field: Any, name: str) -> Any:
    if not _NAME.fullmatch(field.name):
        raise SchemaError(f"{field.name!r} is no name in Avro: letters, digits and _ only. Rename the column")
    made = {"name": field.name, "type": _maybe(field.dataType, field.nullable, f"{name}_{field.name}")}
    return made | {"default": None} if field.nullable else made


def _maybe(kind: Any, null: bool, name: str) -> Any:
    return ["null", _of(kind, name)] if null else _of(kind, name)
