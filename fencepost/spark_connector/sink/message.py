"""Record batches in the message of a task, compressed with LZ4 if that makes them smaller.

Spark copies a task's message about eight times before the driver's Python gets it. It is an Arrow column, then a row,
then a serialised result in the block store. Every byte less saves all eight copies. Compression costs about one copy.
"""

from __future__ import annotations

from typing import NamedTuple

from fencepost.spark_connector.sink.encode import Encoded

_CODEC = "lz4_raw"
_WORTH_IT = 0.9
_SKIPPED = 7
"""The number of record batches that are not compressed after one that compression did not make smaller."""


class Packed(NamedTuple):
    """A record batch in a message. `size` is its unpacked size in bytes; `is_packed` says if `data` is packed."""

    topic: str
    partition: int
    data: bytes
    size: int
    is_packed: bool

    def unpacked(self) -> bytes:
        """The record batch without the LZ4 of the message."""
        if not self.is_packed:
            return self.data
        import pyarrow as pa

        data: bytes = pa.decompress(self.data, decompressed_size=self.size, codec=_CODEC, asbytes=True)
        return data


class Packer:
    """Packs the record batches of one task. With `compressed` they are compressed already and stay unchanged."""

    def __init__(self, *, compressed: bool) -> None:
        import pyarrow as pa

        self._try = not compressed and pa.Codec.is_available(_CODEC)
        self._to_skip = 0

    def pack(self, part: Encoded) -> Packed:
        """Pack one record batch."""
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
