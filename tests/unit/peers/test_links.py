"""A broker's login at another one, and answers that make no sense, over a stream in memory."""

import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from fencepost.broker.network.context import Endpoint
from fencepost.broker.peers.links import PeerLinks, Route, _Link
from fencepost.broker.peers.login import PeerLogins
from fencepost.broker.peers.peer import PeerUnavailable
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api03_metadata import MetadataRequest, MetadataResponse
from fencepost.protocol.messages.api17_sasl_handshake import SaslHandshakeResponse
from fencepost.protocol.messages.api36_sasl_authenticate import SaslAuthenticateResponse
from tests.kit.frames import Asked, FrameReader

Answers = Callable[[Asked], Any]


async def logged_in(nursery: trio.Nursery, answers: Answers) -> None:
    """Log in, with the secret b"ours", at a broker that answers so."""
    ours, theirs = trio.testing.memory_stream_pair()

    async def serve() -> None:
        frames = FrameReader(theirs)
        while (frame := await frames.next()) is not None:
            asked = Asked(frame)
            answer = answers(asked)
            await theirs.send_all(answer if isinstance(answer, bytes) else asked.answered(answer))

    nursery.start_soon(serve)
    await _Link(ours, "broker-1").log_in(PeerLogins(b"ours"))
    await ours.aclose()


def broker(secret: bytes, forged: bytes | None = None) -> Answers:
    """A broker that knows `secret`; `forged` stands in place of its own proof."""
    exchange = PeerLogins(secret).new_exchange()

    def answer(asked: Asked) -> Any:
        if asked.api.name == "SaslHandshake":
            return SaslHandshakeResponse(error_code=0, mechanisms=[])
        if forged is not None and exchange.login is None and b"p=" in bytes(asked.request.auth_bytes):
            return SaslAuthenticateResponse(error_code=0, auth_bytes=forged)
        return SaslAuthenticateResponse(error_code=0, auth_bytes=exchange.step(bytes(asked.request.auth_bytes)))

    return answer


async def test_both_know_the_secret(nursery: trio.Nursery) -> None:
    await logged_in(nursery, broker(b"ours"))


async def test_a_broker_that_does_not_know_the_secret_is_not_trusted(nursery: trio.Nursery) -> None:
    """It could take anybody's login; but it cannot prove that it knows the secret."""
    with pytest.raises(PeerUnavailable, match="does not know the cluster's secret"):
        await logged_in(nursery, broker(b"theirs", forged=b"v=AAAA"))


async def test_a_refused_login_names_the_error(nursery: trio.Nursery) -> None:
    refused = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=["PLAIN"])
    with pytest.raises(PeerUnavailable, match="refuses the login of this broker: UNSUPPORTED_SASL_MECHANISM"):
        await logged_in(nursery, lambda _: refused)


@pytest.mark.parametrize(
    "answer",
    [b"\x15\x03\x03\x00\x02\x02\x32", b"\0\0\0\4\0\0\0\7", b"\0\0\0\5\0\0\0\0\0", b"\x7f\xff\xff\xff"],
    ids=["an alert of TLS", "another request's", "cut off", "too large before a login"],
)
async def test_an_answer_that_makes_no_sense_is_as_a_lost_connection(nursery: trio.Nursery, answer: bytes) -> None:
    """`PeerLinks.ask` makes PeerUnavailable of it, after another attempt."""
    with pytest.raises(ConnectionResetError):
        await logged_in(nursery, lambda _: answer)


class Other:
    """Another broker at a UNIX socket. It answers Metadata when it is let."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.connections = 0
        self.go = trio.Semaphore(0)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with trio.socket.socket(socket.AF_UNIX) as listener:
            await listener.bind(self.path)
            listener.listen()
            task_status.started()
            async with trio.open_nursery() as nursery:
                while True:
                    sock, _ = await listener.accept()
                    self.connections += 1
                    nursery.start_soon(self._serve, trio.SocketStream(sock))

    async def _serve(self, stream: trio.SocketStream) -> None:
        frames, log_in = FrameReader(stream), broker(b"ours")
        async with stream:
            while (frame := await frames.next()) is not None:
                asked = Asked(frame)
                is_login = asked.api.name != "Metadata"
                if not is_login:
                    await self.go.acquire()
                with suppress(trio.BrokenResourceError):
                    await stream.send_all(asked.answered(log_in(asked) if is_login else MetadataResponse()))


async def test_what_is_asked_again_goes_over_a_new_connection(tmp_path: Path, nursery: trio.Nursery) -> None:
    """`OnceRule` of docs/models/cores.tla: a marker that is sent again does not overtake the first one, for a new
    connection has to log in first. Another connection that was kept would be ready at once.
    """
    other = Other(tmp_path / "other")
    await nursery.start(other.run)
    route = Route(Endpoint("localhost", 1), unix_address=other.path)
    links = PeerLinks("broker-1", lambda _: route, PeerLogins(b"ours"))
    async with trio.open_nursery() as asking:
        for _ in range(2):
            asking.start_soon(links.ask, 2, MetadataRequest(), 12)
            other.go.release()
    assert other.connections == 2, "both are kept"
    async with trio.open_nursery() as asking:
        asking.start_soon(links.ask, 2, MetadataRequest(), 12)
        await trio.testing.wait_all_tasks_blocked()
        asking.cancel_scope.cancel()
    other.go.release()
    other.go.release()
    await links.ask(2, MetadataRequest(), 12)
    assert other.connections == 3
    links.close()
    nursery.cancel_scope.cancel()
