"""Fetch (1): read batches from partitions in either isolation level, and wait for them up to `max_wait_ms`.

v4-18 are served. v4 brings isolation and the aborted list (I1, I2), v5 the log start offset, v7 sessions (KIP-227), v9
leader epochs, v10 allows zstd, v11 tells the consumer's rack (KIP-392), v12 returns a diverging epoch, v13 names topics
by id, v16 returns the leader's address. With `read.committed.filter` the broker leaves aborted batches out (I4).
"""

import math
from collections.abc import Callable, Collection, Coroutine

import trio

from fencepost.broker.fetch.closest import ClosestFetch, may_follow
from fencepost.broker.fetch.reads import Fetch
from fencepost.broker.fetch.sessions import FULL_EPOCH, SessionError
from fencepost.broker.network.context import CloseConnection, LargeWork, RequestContext
from fencepost.broker.network.large_requests import LargeRequest
from fencepost.broker.network.reply import Ready, Reply, ready
from fencepost.broker.ports import Broker
from fencepost.protocol.messages.api01_fetch import FetchRequest, FetchResponse
from fencepost.protocol.topics import IsolationLevel, TopicPartition

WAIT_MS_MAX = 600_000
"""The longest wait of a fetch, whatever the client asks for: the default of `connections.max.idle.ms`."""
LARGE_SESSION = 500
"""A session with more partitions than this is read in steps, as a large request is."""


def handle(node: Broker, request: FetchRequest, context: RequestContext) -> Reply:
    """Read at once. If that is too little, return a coroutine that waits up to `max_wait_ms` and reads again."""
    if request.isolation_level not in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED):
        raise CloseConnection(f"isolation level {request.isolation_level} does not exist")
    sessions = node.fetch_sessions
    try:
        session = sessions.continued(request, context.api_version, node.clock.now_ms())
    except SessionError as error:
        return FetchResponse(error_code=error.code)
    if session is not None:
        request.topics = session.topics()
        if session.size > LARGE_SESSION and context.large is None:
            context.large = LargeRequest(node.large_requests, None)
    reply = _read(node, request, context)
    if session is None and request.session_epoch != FULL_EPOCH:
        return reply

    def within(response: Ready) -> FetchResponse:
        """The response within its session, which a full fetch begins."""
        assert isinstance(response, FetchResponse)
        found = session or sessions.begun(request, context.api_version, node.clock.now_ms())
        return response if found is None else found.answer(request.session_epoch, response)

    if isinstance(reply, FetchResponse):
        return within(reply)
    assert isinstance(reply, Coroutine)
    return _within_later(within, reply)


async def _within_later(
    within: Callable[[Ready], FetchResponse], waiting: Coroutine[object, object, Ready]
) -> FetchResponse:
    return within(await waiting)


def _read(node: Broker, request: FetchRequest, context: RequestContext) -> Reply:
    if may_follow(node, request, context):
        closest = ClosestFetch(node, request, context)
        unread = closest.unread(request.topics)
        return (
            _look_first(closest, unread, node, request, context) if unread else _answer(closest, node, request, context)
        )
    return _answer(Fetch(node, request, context), node, request, context)


async def _look_first(
    fetch: ClosestFetch,
    unread: Collection[TopicPartition],
    node: Broker,
    request: FetchRequest,
    context: RequestContext,
) -> Ready:
    """Answer after this broker has opened logs of other brokers."""
    await fetch.followed.prepare(unread)
    return await ready(_answer(fetch, node, request, context))


def _answer(fetch: Fetch, node: Broker, request: FetchRequest, context: RequestContext) -> Reply:
    if context.large is not None:
        return _read_many(node, fetch, request, context.large)
    fetch.resolve(request.topics)
    response, settled = fetch.read()
    if settled or request.max_wait_ms <= 0 or not fetch.topics:
        return response
    return _read_later(node, fetch, min(request.max_wait_ms, WAIT_MS_MAX))


async def _read_many(node: Broker, fetch: Fetch, request: FetchRequest, large: LargeWork) -> Ready:
    """Read in steps. The response has a topic once for every `STEP_PARTITIONS` of its partitions."""
    await large.run(fetch.resolve_in_steps(request))
    response, settled = await fetch.read_in_steps(large)
    if settled or request.max_wait_ms <= 0 or not fetch.topics:
        return response
    return await _read_later(node, fetch, min(request.max_wait_ms, WAIT_MS_MAX), large)


async def _read_later(node: Broker, fetch: Fetch, max_wait_ms: int, large: LargeWork | None = None) -> Ready:
    purgatory, deadline = node.purgatory, trio.current_time() + max_wait_ms / 1000
    while True:
        left = deadline - trio.current_time()
        with purgatory.park(fetch.logs) as parked:
            await parked.wait_until(fetch.ready, max(0, math.ceil(left * 1000)))
        fetch.note_changes()
        response, settled = fetch.read() if large is None else await fetch.read_in_steps(large)
        if settled or not fetch.missing or left <= 0 or purgatory.closed:
            return response
