"""Connections of browsers: hypercorn's HTTP/1.1 on sockets of our own, bounded in number and in time.

Hypercorn's own server ends with the first connection that fails in an unforeseen way, speaks HTTP/2 and websockets,
which the console does not need, and waits without end for a peer that does not read.
"""

import contextlib
import logging
from functools import partial
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

logger = logging.getLogger(__name__)
CONNECTIONS_MAX: Final = 200
WRITE_SECONDS: Final = 5.0
"""A peer that takes nothing for so long is cut off."""
HANDSHAKE_SECONDS: Final = 10.0


async def serve(
    app: Any, config: Config, listeners: "list[trio.SocketListener | trio.SSLListener[Any]]", stop: trio.Event
) -> None:
    """Answer requests until `stop` is set; open ones have `config.graceful_timeout` seconds then."""
    context = WorkerContext(None)
    wrapped = wrap_app(app, config.wsgi_max_body_size, "asgi")
    open_connections = 0

    async def one(stream: Any) -> None:
        nonlocal open_connections
        if open_connections >= CONNECTIONS_MAX:
            logger.warning("a connection is refused, %d are open", open_connections)
            await trio.aclose_forcefully(stream)
            return
        open_connections += 1
        try:
            await _Connection(wrapped, config, context, {}, stream).run()
        finally:
            open_connections -= 1

    async with trio.open_nursery() as connections:
        async with trio.open_nursery() as accepting:
            accepting.start_soon(partial(trio.serve_listeners, one, listeners, handler_nursery=connections))
            await stop.wait()
            accepting.cancel_scope.cancel()
        await context.terminated.set()
        connections.cancel_scope.deadline = trio.current_time() + config.graceful_timeout


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
        raw = (self.stream.transport_stream if tls else self.stream).socket
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
        plain = [(name, value) for name, value in request.headers if name != b"upgrade"]
        made = h11.Request(
            method=request.method, target=request.target, headers=plain, http_version=request.http_version
        )
        await super()._create_stream(made)
