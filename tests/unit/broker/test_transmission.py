"""Answers leave in order, from memory and from files, however little the socket takes at a time."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from fencepost.broker.log.storage.store import Descriptor, FileRegion
from fencepost.broker.network import transmission
from fencepost.broker.network.transmission import (
    BUFFERS_PER_CALL,
    JOIN_BYTES_MAX,
    UNPACED,
    listen_unpaced,
    pace,
    send_parts,
)

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


def listen() -> tuple[socket.socket, bytes | None]:
    listening = socket.socket()
    usual = listen_unpaced(listening)
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    return listening, usual


@pytest.fixture
def tcp_pair() -> Iterator[Pair]:
    listening, _ = listen()
    with listening, socket.create_connection(listening.getsockname()) as theirs:
        ours, _ = listening.accept()
        with ours:
            ours.setblocking(False)
            theirs.setblocking(False)
            yield ours, theirs


def congestion_control(sock: socket.socket) -> bytes:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")


@pytest.mark.skipif(not hasattr(socket, "TCP_CONGESTION"), reason="the choice is Linux's")
def test_only_who_comes_over_a_network_is_sent_to_with_pauses() -> None:
    with socket.socket() as fresh:
        systems = congestion_control(fresh)
    listening, usual = listen()
    assert usual == systems
    with listening, socket.create_connection(listening.getsockname()):
        accepted, (peer_host, _) = listening.accept()
        with accepted:
            pace(accepted, peer_host, usual)
            assert congestion_control(accepted) == UNPACED
            pace(accepted, "192.0.2.1", usual)
            assert congestion_control(accepted) == systems


async def test_an_answer_over_tcp_is_whole_and_nothing_of_it_is_held_back(
    tcp_pair: Pair, content: tuple[bytes, Descriptor]
) -> None:
    data, descriptor = content
    parts: list[object] = [b"head"]
    for number in range(8):
        parts += [FileRegion(descriptor, number * 300_000, 300_000 - number), b"between %d" % number]
    expected = b"".join(
        part if isinstance(part, bytes) else data[part.offset : part.offset + part.length] for part in parts
    )
    got = b""

    async def read() -> None:
        nonlocal got
        got = await receive(tcp_pair[1], len(expected))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await send_parts(tcp_pair[0], parts, lambda: None)
    assert got == expected
    assert not tcp_pair[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_CORK)


async def test_who_takes_everything_lets_others_run_meanwhile(
    pair: Pair, content: tuple[bytes, Descriptor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole answer fits into the socket, so that only the bound makes the sender stop."""
    monkeypatch.setattr(transmission, "BYTES_BEFORE_WAIT", 8_000)
    data, descriptor = content
    parts = [b"h" * 10, FileRegion(descriptor, 5, 40_000), *[b"x" * 10_000] * 3]
    turns, sent = 0, False

    async def other() -> None:
        nonlocal turns
        while not sent:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await send_parts(pair[0], parts, lambda: None)
        sent = True
    assert turns >= 3, "none without the bound"
    assert await receive(pair[1], 70_010) == b"h" * 10 + data[5:40_005] + b"x" * 30_000


async def stopped_in_the_middle(nursery: trio.Nursery, sock: socket.socket, parts: list[object]) -> list[OSError]:
    """Begin to send to somebody who does not read; return when nothing moves, with what will hold the error."""
    errors: list[OSError] = []

    async def send() -> None:
        try:
            await send_parts(sock, parts, lambda: None)
        except OSError as error:
            errors.append(error)

    nursery.start_soon(send)
    await trio.testing.wait_all_tasks_blocked()
    return errors


async def test_a_reader_who_is_gone_in_the_middle_ends_the_sending(
    tcp_pair: Pair, content: tuple[bytes, Descriptor]
) -> None:
    _, descriptor = content
    with trio.fail_after(100):
        async with trio.open_nursery() as nursery:
            errors = await stopped_in_the_middle(nursery, tcp_pair[0], [FileRegion(descriptor, 0, 3 << 20)] * 6)
            assert not errors
            tcp_pair[1].close()
    assert isinstance(errors[0], (ConnectionResetError, BrokenPipeError))


async def test_a_file_deleted_in_the_middle_is_sent_to_its_end(
    tcp_pair: Pair, content: tuple[bytes, Descriptor], tmp_path: Path
) -> None:
    """The region keeps the descriptor open, and with it the bytes, until the last of them has left."""
    data, descriptor = content
    closed: list[int] = []
    descriptor = Descriptor(os.dup(descriptor.fd), lambda fd: (closed.append(fd), os.close(fd))[1])
    parts: list[object] = [FileRegion(descriptor, 0, len(data)) for _ in range(6)]
    async with trio.open_nursery() as nursery:
        errors = await stopped_in_the_middle(nursery, tcp_pair[0], parts)
        (tmp_path / "segment").unlink()
        parts = []
        del descriptor
        assert not closed
        got = await receive(tcp_pair[1], 6 * len(data))
    assert got == data * 6
    assert not errors
    assert closed


async def test_a_file_cut_in_the_middle_ends_the_sending(
    tcp_pair: Pair, content: tuple[bytes, Descriptor], tmp_path: Path
) -> None:
    """Never zeros, nor somebody else's bytes, in place of what is missing: the length before them was a promise."""
    data, descriptor = content
    async with trio.open_nursery() as nursery:
        errors = await stopped_in_the_middle(nursery, tcp_pair[0], [FileRegion(descriptor, 0, len(data))] * 6)
        os.truncate(tmp_path / "segment", 1 << 20)
        while not errors:
            with trio.move_on_after(0.05):  # the sender may see the end when nothing is left to be read
                await trio.lowlevel.wait_readable(tcp_pair[1])
                tcp_pair[1].recv(1 << 20)
            await trio.lowlevel.checkpoint()
    assert "the log file ended" in str(errors[0])
