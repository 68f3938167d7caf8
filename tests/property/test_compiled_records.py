"""The compiled record code against the plain one: whatever the bytes are, the same result or the same error.

The plain way is what other clients' code and golden bytes are compared with; here it is the judge. A compiled function
may also answer None, after which the plain way is taken: that it does so where it need not is looked for separately.
"""

import random
import struct
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("pyarrow")

from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.protocol.batch_header import HEADER_SIZE, BatchHeader, CorruptBatch, read_header
from fencepost.protocol.column_types import RecordColumns
from fencepost.protocol.columns import iter_columns
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.records import Record, decode_records, decode_unpacked, encode_records
from tests.kit.examples import examples
from tests.kit.record_code import COMPILED, needs_compiled, take

pytestmark = needs_compiled

INT64 = st.integers(-(2**63), 2**63 - 1)
CONTENT = st.none() | st.binary(max_size=150)
HEADERS = st.lists(st.tuples(st.text(max_size=12), CONTENT), max_size=3)
RECORD = st.tuples(st.integers(-1, 2**42), CONTENT, CONTENT, HEADERS)
FIELDS = st.sets(st.sampled_from(["key", "value", "headers"])).map(frozenset)


def both(call: Callable[[], Any]) -> tuple[Any, Any]:
    """What `call` gives, or raises, in plain Python, and by the compiled part."""
    found = []
    for way in ("pure Python", "compiled"):
        with pytest.MonkeyPatch.context() as patch:
            take(way, patch)
            try:
                found.append(("gave", call()))
            except (CorruptBatch, ValueError, OverflowError, TypeError, UnicodeError) as error:
                found.append((type(error).__name__, str(error)))
    plain, fast = found
    return plain, fast


def rows_of(columns: RecordColumns) -> tuple[Any, ...]:
    """Everything that a program could see of columns, types included."""
    arrays = [one for one in (columns.key, columns.value, columns.headers) if one is not None]
    for one in arrays:
        one.validate(full=True)
    numbers = [columns.offset, columns.timestamp_ms, columns.timestamp_type]
    return (
        [(str(one.dtype), one.tolist()) for one in numbers],
        [(str(one.type), one.null_count, one.to_pylist()) for one in arrays],
    )


def header_for(body: bytes, count: int, span: int, base: int, base_time: int, stamp: int | None) -> BatchHeader:
    """A batch's header that claims what it is told to."""
    attributes = 8 if stamp is not None else 0
    length = HEADER_SIZE - 12 + len(body)
    return BatchHeader(base, length, -1, 2, 0, attributes, span, base_time, stamp or 0, -1, -1, -1, count)


def check_reading(body: bytes, header: BatchHeader, fields: frozenset[str], first: int, stop: int) -> None:
    """Records and columns of a batch of these bytes, both ways."""
    buffer = bytes(HEADER_SIZE) + body
    plain, fast = both(lambda: decode_records(buffer, 0, header))
    assert fast == plain
    plain, fast = both(lambda: decode_unpacked(bytearray(body), header))
    assert fast == plain

    def columns() -> list[Any]:
        found = iter_columns(buffer, [(0, header)], first_offset=first, stop_offset=stop, fields=fields)
        return [rows_of(one) for one in found]

    plain, fast = both(columns)
    assert fast == plain


@given(st.lists(RECORD, max_size=30), st.integers(0, 2**62), st.none() | st.integers(0, 2**42), FIELDS, st.data())
def test_sound_batches_are_read_alike_and_without_help(
    records: list[Any], base: int, stamp: int | None, fields: frozenset[str], data: st.DataObject
) -> None:
    body, _, _ = encode_records(records, 1_000)
    header = header_for(body, len(records), len(records), base, 1_000, stamp)
    first, stop = (base + data.draw(st.integers(-1, 31)) for _ in range(2))
    check_reading(body, header, fields, first, stop)
    assert COMPILED is not None
    assert COMPILED.decode(body, len(records), base, len(records), 1_000, stamp, Record, ()) is not None
    span = (0, len(body), len(records), base, len(records), 1_000, 0)
    assert COMPILED.columns(body, [span], first, stop, True, True, True, bytearray) is not None


