"""The stream of a link: all bytes go, however few the system takes at once; also below TLS."""

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from fencepost.broker.peers.plain_stream import PlainStream
from tests.kit.certificates import Authority

MUCH = bytes(range(256)) * (16 << 10)
"""More than a socket's buffers."""


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[PlainStream, trio.SocketStream]]:
    mine, other = (trio.SocketStream(trio.socket.from_stdlib_socket(one)) for one in socket.socketpair())
    async with PlainStream(mine) as stream, other:
        yield stream, other


async def received(stream: trio.abc.ReceiveStream, count: int) -> bytes:
    data = bytearray()
    while len(data) < count and (more := await stream.receive_some(1 << 16)):
        data += more
    return bytes(data)


async def test_all_is_sent_though_the_system_takes_less_at_once() -> None:
    async with connected() as (stream, other), trio.open_nursery() as nursery:
        nursery.start_soon(stream.send_all, MUCH)
        assert await received(other, len(MUCH)) == MUCH


async def test_the_end_is_empty() -> None:
    async with connected() as (stream, other):
        await other.send_all(b"last")
        await other.aclose()
        assert [await stream.receive_some() for _ in range(2)] == [b"last", b""]


async def test_a_send_to_what_is_closed_raises() -> None:
    """`PeerLinks` makes another attempt of it."""
    async with connected() as (stream, other):
        await other.aclose()
        with pytest.raises(BrokenPipeError):
            await stream.send_all(b"late")


async def test_tls_goes_over_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    trusts = ssl.create_default_context(cafile=str(authority.ca))
    async with connected() as (stream, other), trio.open_nursery() as nursery:
        server = trio.SSLStream(other, authority.server_context(), server_side=True)
        client = trio.SSLStream(stream, trusts, server_hostname="127.0.0.1")
        nursery.start_soon(client.send_all, MUCH)
        assert await received(server, len(MUCH)) == MUCH
        nursery.start_soon(server.send_all, MUCH)
        assert await received(client, len(MUCH)) == MUCH
