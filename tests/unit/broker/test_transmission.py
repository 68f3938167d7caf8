"""Answers leave in order, from memory and from files, however little the socket takes at a time."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from fencepost.broker.log.store import Descriptor, FileRegion
from fencepost.broker.transmission import BUFFERS_PER_CALL, JOIN_BYTES_MAX, send_parts

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def content(tmp_path: Path) -> tuple[bytes, Descriptor]:
    data = os.urandom(3 << 20)
    (tmp_path / "segment").write_bytes(data)
    return data, Descriptor(os.open(tmp_path / "segment", os.O_RDONLY))


async def receive(sock: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        await trio.lowlevel.wait_readable(sock)
        data += sock.recv(50_000)
    return bytes(data)


async def test_memory_and_files_in_order(pair: Pair, content: tuple[bytes, Descriptor]) -> None:
    data, descriptor = content
    regions = [FileRegion(descriptor, 0, 1 << 20), FileRegion(descriptor, 1 << 20, (2 << 20) - 5)]
    parts = [b"head", b"x" * 200_000, regions[0], b"between", memoryview(b"y" * 70_000), regions[1], b"tail"]
    expected = b"head" + b"x" * 200_000 + data[: 1 << 20] + b"between" + b"y" * 70_000 + data[1 << 20 : -5] + b"tail"
    progress: list[None] = []
    got = b""

    async def read() -> None:
        nonlocal got
        got = await receive(pair[1], len(expected))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await send_parts(pair[0], parts, lambda: progress.append(None))
    assert got == expected
    assert len(progress) >= 5


@pytest.mark.parametrize("size", [1, JOIN_BYTES_MAX // (2 * BUFFERS_PER_CALL), 5_000])
async def test_more_buffers_than_one_call_takes(pair: Pair, size: int) -> None:
    parts = [bytes([number % 256]) * size for number in range(2 * BUFFERS_PER_CALL + 7)]
    got = b""

    async def read() -> None:
        nonlocal got
        got = await receive(pair[1], size * len(parts))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await send_parts(pair[0], parts, lambda: None)
    assert got == b"".join(parts)


async def test_a_file_that_is_shorter_than_its_region_is_an_error(
    pair: Pair, content: tuple[bytes, Descriptor]
) -> None:
    data, descriptor = content
    with pytest.raises(OSError, match="ended 10 bytes before"):
        await send_parts(pair[0], [FileRegion(descriptor, len(data), 10)], lambda: None)
