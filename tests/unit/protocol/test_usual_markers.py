"""Markers as brokers write them are told apart without decoding; any other goes the long way, with the same verdict."""

import pytest

from fencepost.protocol.batch_header import CorruptBatch, read_header
from fencepost.protocol.control_records import ControlType, control_type, end_txn_marker
from fencepost.protocol.isolation import _ends_aborted


def verdict(marker: bytearray) -> bool | str:
    try:
        return control_type(marker, 0, read_header(marker)) is ControlType.ABORT
    except CorruptBatch as wrong:
        return str(wrong)


def quick(marker: bytearray) -> bool | str:
    try:
        return _ends_aborted(read_header(marker), marker, 0)
    except CorruptBatch as wrong:
        return str(wrong)


@pytest.mark.parametrize("commit", [False, True])
def test_every_change_of_a_marker_has_the_verdict_of_the_decoded_record(commit: bool) -> None:
    """Rows 1 and 3 of section 0: the type is the second int16 of the record's key."""
    sound = end_txn_marker(7, 3, commit, 5, 1_700_000_000_000, 40, 2)
    assert quick(sound) is verdict(sound) is not commit
    for place in range(57, len(sound)):
        for byte in range(256):
            changed = bytearray(sound)
            changed[place] = byte
            try:
                read_header(changed)
            except CorruptBatch:
                continue
            assert quick(changed) == verdict(changed)
