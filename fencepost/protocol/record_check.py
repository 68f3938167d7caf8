"""What must be known of a batch's records before it is appended, without an object for each record."""

from typing import NamedTuple

from fencepost.protocol import compiled
from fencepost.protocol.batch_header import BatchHeader, Buffer, CorruptBatch
from fencepost.protocol.record_filter import zigzag_at
from fencepost.protocol.records import decode_in_pieces
from fencepost.protocol.varints import LONG_MAX, LONG_MIN, wrapped

NO_TIMESTAMP = -1


class RecordRules(NamedTuple):
    """What the records of a batch must fulfil. `earliest_ms` and `latest_ms` bound all timestamps except -1."""

    needs_keys: bool = False
    earliest_ms: int = LONG_MIN
    latest_ms: int = LONG_MAX


class CheckedRecords(NamedTuple):
    """The result: of `wrong_count` records that break a rule, `wrong` has the first ones.

    Each of them is (index in the batch, timestamp); the timestamp is None if the record needs a key and has none.
    """

    max_timestamp: int
    consecutive: bool
    """Whether the offsets rise by one from the batch's base offset on."""
    wrong_count: int
    wrong: list[tuple[int, int | None]]


def check_records(unpacked: Buffer, header: BatchHeader, rules: RecordRules, listed_max: int) -> CheckedRecords:
    """Check the records in the decompressed bytes of a batch, and list at most `listed_max` wrong ones.

    Raises CorruptBatch if they do not fit the header.
    """
    needs_keys, earliest_ms, latest_ms = rules
    if compiled.hot is not None:
        found: tuple[int, bool, int, list[tuple[int, int | None]]] | None = compiled.hot.check(
            unpacked,
            header.record_count,
            header.last_offset_delta,
            header.base_timestamp,
            needs_keys,
            max(earliest_ms, LONG_MIN),
            min(latest_ms, LONG_MAX),
            listed_max,
        )
        if found is not None:
            return CheckedRecords(*found)
    max_timestamp, consecutive, wrong_count, index = NO_TIMESTAMP, True, 0, 0
    wrong: list[tuple[int, int | None]] = []
    for piece in decode_in_pieces(unpacked, header):
        for offset, timestamp_ms, key, _, _ in piece:
            max_timestamp = max(max_timestamp, timestamp_ms)
            consecutive &= offset - header.base_offset == index
            keyless = needs_keys and key is None
            if keyless or (timestamp_ms != NO_TIMESTAMP and not earliest_ms <= timestamp_ms <= latest_ms):
                wrong_count += 1
                if wrong_count <= listed_max:
                    wrong.append((index, None if keyless else timestamp_ms))
            index += 1
    return CheckedRecords(max_timestamp, consecutive, wrong_count, wrong)


def times_fit(unpacked: Buffer, header: BatchHeader, earliest_ms: int, latest_ms: int) -> bool:
    """Whether all timestamps of a batch are -1 or in bounds, by its records' lengths and timestamps alone.

    False also if the lengths do not fit the bytes: `check_records` finds the reason.
    """
    if compiled.hot is not None:
        fit: bool = compiled.hot.times_fit(unpacked, header.record_count, header.base_timestamp, earliest_ms, latest_ms)
        return fit
    data, at, end = bytes(unpacked), 0, len(unpacked)
    try:
        for _ in range(header.record_count):
            size, at = zigzag_at(data, at)
            delta, _ = zigzag_at(data, at + 1)
            timestamp_ms = wrapped(header.base_timestamp + delta)
            at += size
            if size < 1 or (timestamp_ms != NO_TIMESTAMP and not earliest_ms <= timestamp_ms <= latest_ms):
                return False
    except (IndexError, CorruptBatch):
        return False
    return at == end
