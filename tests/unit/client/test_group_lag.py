"""How many records of a batch are still to come for a group: also where compaction left gaps in it (row L4)."""

from collections.abc import Sequence

import pytest

from fencepost.client.admin.lag import _count
from fencepost.protocol.batch_header import HEADER_SIZE, assign_offset, iter_headers
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.record_filter import filtered, packed, scan

BASE = 100


def compacted(kept: Sequence[int], total: int = 10) -> bytes:
    """A batch from offset 100 on, of which only the records at some places are left."""
    whole = bytearray(build_batch([(1, b"k", b"v%d" % number, ()) for number in range(total)]))
    assign_offset(whole, 0, BASE, 0)
    [(position, header)] = iter_headers(whole)
    body = bytes(whole[position + HEADER_SIZE :])
    records = [record for record in scan(body, header) if record.offset - BASE in kept]
    return bytes(packed(*filtered(header, body, records))[1])


@pytest.mark.parametrize(
    ("kept", "start", "stop", "expected"),
    [
        (range(10), 0, 200, 10),
        (range(10), 104, 200, 6),
        (range(10), 104, 107, 3),
        ((0, 3, 9), 0, 200, 3),
        ((0, 3, 9), 101, 200, 2),
        ((0, 3, 9), 104, 200, 1),
        ((0, 3, 9), 101, 109, 1),
    ],
)
def test_only_records_that_are_there_count(kept: Sequence[int], start: int, stop: int, expected: int) -> None:
    data = compacted(kept)
    [(position, header)] = iter_headers(data)
    assert _count(data, position, header, start, stop) == expected