@given(st.lists(RECORD, min_size=1, max_size=6), FIELDS, st.integers(0, 2**32), st.data())
@settings(max_examples=examples(100))
def test_damaged_batches_are_judged_alike(
    records: list[Any], fields: frozenset[str], seed: int, data: st.DataObject
) -> None:
    """Bits turned, bytes overwritten, cut out and put in, the end cut off, counts that lie."""
    intact, _, _ = encode_records(records, 1_000)
    chance = random.Random(seed)
    for _ in range(12):
        body = bytearray(intact)
        for _ in range(chance.randrange(1, 4)):
            damage(body, chance)
        count = len(records) + chance.choice([0, 0, 0, 1, -1])
        span = len(records) + chance.choice([0, 0, -1])
        base_time = chance.choice([0, 1_000, 2**63 - 1, -(2**63)])
        header = header_for(bytes(body), count, span, chance.choice([0, 7, 2**63 - 2]), base_time, None)
        check_reading(bytes(body), header, fields, 0, data.draw(st.sampled_from([3, 2**63 - 1])))


def damage(body: bytearray, chance: random.Random) -> None:
    """One change that bytes may suffer."""
    at = chance.randrange(len(body) + 1)
    match chance.randrange(5):
        case 0 if at < len(body):
            body[at] ^= 1 << chance.randrange(8)
        case 1 if at < len(body):
            body[at] = chance.choice([0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFE, 0xFF])
        case 2:
            del body[at:]
        case 3:
            del body[at : at + chance.randrange(1, 4)]
        case _:
            body[at:at] = bytes(chance.choice([0, 1, 0x80, 0xFF]) for _ in range(chance.randrange(1, 11)))


@given(st.binary(max_size=200), st.integers(-1, 40), st.integers(-1, 40), FIELDS, INT64, INT64)
@settings(max_examples=examples(400))
def test_noise_is_judged_alike(
    body: bytes, count: int, span: int, fields: frozenset[str], base: int, base_time: int
) -> None:
    header = header_for(body, count, span, base, base_time, None)
    buffer = bytes(HEADER_SIZE) + body
    plain, fast = both(lambda: decode_records(buffer, 0, header))
    assert fast == plain
    if count >= 0 and base >= 0:
        check_reading(body, header, fields, 0, 2**63 - 1)


@given(st.integers(1, 12), st.binary(min_size=1, max_size=12), st.sampled_from(range(6)))
def test_varints_of_every_length_are_judged_alike(length: int, tail: bytes, place: int) -> None:
    """Ten-byte varints carry more than 64 bits, five-byte ones more than 32; some writers pad them with zeros."""
    wide = bytes(byte | 0x80 for byte in (tail * 12)[: length - 1]) + bytes([tail[0] & 0x7F])
    parts = [b"\0", b"\0", b"\0", b"\1", b"\1", b"\0"]
    parts[place] = wide if place else b"\0"
    inner = b"".join(parts)
    sizes = [bytes([len(inner) << 1])] if place else [bytes([len(inner) << 1]), wide]
    for size in sizes:
        body = size + inner
        check_reading(body, header_for(body, 1, 2**31 - 1, 5, 1_000, None), frozenset({"key", "headers"}), 0, 2**63 - 1)


