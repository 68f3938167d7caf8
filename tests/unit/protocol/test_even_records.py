"""Records alike but for their content are taken apart by columns of bytes, with the results and errors of the loop."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.protocol import compiled, records
from fencepost.protocol.batch_header import HEADER_SIZE, BatchHeader, CorruptBatch, read_header
from fencepost.protocol.even_records import even_fields
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.records import Record, decode_run, decode_unpacked

NEVER = 2**62
BASE_MS = 1_700_000_000_000
sizes = st.none() | st.sampled_from([0, 1, 63, 64, 100, 8191, 8192])


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "hot", None)


def content(size: int | None, fill: int) -> bytes | None:
    return None if size is None else bytes([fill % 256]) * size


def batch_of(
    count: int, key: int | None, value: int | None, times: list[int], **more: int
) -> tuple[BatchHeader, bytes]:
    made = [(BASE_MS + times[i % len(times)], content(key, i), content(value, i + 1), ()) for i in range(count)]
    batch = build_batch(made, base_offset=1000, **more)  # type: ignore[arg-type]
    return read_header(batch), bytes(batch[HEADER_SIZE:])


def by_loop(data: bytes, header: BatchHeader) -> list[Record] | str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "_SOME", NEVER)
        return decoded(data, header)


def decoded(data: bytes, header: BatchHeader) -> list[Record] | str:
    try:
        return decode_unpacked(data, header)
    except CorruptBatch as wrong:
        return str(wrong)


@given(
    count=st.sampled_from([8, 9, 63, 64, 65, 70, 200]),
    key=sizes,
    value=sizes,
    times=st.lists(st.integers(0, 63) | st.integers(64, 8191) | st.just(10_000), min_size=1, max_size=3),
    append_time=st.integers(0, 1),
)
def test_the_same_records_as_by_the_loop(
    count: int, key: int | None, value: int | None, times: list[int], append_time: int
) -> None:
    header, data = batch_of(count, key, value, times, timestamp_type=append_time)
    assert decoded(data, header) == by_loop(data, header)


@pytest.mark.parametrize("count", [8, 64, 65, 500, 8192])
@pytest.mark.parametrize(("key", "value"), [(None, 100), (8, 100), (8, None), (None, None), (0, 0), (64, 1024)])
def test_even_batches_do_go_this_way(count: int, key: int | None, value: int | None) -> None:
    for times in ([0], [0, 5, 63], [min(2 * i, 8000) for i in range(count)]):
        header, data = batch_of(count, key, value, times)
        found = even_fields(data, header)
        assert found is not None
        assert [Record(*one) for one in found] == by_loop(data, header)


def test_more_records_than_two_bytes_of_offset_delta_hold_are_the_loops() -> None:
    for count in (8193, 8300):
        header, data = batch_of(count, None, 3, [0])
        assert even_fields(data, header) is None
        assert decoded(data, header) == by_loop(data, header)


def test_holes_of_compaction_and_headers_are_the_loops() -> None:
    made = [Record(10 + 2 * i, BASE_MS, None, b"v" * 10, ()) for i in range(20)]
    with_headers = [Record(10 + i, BASE_MS, None, b"v" * 10, (("h", b"x"),)) for i in range(20)]
    for some in (made, with_headers):
        batch = build_batch(some, base_offset=10)
        header, data = read_header(batch), bytes(batch[HEADER_SIZE:])
        assert even_fields(data, header) is None
        assert decode_unpacked(data, header) == some


@pytest.mark.parametrize("count", [8, 80])
def test_every_damaged_byte_has_the_result_or_the_error_of_the_loop(count: int) -> None:
    chance = random.Random(count)
    for key, value, times in ((None, 5, [0]), (2, 5, [0, 3]), (None, 70, [100, 200])):
        header, data = batch_of(count, key, value, times)
        for place in range(len(data)):
            hurt = bytearray(data)
            hurt[place] = chance.choice([0, 1, 2, 127, 128, 255, hurt[place] ^ 1, hurt[place] + 2 & 255])
            assert decoded(bytes(hurt), header) == by_loop(bytes(hurt), header)
        for end in (0, 1, len(data) // 2, len(data) - 1):
            assert decoded(data[:end], header) == by_loop(data[:end], header)
        assert decoded(data + b"\0", header) == by_loop(data + b"\0", header)
        fewer = header._replace(record_count=count - 1)
        assert decoded(data, fewer) == by_loop(data, fewer)


def test_a_run_of_batches_ends_before_what_is_to_be_looked_at_alone() -> None:
    """Compressed, damaged, of another leader epoch, or before the position: `decode_records` says what is with it."""
    buffer, batches, offset = bytearray(), [], 0
    for epoch in (0, 0, 1, 1):
        batch = build_batch([(BASE_MS, None, b"v", ())] * 10, base_offset=offset, leader_epoch=epoch)
        batches.append((len(buffer), read_header(batch)))
        buffer += batch
        offset += 10
    run, count = decode_run(buffer, batches, 0, 1000)
    assert ([record.offset for record in run], count) == (list(range(20)), 2)
    assert decode_run(buffer, batches, 0, 5)[1] == 1
    assert decode_run(buffer, batches, 3, 1000) == ([], 0)
    assert decode_run(buffer, [batches[0], batches[0]], 0, 1000)[1] == 1
    buffer[batches[1][0] + HEADER_SIZE] = 255
    assert decode_run(buffer, batches, 0, 1000)[1] == 1
    packed = [(0, batches[0][1]._replace(attributes=1))]
    assert decode_run(buffer, packed, 0, 1000) == ([], 0)
