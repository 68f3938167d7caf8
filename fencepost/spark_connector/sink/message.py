"""Record batches on their way from a task to the driver: with LZ4 where that makes them smaller.

Spark copies a task's message some eight times before the driver's Python has it: as an Arrow column, as a row, as a
serialised result in its block store. A byte less is saved at each of them; packing one costs about as much as one copy.
"""

from __future__ import annotations

from typing import NamedTuple

from fencepost.spark_connector.sink.encode import Encoded

_CODEC = "lz4_raw"
_WORTH_IT = 0.9
_SKIPPED = 7
"""So many record batches go as they are behind one that packing did not make smaller, before it is tried again."""


class Packed(NamedTuple):
    """A record batch as it travels. `size` is that of the record batch, in bytes; `is_packed` says what `data` is."""

    topic: str
    partition: int
    data: bytes
    size: int
    is_packed: bool

    def unpacked(self) -> bytes:
        """The record batch."""
        if not self.is_packed:
            return self.data
        import pyarrow as pa

        data: bytes = pa.decompress(self.data, decompressed_size=self.size, codec=_CODEC, asbytes=True)
        return data


class Packer:
    """Packs the record batches of one task. `compressed`: they are by themselves, and are left as they are."""

    def __init__(self, *, compressed: bool) -> None:
        import pyarrow as pa

        self._try = not compressed and pa.Codec.is_available(_CODEC)
        self._to_skip = 0

    def pack(self, part: Encoded) -> Packed:
        """One record batch."""
        size = len(part.data)
        if self._try and self._to_skip:
            self._to_skip -= 1
        elif self._try:
            import pyarrow as pa

            smaller = pa.compress(part.data, codec=_CODEC, asbytes=True)
            if len(smaller) < _WORTH_IT * size:
                return Packed(part.topic, part.partition, smaller, size, True)
            self._to_skip = _SKIPPED
        return Packed(part.topic, part.partition, part.data, size, False)
