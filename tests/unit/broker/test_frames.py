"""Frames are cut from a buffer that grows with what arrived, not with what was claimed (reliability.md section 2)."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.byte_budget import ByteBudget
from fencepost.broker.network.frames import BURST_BYTES, KEPT_BYTES, START_BYTES, BadFrame, FrameBuffer

MAX_BYTES = 100 << 20


def feed(frames: FrameBuffer, data: bytes) -> list[bytes]:
    """Receive `data` in as many rounds as the buffer asks for; return the frames that became whole."""
    found = []
    while data:
        space = frames.space()
        taken = min(len(space), len(data))
        space[:taken] = data[:taken]
        frames.received(taken)
        data = data[taken:]
        while (frame := frames.next_frame()) is not None:
            found.append(bytes(frame))
    return found


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@given(st.lists(st.binary(min_size=1, max_size=3000), max_size=40), st.integers(1, 9000))
def test_any_split_of_the_stream_gives_the_same_frames(bodies: list[bytes], step: int) -> None:
    stream = b"".join(map(framed, bodies))
    frames = FrameBuffer(MAX_BYTES, ByteBudget(-1))
    found = [frame for at in range(0, len(stream), step) for frame in feed(frames, stream[at : at + step])]
    assert found == bodies
    assert frames.pending_bytes == 0


def test_a_claimed_length_takes_no_memory() -> None:
    frames = FrameBuffer(MAX_BYTES, ByteBudget(-1))
    assert feed(frames, struct.pack(">i", MAX_BYTES) + b"x") == []
    frames.space()
    assert frames.capacity_bytes == START_BYTES


def test_the_buffer_holds_at_most_twice_what_arrived() -> None:
    frames = FrameBuffer(MAX_BYTES, ByteBudget(-1))
    arrived = 0
    for piece in [struct.pack(">i", 4 << 20)] + [b"y" * 8000] * 200:
        arrived += len(piece)
        assert feed(frames, piece) == []
        assert frames.capacity_bytes <= max(START_BYTES, 2 * arrived + 2 * START_BYTES)


def test_who_fills_the_buffer_with_whole_frames_is_given_more_room_up_to_a_bound() -> None:
    frames = FrameBuffer(MAX_BYTES, ByteBudget(-1))
    stream = framed(b"b" * 5000) * 200
    seen, arrived = [], 0
    while arrived < len(stream):
        taken = len(feed_once(frames, stream[arrived:]))
        arrived += taken
        seen.append(frames.capacity_bytes)
        assert frames.capacity_bytes <= max(START_BYTES, 2 * arrived)
    assert seen == sorted(seen)
    assert seen[-1] == BURST_BYTES


def test_who_sends_less_than_fits_keeps_the_small_buffer() -> None:
    frames = FrameBuffer(MAX_BYTES, ByteBudget(-1))
    for _ in range(100):
        assert len(feed(frames, framed(b"b" * 15_000))) == 1
    assert frames.capacity_bytes == START_BYTES


def feed_once(frames: FrameBuffer, data: bytes) -> bytes:
    """One round: as much of `data` as there is space for; what was taken. Every frame must be as it was sent."""
    space = frames.space()
    taken = data[: len(space)]
    space[: len(taken)] = taken
    frames.received(len(taken))
    while (frame := frames.next_frame()) is not None:
        assert bytes(frame) == b"b" * 5000
    return taken


def test_a_large_frame_gives_its_memory_back_when_the_connection_is_silent() -> None:
    frames = FrameBuffer(MAX_BYTES, ByteBudget(-1))
    body = b"z" * (1 << 20)
    assert feed(frames, framed(body)) == [body]
    assert frames.capacity_bytes > KEPT_BYTES
    frames.shrink()
    assert frames.capacity_bytes == START_BYTES
    assert feed(frames, framed(b"next")) == [b"next"]


def test_shrinking_keeps_the_begun_frame() -> None:
    frames = FrameBuffer(MAX_BYTES, ByteBudget(-1))
    body = b"z" * (1 << 20)
    assert feed(frames, framed(body)[:-1]) == []
    frames.shrink()
    assert feed(frames, body[-1:]) == [body]


@pytest.mark.parametrize("size", [0, -1, -(2**31), MAX_BYTES + 1, 2**31 - 1])
def test_impossible_lengths_are_refused(size: int) -> None:
    frames = FrameBuffer(MAX_BYTES, ByteBudget(-1))
    with pytest.raises(BadFrame, match=str(size)):
        feed(frames, struct.pack(">i", size))


@pytest.mark.parametrize(
    ("start", "cause"),
    [(bytes.fromhex("1603010200"), "TLS"), (b"GET / HTTP/1.1\r\n", "HTTP"), (b"POST /topics", "HTTP")],
)
def test_the_two_common_mistakes_are_named(start: bytes, cause: str) -> None:
    frames = FrameBuffer(MAX_BYTES, ByteBudget(-1))
    with pytest.raises(BadFrame, match=cause):
        feed(frames, start)


def test_what_came_before_a_bad_frame_is_still_answered() -> None:
    frames = FrameBuffer(MAX_BYTES, ByteBudget(-1))
    space = frames.space()
    data = framed(b"good") + struct.pack(">i", -1)
    space[: len(data)] = data
    frames.received(len(data))
    first = frames.next_frame()
    assert first is not None
    assert bytes(first) == b"good"
    with pytest.raises(BadFrame):
        frames.next_frame()


def test_a_limit_of_a_login_bounds_frames_and_the_buffer() -> None:
    """Before a login at most 64 KiB are held, whatever the client sends (sasl.server.max.receive.size)."""
    frames = FrameBuffer(1 << 20, ByteBudget(-1))
    frames.limit(32 << 10, "sasl.server.max.receive.size", 64 << 10)
    frame = struct.pack(">i", 32 << 10) + bytes(32 << 10)
    sent = frame * 20
    while sent:
        space = frames.space()
        count = min(len(space), len(sent))
        space[:count] = sent[:count]
        frames.received(count)
        sent = sent[count:]
        while frames.next_frame() is not None:
            assert frames.capacity_bytes <= 64 << 10
    frames.space()[:4] = struct.pack(">i", (32 << 10) + 1)
    frames.received(4)
    with pytest.raises(BadFrame, match=r"over sasl\.server\.max\.receive\.size=32768"):
        frames.next_frame()
    frames.limit(1 << 20)
    assert frames.next_frame() is None
