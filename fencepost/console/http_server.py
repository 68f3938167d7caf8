"""Connections of browsers: hypercorn's HTTP/1.1 on sockets of our own, bounded in number and in time.

Hypercorn's own server ends with the first connection that fails in an unforeseen way, speaks HTTP/2 and websockets,
which the console does not need, and waits without end for a peer that does not read.
"""

import contextlib
import logging
import re
import ssl
from functools import partial
from pathlib import Path
from typing import Any, Final

import h11
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.utils import parse_socket_addr, wrap_app

from fencepost.console.limits import ConnectionCounts, network_of

logger = logging.getLogger(__name__)
CONNECTIONS_MAX: Final = 200
CONNECTIONS_OF_ONE_MAX: Final = 100
"""Of one address, so that it cannot lock the others out."""
WRITE_SECONDS: Final = 5.0
"""A peer that takes nothing for this time is disconnected."""
HANDSHAKE_SECONDS: Final = 10.0
GRACE_SECONDS: Final = 2.0
"""How long open responses have after the end; streams end at once."""
_ABSOLUTE: Final = re.compile(rb"(?i:https?)://([^/?#]*)(.*)")
KEEP_ALIVE_SECONDS: Final = 30


def quiet_config(log_name: str) -> Config:
    """Hypercorn's configuration: bounded times, and only warnings, to this logger."""
    config = Config()
    config.errorlog = logging.getLogger(log_name)
    config.errorlog.setLevel(logging.WARNING)
    config.accesslog = None
    config.include_server_header = False
    config.graceful_timeout = GRACE_SECONDS
    config.keep_alive_timeout = KEEP_ALIVE_SECONDS
    return config


async def listen(address: str) -> tuple[trio.SocketListener, str]:
    """A listener at HOST:PORT, and its address; an empty host is the loopback, as for the metrics.

    Raises OSError that names the address.
    """
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise OSError(f"{address!r} is not HOST:PORT")
    try:
        listeners = await trio.open_tcp_listeners(int(port), host=host.strip("[]") or "127.0.0.1")
    except OSError as error:
        raise OSError(error.errno, f"cannot listen on {address}: {error.strerror or error}") from error
    for further in listeners[1:]:  # of a name with several addresses: with port 0 each would have another port
        await further.aclose()
    bound = listeners[0].socket.getsockname()
    return listeners[0], f"[{bound[0]}]:{bound[1]}" if ":" in bound[0] else f"{bound[0]}:{bound[1]}"


def server_tls(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """TLS with this certificate and key, PEM files. Raises OSError and ssl.SSLError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["http/1.1"])
    return context


async def serve(
    app: Any,
    config: Config,
    listeners: "list[trio.SocketListener | trio.SSLListener[Any]]",
    stop: trio.Event,
    most: int = CONNECTIONS_MAX,
    most_of_one: int = CONNECTIONS_OF_ONE_MAX,
) -> None:
    """Answer requests until `stop` is set; open ones have `config.graceful_timeout` seconds then.

    `most` and `most_of_one` bound the open connections, in all and of one address.
    """
    context = WorkerContext(None)
    wrapped = wrap_app(app, config.wsgi_max_body_size, "asgi")
    counts = ConnectionCounts(most, most_of_one)

    async def one(stream: Any) -> None:
        try:
            network = network_of(_socket_of(stream).getpeername()[0])
        except OSError:  # it left already
            await trio.aclose_forcefully(stream)
            return
        refusal = counts.refusal(network)
        if refusal is not None:
            logger.warning("a connection is refused: %s address=%s", refusal, network)
            await trio.aclose_forcefully(stream)
            return
        counts.add(network)
        try:
            await _Connection(wrapped, config, context, {}, stream).run()
        finally:
            counts.remove(network)

    async with trio.open_nursery() as connections:
        async with trio.open_nursery() as accepting:
            accepting.start_soon(partial(trio.serve_listeners, one, listeners, handler_nursery=connections))
            await stop.wait()
            accepting.cancel_scope.cancel()
        await context.terminated.set()
        connections.cancel_scope.deadline = trio.current_time() + config.graceful_timeout


def _socket_of(stream: Any) -> Any:
    return (stream.transport_stream if isinstance(stream, trio.SSLStream) else stream).socket


class _Connection(TCPServer):
    """One connection. An unforeseen failure ends it alone."""

    protocol: Any

    async def run(self) -> None:
        try:
            if isinstance(self.stream, trio.SSLStream):
                with trio.fail_after(HANDSHAKE_SECONDS):
                    await self.stream.do_handshake()
            await self._answer()
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            logger.debug("a connection ended early")
        except Exception as error:
            logger.warning("a connection of the console failed cause=%r", error, exc_info=logger.isEnabledFor(10))
        finally:
            with trio.move_on_after(WRITE_SECONDS) as limit:
                limit.shield = True
                await trio.aclose_forcefully(self.stream)

    async def _answer(self) -> None:
        tls = isinstance(self.stream, trio.SSLStream)
        raw = _socket_of(self.stream)
        client, server = (parse_socket_addr(raw.family, name) for name in (raw.getpeername(), raw.getsockname()))
        async with TaskGroup() as tasks:
            self._task_group = tasks
            self.protocol = _Http11(
                self.app, self.config, self.context, tasks, ConnectionState({}), tls, client, server, self.protocol_send
            )
            await self.protocol.initiate()
            await self.idle_task.restart(tasks, self._idle_timeout)
            await self._read_data()
            await self.idle_task.stop()

    async def protocol_send(self, event: Event) -> None:
        if not isinstance(event, RawData):
            await super().protocol_send(event)
            return
        sent = False
        async with self.send_lock:
            with trio.move_on_after(WRITE_SECONDS) as limit:
                limit.shield = True
                with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await self.stream.send_all(event.data)
                    sent = True
        if not sent:
            await trio.aclose_forcefully(self.stream)
            await self.protocol.handle(Closed())


class _Http11(H11Protocol):
    """HTTP/1.1 alone: a request for another protocol is answered as if it had not been one."""

    async def _check_protocol(self, event: h11.Request) -> None:
        await trio.lowlevel.checkpoint()

    async def _create_stream(self, request: h11.Request) -> None:
        target, headers = request.target, request.headers
        plain = [(name, value) for name, value in headers if name != b"upgrade"]
        absolute = _ABSOLUTE.fullmatch(target)
        if absolute is not None:  # a request as for a proxy. Its host counts, not the header's: RFC 9112, 3.2.2
            host, rest = absolute.groups()
            target = rest if rest.startswith(b"/") else b"/" + rest
            plain = [(name, value) for name, value in plain if name != b"host"] + [(b"host", host)]
        made = h11.Request(method=request.method, target=target, headers=plain, http_version=request.http_version)
        await super()._create_stream(made)
