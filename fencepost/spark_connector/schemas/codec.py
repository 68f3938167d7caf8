"""What each format does: reads records of one schema, and writes them."""

from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa

from fencepost.spark_connector.schemas.registry import SchemaText


class Reader(Protocol):
    """Reads records that were written with one schema, to what `Codec.assemble` takes."""

    def one(self, frame: bytes, at: int) -> Any:
        """The record in these bytes, from an offset on. Raises PoisonRecordError, or what the format's library does."""

    def many(self, frames: Sequence[bytes], at: int) -> list[Any] | None:
        """All of these records; None if they must be read one by one."""


class Codec(Protocol):
    """Reads and writes the records of one schema."""

    arrow_type: pa.DataType
    """What its records are in Arrow. A field with metadata may be missing when writing."""

    def reader(self, writer: SchemaText) -> Reader:
        """For the records that were written with `writer`."""

    def assemble(self, values: Sequence[Any]) -> pa.Array:
        """The records, None for those that are null, as one array."""

    def write(self, value: Any) -> bytes:
        """A record with its framing, from a row as Arrow gives it to Python."""
