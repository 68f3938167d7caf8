"""What the header `not-before` of a record says to the leader of a share partition (ours)."""

from collections.abc import Sequence

import pytest

from fencepost.broker.share.reading import INLINE_BYTES, LaterRecords, SharedRead, times_in
from fencepost.broker.share.values import DELAY_MS_MAX, Fetched
from fencepost.protocol.batch_header import BatchHeader, iter_headers
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import NO_ERROR
from fencepost.protocol.not_before import not_before_ms
from fencepost.protocol.record_batch import build_batch

WALL_MS, LOCK_MS, MAX_BYTES = 1_700_000_000_000, 5_000, 1 << 20


def piece(
    base_offset: int, *times: int | None, value: bytes = b"x", codec: Compression = Compression.NONE
) -> tuple[BatchHeader, memoryview]:
    """A batch of records with these times in their headers."""
    records = [(0, None, value, () if one is None else [("a", None), ("not-before", b"%d" % one)]) for one in times]
    data = memoryview(bytes(build_batch(records, base_offset=base_offset, compression=codec)))
    [(_, header)] = iter_headers(data)
    return header, data


def read(*pieces: tuple[BatchHeader, memoryview], aborted: Sequence[tuple[int, int]] = ()) -> SharedRead:
    batches = [(header.base_offset, header.last_offset) for header, _ in pieces]
    return SharedRead(NO_ERROR, Fetched(batches[0][0], batches, aborted), list(pieces))


def find(one: SharedRead, enough: int = 500) -> SharedRead | tuple[BatchHeader, memoryview]:
    return LaterRecords(MAX_BYTES, WALL_MS, LOCK_MS).find(one, lambda first, last: True, {}, enough)


def found(one: SharedRead, enough: int = 500) -> SharedRead:
    result = find(one, enough)
    assert isinstance(result, SharedRead)
    return result


@pytest.mark.parametrize(
    ("headers", "time_ms"),
    [
        ((), None),
        ((("not-before", b"1700000000000"),), WALL_MS),
        ((("not-before", b"5"), ("not-before", b"7"), ("Not-Before", b"9")), 7),
        ((("not-before", None), ("not-before", b""), ("not-before", b"-5"), ("not-before", b" 5")), None),
        ((("not-before", b"9" * 16), ("not-before", "٣".encode())), None),
    ],
)
def test_what_is_a_time(headers: tuple[tuple[str, bytes | None], ...], time_ms: int | None) -> None:
    """H11: ASCII digits; what is no time says nothing, and of several times the latest counts."""
    assert not_before_ms(headers) == time_ms


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_only_times_to_come_count(codec: Compression) -> None:
    """H11: by the clock of locks, in steps of 0.1 s. A time that is too far is looked at again later."""
    one = read(piece(0, None, WALL_MS, WALL_MS + 950, codec=codec), piece(3, WALL_MS + 9 * DELAY_MS_MAX, codec=codec))
    assert found(one).fetched.held == [(2, 6_000), (3, LOCK_MS + DELAY_MS_MAX)]


def test_it_looks_no_further_than_it_must() -> None:
    """H11: the batches behind are for later fetches, and those without new records are not looked at."""
    one = read(piece(0, None, WALL_MS + 50), piece(2, None), piece(3, WALL_MS + 50), piece(4, None))
    cut = found(one, enough=2)
    assert (cut.fetched.batches, cut.fetched.held, len(cut.pieces)) == ([(0, 1), (2, 2)], [(1, 5_100)], 2)
    known = LaterRecords(MAX_BYTES, WALL_MS, LOCK_MS).find(one, lambda first, last: first == 3, {}, 500)
    assert isinstance(known, SharedRead)
    assert (known.fetched.held, len(known.pieces)) == ([(3, 5_100)], 4)
    aborted = found(read(piece(0, WALL_MS + 50), piece(1, WALL_MS + 50), aborted=[(0, 0)]))
    assert aborted.fetched.held == [(1, 5_100)]


def test_large_compressed_batches_are_left_to_a_thread() -> None:
    """H14: one at a time, and nothing behind it before; then their times are known."""
    first = piece(0, None)
    noisy = piece(1, *[WALL_MS + number * number for number in range(1_500)], codec=Compression.GZIP)
    assert noisy[0].size_bytes > INLINE_BYTES
    assert find(read(noisy)) == noisy
    assert len(found(read(first, noisy)).pieces) == 1
    times = times_in(*noisy, MAX_BYTES)
    after = LaterRecords(MAX_BYTES, WALL_MS, LOCK_MS).find(read(noisy), lambda first, last: True, {1: times}, 500)
    assert isinstance(after, SharedRead)
    assert len(after.fetched.held) == 1_499


def test_batches_that_cannot_be_read_go_to_members() -> None:
    """H14: a batch that unpacks to more than `message.max.decompressed.bytes`, and one that is damaged."""
    bomb = piece(0, WALL_MS + 50, value=bytes(2 << 20), codec=Compression.GZIP)
    assert times_in(*bomb, MAX_BYTES) == ()
    header, data = piece(0, WALL_MS + 50)
    assert times_in(header._replace(record_count=9), data, MAX_BYTES) == ()
