"""`from_registry` and `to_registry`: records with a schema from a registry, in DataFrames."""

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from fencepost.spark_connector.schemas.decoding import ERROR_TYPE, KEEP, ON_ERROR, Reading, decode
from fencepost.spark_connector.schemas.derive import avro_schema_of
from fencepost.spark_connector.schemas.encoding import Writing, encoder_of
from fencepost.spark_connector.schemas.errors import SchemaError
from fencepost.spark_connector.schemas.formats import codec_of
from fencepost.spark_connector.schemas.registry import AVRO, FORMATS, Registry, UnknownSchemaError
from fencepost.spark_connector.schemas.row_values import python_of_arrow, python_of_rows
from fencepost.spark_connector.schemas.spark_types import all_nullable, column_of, spark_type

_FIELDS = ("key", "value")


def from_registry(
    column: Any,
    *,
    registry: str | Mapping[str, Any],
    subject: str | None = None,
    version: int | None = None,
    schema_id: int | None = None,
    message: str | None = None,
    on_error: str = "fail",
    headers: Any = None,
    field: str = "value",
) -> Any:
    """A column of records with Confluent's framing, as a column of what they say: Avro, JSON Schema or Protobuf.

    - column: a binary column, or its name
    - registry: the URL, or a dict of settings of confluent-kafka's SchemaRegistryClient. Neither Spark's plans nor
      errors show the settings; they go to the workers with the query
    - subject, version: the schema to read with, by default the newest; or its number, as `schema_id`. It is fetched
      once, here. Records of other versions are resolved to it
    - message: with Protobuf the full name of the message; by default the first of the file
    - on_error: what a record becomes that cannot be read. "fail" ends the query with PoisonRecordError, "null" makes
      the column null, "keep" makes it struct<value, error: struct<reason: string, schema_id: bigint>>
    - headers: the column of headers, for writers that put the schema id there; `field`, "key" or "value", says whose

    Null records are null. A registry that does not answer ends the query, whatever `on_error` is.

    Raises ValueError for wrong arguments, SchemaError for a schema that cannot be a Spark type, and RegistryError.
    """
    if on_error not in ON_ERROR:
        raise ValueError(f"on_error is {on_error!r}, but must be one of {', '.join(ON_ERROR)}")
    if field not in _FIELDS:
        raise ValueError(f"field is {field!r}, but must be key or value")
    if (subject is None) == (schema_id is None):
        raise ValueError("give either subject, with or without version, or schema_id")
    if version is not None and subject is None:
        raise ValueError("version needs subject")
    source = Registry.of(registry)
    schema = _by_id(source, schema_id) if schema_id is not None else source.latest(str(subject), version)
    arrow = all_nullable(codec_of(schema, message).arrow_type)
    if on_error == KEEP:
        arrow = pa.struct([pa.field("value", arrow), pa.field("error", ERROR_TYPE)])
    reading = Reading(source, schema, message, on_error)
    frames = column_of(column)
    if headers is not None:
        frames = _with_id_of_headers(frames, column_of(headers), field)
    return _reading_udf(reading, arrow)(frames)


def to_registry(
    column: Any,
    *,
    registry: str | Mapping[str, Any],
    subject: str,
    version: int | None = None,
    schema: Any = None,
    schema_type: str = AVRO,
    register: bool = False,
    message: str | None = None,
) -> Any:
    """A column of rows as a binary column of records with Confluent's framing. It is the reverse of `from_registry`.

    - column: a column, or its name; for most schemas a struct. Its fields are found by name
    - registry: as for `from_registry`
    - subject, version: the schema to write with; by default the newest
    - schema: instead, a schema of the subject: its text in the format `schema_type` (AVRO, JSON, PROTOBUF), or a
      StructType, of which an Avro schema is made
    - register: whether to register `schema`. Without it the subject must have it
    - message: with Protobuf the full name of the message; by default the first of the file

    Null rows are null records. The query ends with SchemaError if a column does not fit the schema: a field is missing
    that has no default, is not in the schema, or has another type.

    Raises ValueError for wrong arguments, SchemaError and RegistryError.
    """
    if schema_type not in FORMATS:
        raise ValueError(f"schema_type is {schema_type!r}, but must be one of {', '.join(FORMATS)}")
    if register and schema is None:
        raise ValueError("register=True needs schema: the text, or the StructType of the column")
    if schema is not None and version is not None:
        raise ValueError("give either schema or version")
    source = Registry.of(registry)
    if schema is None:
        found = source.latest(subject, version)
    else:
        if not isinstance(schema, str) and schema_type != AVRO:
            raise ValueError("of a StructType an AVRO schema is made: give the text of any other")
        text = schema if isinstance(schema, str) else avro_schema_of(schema)
        found = _by_id(source, source.id_of(subject, schema_type, text, register=register))
    codec_of(found, message)  # raises here what every task would raise
    return _writing_udf(Writing(subject, found, message))(column_of(column))


def _by_id(source: Registry, schema_id: int) -> Any:
    try:
        return source.by_id(schema_id)
    except UnknownSchemaError as error:
        raise SchemaError(str(error)) from None


def _with_id_of_headers(frames: Any, headers: Any, field: str) -> Any:
    """The schema id of a header, in front of the data as other writers have it; the last such header counts."""
    from pyspark.sql import functions as F

    named = F.filter(headers, lambda one: one["key"] == f"__{field}_schema_id")
    found = F.get(named, F.size(named) - 1)["value"]
    return F.when(found.isNull(), frames).otherwise(F.concat(found, frames))


def _reading_udf(reading: Reading, arrow: pa.DataType) -> Callable[[Any], Any]:
    from pyspark.sql import functions

    made: Callable[[Any], Any]

    def from_registry(frames: pa.Array) -> pa.Array:
        return decode(reading, frames)

    def from_registry_row(frame: Any) -> Any:
        """Spark 4.0 has no Arrow UDFs, and its pandas UDFs have no null structs."""
        row = decode(reading, pa.array([None if frame is None else bytes(frame)], pa.binary()))
        return python_of_arrow(row)[0]

    if hasattr(functions, "arrow_udf"):
        made = functions.arrow_udf(from_registry, spark_type(arrow))
    else:
        made = functions.udf(from_registry_row, spark_type(arrow), useArrow=False)
    return made


def _writing_udf(writing: Writing) -> Callable[[Any], Any]:
    from pyspark.sql import functions

    made: Callable[[Any], Any]

    def to_registry(rows: pa.Array) -> pa.Array:
        return encoder_of(writing).encode(rows)

    def to_registry_row(row: Any) -> Any:
        encoder = encoder_of(writing)
        return encoder.encode_values([python_of_rows(row, encoder.arrow_type)])[0]

    if hasattr(functions, "arrow_udf"):
        made = functions.arrow_udf(to_registry, "binary")
    else:
        made = functions.udf(to_registry_row, "binary", useArrow=False)
    return made
