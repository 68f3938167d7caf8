"""Handles a request of many elements in parts of a few hundred, so that other clients are served in between.

Only for APIs whose elements are independent of each other: each part is a request of its own to the handler, and the
response is the responses of all parts, joined. Kafka answers such a request in one of several threads.
"""

import copy
from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple

from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.dispatch import Route
from fencepost.broker.network.reply import READY, Durable, Encoded, Ready, Reply
from fencepost.coordinator.deferred import Deferred
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import ResponseValue

PART_ELEMENTS = 200
"""Elements of one part: a few milliseconds of the slowest handler."""


class Nesting(NamedTuple):
    """The arrays to split and to join, outermost first."""

    since: int
    """The first version with these fields."""
    request: tuple[str, ...]
    response: tuple[str, ...]


_TOPICS = ("topics", "partitions")
_SHARE_STATES = Nesting(0, _TOPICS, ("results", "partitions"))
SPLIT: dict[int, list[Nesting]] = {
    ApiKey.PRODUCE: [Nesting(0, ("topic_data", "partition_data"), ("responses", "partition_responses"))],
    ApiKey.LIST_OFFSETS: [Nesting(0, _TOPICS, _TOPICS)],
    ApiKey.METADATA: [Nesting(0, ("topics",), ("topics",))],
    ApiKey.OFFSET_COMMIT: [Nesting(0, _TOPICS, _TOPICS)],
    ApiKey.OFFSET_FETCH: [
        Nesting(8, ("groups", "topics", "partition_indexes"), ("groups", "topics", "partitions")),
        Nesting(0, ("topics", "partition_indexes"), _TOPICS),
    ],
    ApiKey.FIND_COORDINATOR: [Nesting(4, ("coordinator_keys",), ("coordinators",))],
    ApiKey.DESCRIBE_GROUPS: [Nesting(0, ("groups",), ("groups",))],
    ApiKey.DELETE_RECORDS: [Nesting(0, _TOPICS, _TOPICS)],
    ApiKey.OFFSET_FOR_LEADER_EPOCH: [Nesting(0, _TOPICS, _TOPICS)],
    ApiKey.ADD_PARTITIONS_TO_TXN: [Nesting(4, ("transactions",), ("results_by_transaction",))],
    ApiKey.WRITE_TXN_MARKERS: [Nesting(0, ("markers",), ("markers",))],
    ApiKey.TXN_OFFSET_COMMIT: [Nesting(0, _TOPICS, _TOPICS)],
    ApiKey.DESCRIBE_CONFIGS: [Nesting(0, ("resources",), ("results",))],
    ApiKey.DELETE_GROUPS: [Nesting(0, ("groups_names",), ("results",))],
    ApiKey.DESCRIBE_PRODUCERS: [Nesting(0, ("topics", "partition_indexes"), _TOPICS)],
    ApiKey.DESCRIBE_TRANSACTIONS: [Nesting(0, ("transactional_ids",), ("transaction_states",))],
    ApiKey.CONSUMER_GROUP_DESCRIBE: [Nesting(0, ("group_ids",), ("groups",))],
    ApiKey.SHARE_GROUP_DESCRIBE: [Nesting(0, ("group_ids",), ("groups",))],
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: [_SHARE_STATES],
    ApiKey.READ_SHARE_GROUP_STATE: [_SHARE_STATES],
    ApiKey.WRITE_SHARE_GROUP_STATE: [_SHARE_STATES],
    ApiKey.DELETE_SHARE_GROUP_STATE: [_SHARE_STATES],
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: [_SHARE_STATES],
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: [Nesting(0, ("groups",), ("groups",))],
}


class Part(NamedTuple):
    """A piece of a request, or of one of its structs."""

    elements: int
    """Elements of the innermost array."""
    value: Any
    continued: int
    """How many of its outer arrays begin with an element that the part before began."""


def nesting_of(route: Route) -> Nesting | None:
    return next((nesting for nesting in SPLIT.get(route.api.key, ()) if route.version >= nesting.since), None)


def split(value: Any, fields: Sequence[str], size: int) -> Iterator[Part]:
    """Split `value` by its arrays `fields` into parts of `size` to twice as many elements, lazily."""
    name, inner = fields[0], fields[1:]
    elements = getattr(value, name)
    if not elements:
        yield Part(1, value, 0)
        return
    collected: list[Any] = []
    total = continued = 0
    for element in elements:
        for number, part in enumerate(split(element, inner, size) if inner else (Part(1, element, 0),)):
            if not collected:
                continued = 1 + part.continued if number else 0
            collected.append(part.value)
            total += part.elements
            if total >= size:
                yield Part(total, _with(value, name, collected), continued)
                collected, total = [], 0
    if collected:
        yield Part(total, _with(value, name, collected), continued)


def join(into: Any, more: Any, fields: Sequence[str], continued: int) -> None:
    """Append the arrays of a response to those of the parts before it."""
    before, after = getattr(into, fields[0]), getattr(more, fields[0])
    if continued and before and after:
        if len(fields) > 1:
            join(before[-1], after[0], fields[1:], continued - 1)
        after = after[1:]
    before += after


def _with(value: Any, name: str, elements: list[Any]) -> Any:
    changed = copy.copy(value)
    setattr(changed, name, elements)
    return changed


class _DurableParts(Durable):
    """The responses of all parts, which wait for the tickets of all."""

    def __init__(self, parts: list[tuple[Ready, int]], fields: Sequence[str]) -> None:
        self._parts = parts
        self._fields = fields
        self.tickets = [ticket for reply, _ in parts if isinstance(reply, Durable) for ticket in reply.tickets]
        self.response = self._joined()

    def revise(self) -> None:
        for reply, _ in self._parts:
            if isinstance(reply, Durable):
                reply.revise()
        self.response = self._joined()

    def _joined(self) -> ResponseValue:
        found = [(reply.response if isinstance(reply, Durable) else reply, n) for reply, n in self._parts]
        return joined(found, self._fields)


def joined(replies: Sequence[tuple[Ready | Encoded, int]], fields: Sequence[str]) -> ResponseValue:
    """The response of all parts. It takes its other fields from the first one."""
    whole = replies[0][0]
    assert isinstance(whole, ResponseValue)
    for reply, continued in replies[1:]:
        join(whole, reply, fields, continued)
    return whole


async def handle_in_parts(route: Route, node: Any, request: Any, context: RequestContext) -> Ready:
    """Handle a request of many elements, in parts if its API allows it."""
    nesting = nesting_of(route)
    if nesting is None:
        return await _ready(route.handle(node, request, context))
    assert context.large is not None
    replies: list[tuple[Ready, int]] = []
    for part in split(request, nesting.request, PART_ELEMENTS):
        reply = await context.large.run(_handled(route, node, part.value, context))
        replies.append((await _ready(reply), part.continued))
    if any(isinstance(reply, Durable) for reply, _ in replies):
        return _DurableParts(replies, nesting.response)
    return None if replies[0][0] is None else joined(replies, nesting.response)


def _handled(route: Route, node: Any, request: Any, context: RequestContext) -> Generator[None, None, Reply]:
    yield
    return route.handle(node, request, context)


async def _ready(reply: Reply) -> Ready:
    if isinstance(reply, Deferred):
        return await reply.wait()
    return reply if isinstance(reply, READY) else await reply