@pytest.mark.parametrize("name", [b"\xc3\xa4", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\xff"])
def test_names_of_headers_are_utf8_or_replaced(name: bytes) -> None:
    inner = b"\0\0\0\1\1\2" + bytes([len(name) << 1]) + name + b"\1"
    body = bytes([len(inner) << 1]) + inner
    header = header_for(body, 1, 0, 5, 1_000, None)
    check_reading(body, header, frozenset({"headers"}), 0, 2**63 - 1)


class Text(str):
    """A str, but not exactly one."""


ODD = st.sampled_from([b"", bytearray(b"ab"), memoryview(b"abc"), "text", 5, ()])
ODD_HEADERS = st.sampled_from(
    [None, [], [("a", b"1")], [("a", "b")], [("\ud800", b"")], [(Text("n"), b"")], [("a",)], "ab"]
)
ODD_TIMES = st.sampled_from([2**63, -(2**63), 2**80, True, "now", None]) | INT64


@given(
    st.lists(st.tuples(ODD_TIMES | st.just(5), CONTENT | ODD, CONTENT | ODD, HEADERS | ODD_HEADERS), max_size=3)
    | st.lists(RECORD, max_size=30),
    st.integers(-(2**63), 2**63 - 1),
)
@settings(max_examples=examples(400))
def test_records_are_written_alike_or_refused_alike(records: list[Any], base_time: int) -> None:
    plain, fast = both(lambda: encode_records(records, base_time))
    assert fast == plain


@given(st.lists(st.tuples(st.integers(-3, 2**33), RECORD), max_size=8), st.integers(-5, 5))
def test_records_with_offsets_are_written_alike_or_refused_alike(placed: list[Any], base: int) -> None:
    records = [Record(offset, *rest) for offset, rest in sorted(placed, key=lambda one: one[0])]
    plain, fast = both(lambda: encode_records(records, 0, base))
    assert fast == plain


def test_whole_batches_are_the_same_bytes() -> None:
    records = [(1_000 + i, b"k%d" % i if i % 3 else None, bytes(i), [("h", None)] * (i % 4)) for i in range(500)]
    plain, fast = both(lambda: build_batch(records, producer_id=7, producer_epoch=1, base_sequence=9))
    assert fast == plain
    assert isinstance(plain[1], bytearray)


def test_a_batch_that_claims_more_than_the_buffer_holds_is_corrupt_either_way() -> None:
    batch = build_batch([(0, None, b"v" * 20, ())] * 3)
    struct.pack_into(">i", batch, 8, len(batch))
    header = read_header(batch, whole=False)
    plain, fast = both(lambda: decode_records(batch, 0, header))
    assert fast == plain
    assert plain[0] == "CorruptBatch"


def test_what_is_not_bytes_or_not_a_tuple_is_refused_without_a_crash() -> None:
    assert COMPILED is not None
    body, _, _ = encode_records([(0, None, b"v", ())], 0)
    with pytest.raises(TypeError):
        COMPILED.decode("text", 1, 0, 0, 0, None, Record, ())
    for kind in (tuple, int, list):
        with pytest.raises(TypeError, match="subclass of tuple"):
            COMPILED.decode(body, 1, 0, 0, 0, None, kind, ())
    with pytest.raises(TypeError, match="prefix"):
        COMPILED.decode(body, 1, 0, 0, 0, None, Record, ([],))
    with pytest.raises(TypeError):
        COMPILED.columns(body, [5], 0, 9, True, True, True, bytearray)
    for start, end, count in ((-1, 5, 1), (0, 99, 1), (5, 4, 0), (0, len(body), 2**40), (0, len(body), -1)):
        span = (start, end, count, 0, 0, 0, 0)
        assert COMPILED.columns(body, [span], 0, 9, True, True, True, bytearray) is None
    assert COMPILED.encode({1: 2}, 0, 0, Record, 0) is None
    assert COMPILED.encode([], 0, 0, Record, -1) is None


@pytest.mark.parametrize(
    ("allocate", "error"),
    [
        (lambda size: bytearray(size - 1), ValueError),
        (bytes, BufferError),
        (lambda size: 5, TypeError),
        (None, TypeError),
    ],
)
def test_room_that_is_too_small_or_none_is_refused_without_a_crash(allocate: Any, error: type[Exception]) -> None:
    body, _, _ = encode_records([(0, None, b"value", ())], 0)
    assert COMPILED is not None
    with pytest.raises(error):
        COMPILED.columns(body, [(0, len(body), 1, 0, 0, 0, 0)], 0, 9, False, True, False, allocate)


def test_bytes_that_change_while_room_is_made_are_not_written_beyond_it() -> None:
    """`allocate` is the one place where Python runs in between."""
    body = bytearray(encode_records([(0, None, b"v" * 20, ()), (0, None, b"v", ())], 0)[0])
    longer = encode_records([(0, None, b"v" * 21, ()), (0, None, b"", ())], 0)[0]
    assert len(longer) == len(body)

    def allocate(size: int) -> bytearray:
        body[:] = longer
        return bytearray(size)

    assert COMPILED is not None
    batches = [(0, len(body), 2, 0, 1, 0, 0)]
    found = COMPILED.columns(body, batches, 0, 9, False, True, False, allocate)
    assert found is not None
    assert found[5][4] == b"v" * 21
    batches[0] = (0, len(body), 2, 0, 1, 0, 0)
    grown = encode_records([(0, None, b"v" * 10, ()), (0, b"k" * 5, b"v" * 7, ())], 0)[0]

    def fewer(size: int) -> bytearray:
        batches.append(batches[0])
        body[:] = grown[: len(body)].ljust(len(body), b"\0")
        return bytearray(size)

    assert COMPILED.columns(body, batches, 0, 9, True, True, False, fewer) is None
