"""The short way for AddPartitionsToTxn and EndTxn of the first transaction protocol, known by their bytes.

A producer of that protocol keeps its epoch, so each of its transactions begins and ends with the same bytes as the one
before, but for the correlation id. (The second protocol bumps the epoch; there no two are the same.) So what was
answered the general way is remembered: what to ask the coordinator, and the bytes of the answer where all is well. The
coordinator is asked each time. What it refuses, or has to wait for, is answered by the general way's own words.
"""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.broker.handlers import api24_add_partitions_to_txn as add_partitions
from fencepost.broker.handlers import api26_end_txn as end_txn
from fencepost.broker.network.answers import Answer, answer_of, framed
from fencepost.broker.network.context import RequestContext
from fencepost.coordinator.txn.commands import Answer as Outcome
from fencepost.coordinator.txn.pipeline import Waiting
from fencepost.coordinator.txn.wire_codes import by_partition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api26_end_txn import EndTxnResponse
from fencepost.protocol.registry import API_BY_KEY, Api

if TYPE_CHECKING:
    from fencepost.broker.node import Node

KNOWN_MAX = 64
FRAME_BYTES_MAX = 2048

_OK = ErrorCode.NONE
_KEY_AND_VERSION = slice(0, 4)
_CORRELATION_ID = slice(4, 8)
_AFTER_CORRELATION_ID = 8


class _Known(NamedTuple):
    """One request, and what comes of it."""

    key_and_version: bytes
    api: Api
    context: RequestContext
    image: Any
    """The cluster's metadata when it was answered: by another image its partitions may be gone."""
    ask: Callable[[], Outcome | Waiting]
    response: Callable[[Outcome], Any]
    size: bytes
    rest: bytes
    """The answer in front of the correlation id and behind it, where all is well."""


class RepeatedTxn:
    """One connection's memory of such requests; bounded by `KNOWN_MAX` of `FRAME_BYTES_MAX`."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._known: dict[bytes, _Known] = {}

    def answer(self, frame: memoryview) -> Answer | Coroutine[Any, Any, Answer] | None:
        """Ask the coordinator and return the answer; None, and nothing done, where the request is not known."""
        if len(frame) > FRAME_BYTES_MAX:
            return None
        known = self._known.get(bytes(frame[_AFTER_CORRELATION_ID:]))
        node = self._node
        if known is None or known.key_and_version != frame[_KEY_AND_VERSION] or known.image is not node.metadata.image:
            return None
        clock = node.clock
        began = clock.monotonic()
        outcome = known.ask()
        correlation_id = bytes(frame[_CORRELATION_ID])
        if not isinstance(outcome, Outcome):
            return self._answer_later(known, outcome, correlation_id, began)
        node.metrics.count_request(known.api.key, clock.monotonic() - began)
        return _answer(known, outcome, correlation_id)

    async def _answer_later(self, known: _Known, waiting: Waiting, correlation_id: bytes, began: float) -> Answer:
        node = self._node
        try:
            return _answer(known, await waiting, correlation_id)
        finally:
            node.metrics.count_request(known.api.key, node.clock.monotonic() - began)

    def learn(self, frame: memoryview, request: Any, context: RequestContext) -> None:
        """Remember a request that was answered the general way, if it may come again."""
        if len(frame) > FRAME_BYTES_MAX:
            return
        found = _shape(self._node, request, context)
        if found is None:
            return
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        api, version = API_BY_KEY[context.api_key], context.api_version
        ask, response, success = found
        data = b"".join(framed(api, version, 0, success)[0])
        self._known[bytes(frame[_AFTER_CORRELATION_ID:])] = _Known(
            bytes(frame[_KEY_AND_VERSION]),
            api,
            context,
            self._node.metadata.image,
            ask,
            response,
            data[:4],
            data[8:],
        )


def _answer(known: _Known, outcome: Outcome, correlation_id: bytes) -> Answer:
    if outcome.error is _OK:
        data = known.size + correlation_id + known.rest
        return Answer([data], len(data))
    number = int.from_bytes(correlation_id, "big", signed=True)
    return answer_of(known.api, known.context.api_version, number, known.response(outcome))


_Shape = tuple[Callable[[], Outcome | Waiting], Callable[[Outcome], Any], Any]


def _shape(node: "Node", request: Any, context: RequestContext) -> _Shape | None:
    """What to ask, the response to what is refused, and the one where all is well; None where no two are the same."""
    if context.api_key == end_txn.KEY and context.api_version < end_txn.EPOCH_BUMP_SINCE:
        return (
            partial(end_txn.ask, node, request, context),
            partial(end_txn.response, context=context),
            EndTxnResponse(),
        )
    if context.api_key == add_partitions.KEY and context.api_version < add_partitions.BATCHED_SINCE:
        wanted = add_partitions.wanted(request)
        if not node.transactions.unknown(wanted):
            return (
                partial(add_partitions.ask, node, request, wanted, context),
                lambda outcome: add_partitions.response(request, by_partition(wanted, outcome), context),
                add_partitions.joined(request),
            )
    return None
