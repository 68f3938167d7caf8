"""Writes batches of rows in Spark's workers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fencepost.spark_connector.schemas.errors import SchemaError
from fencepost.spark_connector.schemas.formats import codec_of
from fencepost.spark_connector.schemas.registry import SchemaText
from fencepost.spark_connector.schemas.spark_types import check_fits


@dataclass(frozen=True)
class Writing:
    """What Spark sends to its workers with the query. It needs no registry: the schema id is known."""

    subject: str
    schema: SchemaText
    message: str | None


_encoders: dict[Writing, "Encoder"] = {}
"""This worker's."""


def encoder_of(writing: Writing) -> "Encoder":
    """The worker's encoder for it."""
    encoder = _encoders.get(writing)
    if encoder is None:
        encoder = _encoders[writing] = Encoder(writing)
    return encoder


class Encoder:
    """The schema, and the types of columns that were found to fit it."""

    def __init__(self, writing: Writing) -> None:
        self._subject = writing.subject
        self._codec = codec_of(writing.schema, writing.message)
        self.arrow_type = self._codec.arrow_type
        self._fitting: set[pa.DataType] = set()

    def encode(self, rows: pa.Array) -> pa.Array:
        """The records of these rows. Null rows are null. Raises SchemaError if a type or a value does not fit."""
        if rows.type not in self._fitting:
            try:
                check_fits(rows.type, self.arrow_type, "value")
            except SchemaError as error:
                raise SchemaError(f"the column does not fit the schema of subject {self._subject}: {error}") from None
            self._fitting.add(rows.type)
        return pa.array(self.encode_values(rows.to_pylist()), pa.binary())

    def encode_values(self, values: Sequence[Any]) -> list[bytes | None]:
        return [None if value is None else self._encode(value) for value in values]

    def _encode(self, value: Any) -> bytes:
        try:
            return self._codec.write(value)
        except Exception as error:
            raise SchemaError(
                f"a row cannot be written with the schema of subject {self._subject}: {type(error).__name__}: {error}"
            ) from error
