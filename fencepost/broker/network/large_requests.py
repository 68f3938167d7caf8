"""Requests of many elements: decoded, handled and answered in steps, so that other clients do not wait for them.

Only one of them does its next step in a pass of trio's loop. Otherwise a hundred large requests would take a hundred
steps before any other client is served.
"""

from collections.abc import Generator
from typing import Any, TypeVar

import trio

from fencepost.broker.network.dispatch import Route
from fencepost.broker.network.reply import Durable, Encoded, Ready, Reply, Response, ready
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import ResponseValue
from fencepost.protocol.stepwise import ELEMENTS_MAX, Steps, decoder_in_steps, encoder_in_steps

ELEMENTS_MAX_WHOLE = 20_000
WHOLE = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.LEAVE_GROUP,
    }
)
"""APIs with a lower bound: their elements depend on each other, so the handler takes them all at once."""
ResultT = TypeVar("ResultT")


class LargeRequest:
    """One of them; its handler finds it in `RequestContext.large`."""

    __slots__ = ("_requests", "shared", "whole")

    def __init__(self, requests: "LargeRequests", whole: Any) -> None:
        self._requests = requests
        self.whole = whole
        self.shared: Any = None

    async def run(self, steps: Generator[None, None, ResultT]) -> ResultT:
        return await self._requests.run(steps)


class LargeRequests:
    """Runs the steps of all connections' large requests, in turns."""

    def __init__(self) -> None:
        self._lock = trio.Lock()
        self._decoders: dict[tuple[int, int], Any] = {}
        self._encoders: dict[tuple[int, int], Any] = {}

    def decode(self, route: Route, frame: memoryview, start: int) -> Steps:
        """The steps to a decoded request and its end."""
        key = route.api.key, route.version
        decoder = self._decoders.get(key)
        if decoder is None:
            most = ELEMENTS_MAX_WHOLE if route.api.key in WHOLE else ELEMENTS_MAX
            decoder = self._decoders[key] = decoder_in_steps(route.api.request, route.version, most)
        steps: Steps = decoder(frame, start)
        return steps

    async def encoded(self, route: Route, waiting: Reply) -> Ready:
        """Wait for a reply, and encode its response in steps."""
        reply = await ready(waiting)
        if isinstance(reply, Durable) and isinstance(reply.response, ResponseValue):
            reply.response = await self._encode(route, reply.response)
            return reply
        return await self._encode(route, reply) if isinstance(reply, ResponseValue) else reply

    async def _encode(self, route: Route, response: Response) -> Encoded:
        key = route.api.key, route.version
        encoder = self._encoders.get(key)
        if encoder is None:
            encoder = self._encoders[key] = encoder_in_steps(route.api.response, route.version)
        return Encoded(await self.run(encoder(response)))

    async def run(self, steps: Generator[None, None, ResultT]) -> ResultT:
        """Do all steps, with a pause after each. Returns their result, and raises their errors."""
        async with self._lock:
            while True:
                try:
                    next(steps)
                except StopIteration as done:
                    result: ResultT = done.value
                    return result
                await trio.lowlevel.checkpoint()
