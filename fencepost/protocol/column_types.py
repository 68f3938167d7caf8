"""Record columns as values, and their Arrow arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ALL_FIELDS = frozenset({"key", "value", "headers"})
Column = tuple[int, int, bytearray | None, bytearray, Any]
"""A finished binary column: rows, nulls, then Arrow's buffers: validity, int32 offsets, bytes."""
Lists = tuple[int, bytearray | None, bytearray | None, Column | None, Column | None]
"""A finished headers column: rows without headers, validity and int32 offsets of the lists, names, contents."""


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Records in offset order, one entry per record in every column.

    `key`, `value`: pyarrow binary arrays; `headers`: list<struct<key: string, value: binary>>, null where a record has
    none. Each is None if it was not requested. `timestamp_type` is 0 for CreateTime, 1 for LogAppendTime.
    """

    offset: NDArray[np.int64]
    timestamp_ms: NDArray[np.int64]
    timestamp_type: NDArray[np.int32]
    key: Any
    value: Any
    headers: Any

    def __len__(self) -> int:
        return len(self.offset)

    @property
    def nbytes(self) -> int:
        columns = (self.offset, self.timestamp_ms, self.timestamp_type, self.key, self.value, self.headers)
        return sum(column.nbytes for column in columns if column is not None)


def headers_type() -> Any:
    """The Arrow type of the headers column, as Spark's Kafka source has it."""
    import pyarrow as pa

    return pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def arrow_numbers(numbers: NDArray[Any], kind: Any, valid: NDArray[np.bool_] | None = None) -> Any:
    """An Arrow array of `kind` over the memory of `numbers`, null where not `valid`.

    `pa.array` does the same, but first imports pandas if that is installed, which takes most of a second.
    """
    import numpy as np
    import pyarrow as pa

    bits = None
    if valid is not None and not valid.all():
        bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(numbers), [bits, pa.py_buffer(np.ascontiguousarray(numbers))])


def arrow_text(text: str) -> Any:
    """An Arrow array of one string, without `pa.array` for the reason given in `arrow_numbers`."""
    import numpy as np
    import pyarrow as pa

    data = text.encode()
    bounds = np.array([0, len(data)], np.int32)
    return pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
