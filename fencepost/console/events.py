"""Server-sent events: an open response that brings news to a page until the browser leaves or the console stops."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import trio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

Emit = Callable[[str, Any], Awaitable[None]]
"""Sends one event: its name, and a value that becomes JSON."""
RECONNECT_MS = 2000
PING_SECONDS = 15.0
"""A peer that is gone without a word is noticed when something is written to it."""


class EventStream(Response):
    """Runs `work` with an `emit`; ends with it, when the browser disconnects, when `stopping` is set, or when what owns
    the set `scopes` cancels the scope that the stream puts into it.
    """

    def __init__(
        self, work: Callable[[Emit], Awaitable[None]], stopping: trio.Event, scopes: set[trio.CancelScope]
    ) -> None:
        super().__init__(media_type="text/event-stream", headers={"cache-control": "no-store"})
        del self.headers["content-length"]
        self._work = work
        self._stopping = stopping
        self._scopes = scopes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writing = trio.Lock()

        async def emit(name: str, value: Any) -> None:
            await body(f"event: {name}\ndata: {json.dumps(value)}\n\n")

        async def body(text: str, more: bool = True) -> None:
            async with writing:
                await send({"type": "http.response.body", "body": text.encode(), "more_body": more})

        async def ping() -> None:
            while True:
                await trio.sleep(PING_SECONDS)
                await body(": still here\n\n")

        async with trio.open_nursery() as nursery:
            whole = nursery.cancel_scope
            self._scopes.add(whole)
            try:
                nursery.start_soon(_cancel_on_disconnect, receive, whole)
                nursery.start_soon(_cancel_on_stop, self._stopping, whole)
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                await body(f"retry: {RECONNECT_MS}\n\n")
                nursery.start_soon(ping)
                await self._work(emit)
            finally:
                self._scopes.discard(whole)
                whole.cancel()
        with trio.CancelScope(shield=True), trio.move_on_after(1):
            await body("", more=False)


async def _cancel_on_disconnect(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def _cancel_on_stop(stopping: trio.Event, scope: trio.CancelScope) -> None:
    await stopping.wait()
    scope.cancel()
