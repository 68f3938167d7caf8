"""Damage is detected where a row's bytes enter a broker."""

import pytest

from fencepost.broker.cluster.engine import Placement, Row, RowKind
from fencepost.broker.cluster.reading.stamping import stamp
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.protocol.record_batch import build_batch
from tests.kit.cluster_rows import EPOCH, batch, run_of


def test_a_changed_bit_is_detected_wherever_it_is() -> None:
    """But not in the 12 bytes that stamping replaces: the offset and the leader epoch."""
    run = [batch(1), batch(2)]
    data = b"".join(run)
    row, expected = run_of(100, run, Placement(1, 0, len(data))), bytearray(data)
    stamp(row, expected, "x")
    replaced = {start + at for start in (0, len(run[0])) for at in (*range(8), *range(12, 16))}
    for bit in range(8 * len(data)):
        spoiled = bytearray(data)
        spoiled[bit // 8] ^= 1 << bit % 8
        if bit // 8 in replaced:
            stamp(row, spoiled, "x")
            assert spoiled == expected
        else:
            with pytest.raises(CorruptLogFile):
                stamp(row, spoiled, "x")


def test_the_batches_of_a_segment_keep_their_offsets_and_gaps() -> None:
    one, other = bytearray(build_batch([(1, None, b"a", ())], base_offset=102)), batch(1)
    two = bytearray(build_batch([(1, None, b"b", ())], base_offset=107))
    data = one + two
    row = Row(100, 10, RowKind.SEGMENT, EPOCH, Placement(1, 0, len(data)), 1, 2, (), None, b"")
    before = bytes(data)
    assert [offset for _, offset, _ in stamp(row, data, "x")] == [102, 107]
    assert data == before
    for wrong in (one + one, two + one, one + other):
        placed = row._replace(placement=Placement(1, 0, len(wrong)))
        with pytest.raises(CorruptLogFile, match="begins at offset"):
            stamp(placed, wrong, "x")
    with pytest.raises(CorruptLogFile, match="the batches end at offset 108, but the row ends at 107"):
        stamp(row._replace(count=7), data, "x")
    with pytest.raises(CorruptLogFile, match="2 batches, but the row has 3"):
        stamp(row._replace(batches=3), data, "x")
