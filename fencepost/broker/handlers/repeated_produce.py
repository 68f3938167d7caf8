"""Produce requests that repeat an earlier one of their connection in all but the correlation id and the batch.

A producer sends the same request again and again: one topic, one partition, a new batch. So a connection keeps what its
first one said, by the bytes before the batch. A later frame that begins with these bytes needs no decoding, and its
response differs in three numbers. Nothing else is shorter: the request passes `Connection._handle` and its handler, its
topic is looked up, its transaction is verified and its batch is appended as for any other request.

The table pays for itself in the bench's rows of acknowledgements and transactions (docs/decisions/0049).
"""

import struct
from typing import TypeAlias

from fencepost.broker.handlers.produce_append import ATTRIBUTES_LOW_BYTE, TOPIC_ID_SINCE, TRANSACTIONAL, ZSTD_SINCE
from fencepost.broker.handlers.produce_reply import Write
from fencepost.broker.log.results import Ticket
from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.dispatch import Route
from fencepost.broker.network.reply import Encoded
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import is_allowed
from fencepost.coordinator.metadata.topic_names import INTERNAL_TOPICS
from fencepost.protocol.admin_enums import AclOperation, AclResourceType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.headers import read_request_header
from fencepost.protocol.messages.api00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from fencepost.protocol.topics import TopicPartition
from fencepost.protocol.varints import Malformed, get_varint, put_varint

KNOWN_MAX = 64
PREFIX_BYTES_MAX = 512
PREFIX_LENGTHS_MAX = 4
"""Each length is one more look into the table for every request that is not in it."""
REFUSED_MAX = 4096
"""A full table is emptied after this many requests that had no room in it."""
LENGTH_BYTES_MAX = 5

_OK, _WRITE, _TOPIC = ErrorCode.NONE, AclOperation.WRITE, AclResourceType.TOPIC
"""Globals: reading a member from its enum costs twenty times as much."""
_new = object.__new__
"""Makes a message without the defaults of its fields, as the decoders do: a fifth of the time."""
_PRODUCE_KEY = b"\0\0"
_KEY_AND_VERSION, _CORRELATION_ID, _PREFIX_START = slice(0, 4), slice(4, 8), 8
_LENGTH = struct.Struct(">i")
_NUMBERS = struct.Struct(">qqq")
_PLACEHOLDERS = (-0x0102030405060708, -0x1112131415161718, -0x2122232425262728)
"""Numbers that no response holds. Where they stand in an encoded response, a ticket's numbers belong."""
_NO_TAGS = b"\0\0\0"
"""What ends a flexible version after the batch: no tagged fields of the partition, the topic and the request."""

Writes: TypeAlias = list[Write]


class KnownRequest:
    """A request without its batch, and the encoded response to it without the numbers of its ticket."""

    __slots__ = (
        "_after",
        "_before",
        "_client",
        "_flexible",
        "_index",
        "_pack",
        "_request",
        "_route",
        "_topic",
        "key_and_version",
    )

    def __init__(self, route: Route, request: ProduceRequest, context: RequestContext) -> None:
        topic = request.topic_data[0]
        index = topic.partition_data[0].index
        offset, time_ms, start = _PLACEHOLDERS
        answer = PartitionProduceResponse(
            index=index, base_offset=offset, log_append_time_ms=time_ms, log_start_offset=start
        )
        topics = [TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[answer])]
        encoded = b"".join(route.encode(ProduceResponse(responses=topics)))
        self._before, self._after = encoded.split(_NUMBERS.pack(*_PLACEHOLDERS))
        self._pack = struct.Struct(f">{len(self._before)}sqqq{len(self._after)}s").pack
        self._route = route
        self._request = request.transactional_id, request.acks, request.timeout_ms
        self._topic = topic.name, topic.topic_id
        self._index = index
        self._client = context.client_id, context.session
        self._flexible = route.api.request.is_flexible(route.version)
        self.key_and_version = struct.pack(">hh", route.api.key, route.version)

    def with_batch(self, batch: bytes | memoryview) -> ProduceRequest:
        """The whole request. Each repetition has its own, as if it had been decoded."""
        part, topic, request = _new(PartitionProduceData), _new(TopicProduceData), _new(ProduceRequest)
        part.index, part.records, part.unknown_tags = self._index, batch, None
        topic.name, topic.topic_id = self._topic
        topic.partition_data, topic.unknown_tags = [part], None
        request.transactional_id, request.acks, request.timeout_ms = self._request
        request.topic_data, request.unknown_tags = [topic], None
        return request

    def prefix_in(self, frame: memoryview) -> bytes | None:
        """The bytes of `frame` up to the length of its batch; None if they are not the usual encoding of this request.

        A frame of the usual encoding has no other structure: no unknown tagged fields, and no bytes after the last one.
        """
        empty = self._route.api.request.encode(self.with_batch(b""), self._route.version)
        usual = empty[: -len(_rest_of(0, self._flexible))]
        body_start = read_request_header(frame).body_start
        end = body_start + len(usual)
        return bytes(frame[:end]) if frame[body_start:end] == usual else None

    def read(self, frame: memoryview, head: bytes, end: int) -> tuple[Route, ProduceRequest, RequestContext] | None:
        """Read a frame whose batch's length stands at `end`. None: the frame does not end with one batch."""
        if self._flexible:
            try:
                length, start = get_varint(head, end)
            except Malformed:
                return None
            stop = start + length - 1
            if frame[stop:] != _NO_TAGS:
                return None
        else:
            start = end + _LENGTH.size
            stop = start + _LENGTH.unpack_from(head, end)[0]
            if stop != len(frame):
                return None
        if stop - start <= ATTRIBUTES_LOW_BYTE:
            return None
        (correlation_id,) = _LENGTH.unpack(head[_CORRELATION_ID])
        route = self._route
        context = RequestContext(route.api.key, route.version, correlation_id, *self._client)
        context.repeated = self
        return route, self.with_batch(frame[start:stop]), context

    def resolve(
        self, node: Broker, request: ProduceRequest, context: RequestContext
    ) -> tuple[Writes, Writes, Writes] | None:
        """As the handler resolves any request. None: the topic or log is not here or denied; the handler says why."""
        name, topic_id = self._topic
        if self._route.version >= TOPIC_ID_SINCE:
            image = node.metadata.image.topics_by_id.get(topic_id)
            name = "" if image is None else image.name
        tp = tuple.__new__(TopicPartition, (name, self._index))
        log = node.partition(tp)
        batch = request.topic_data[0].partition_data[0].records
        if log is None or batch is None or name in INTERNAL_TOPICS:
            return None
        if node.authorizer is not None and not is_allowed(node, context, _WRITE, _TOPIC, name, log_denial=False):
            return None
        write = Write(tp, log, batch, _OK)
        write.template = self._encoded
        counters = write.counters = node.metrics.topics[name]
        counters.produce_requests += 1
        writes = [write]
        transactional = writes if batch[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL else []
        return writes, transactional, writes if len(batch) >= node.large_writes.from_bytes else []

    def _encoded(self, ticket: Ticket) -> Encoded:
        numbers = ticket.base_offset, ticket.log_append_time_ms, ticket.log_start_offset
        return Encoded([self._pack(self._before, *numbers, self._after)])


class RepeatedProduce:
    """The Produce requests that one connection has sent and may repeat: at most `KNOWN_MAX`, with short names."""

    __slots__ = ("_ends", "_known", "_refused", "_unusual")

    def __init__(self) -> None:
        self._known: dict[bytes, KnownRequest] = {}
        self._ends: list[int] = []
        """Positions in a frame where the length of a known request's batch may stand."""
        self._refused = 0
        """Requests that had no room in the table since it was emptied last."""
        self._unusual = False
        """The client encodes its requests in another way than others do; all of them are decoded."""

    def find(self, frame: memoryview) -> tuple[Route, ProduceRequest, RequestContext] | None:
        if frame[:2] != _PRODUCE_KEY:
            return None
        for end in self._ends:
            head = bytes(frame[: end + LENGTH_BYTES_MAX])
            known = self._known.get(head[_PREFIX_START:end])
            if known is not None and known.key_and_version == head[_KEY_AND_VERSION]:
                return known.read(frame, head, end) if len(head) == end + LENGTH_BYTES_MAX else None
        return None

    def learn(self, frame: memoryview, route: Route, request: ProduceRequest, context: RequestContext) -> None:
        """Keep a decoded request, if it has one batch and the usual encoding, and if there is room."""
        if route.version < ZSTD_SINCE or len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
            return
        batch = request.topic_data[0].partition_data[0].records
        if not batch or self._unusual:
            return
        flexible = route.api.request.is_flexible(route.version)
        end = len(frame) - len(batch) - len(_rest_of(len(batch), flexible))
        if end > PREFIX_BYTES_MAX or not self._has_room(end):
            return
        known = KnownRequest(route, request, context)
        prefix = known.prefix_in(frame)
        if prefix is None or len(prefix) != end:
            self._unusual = True
            return
        if end not in self._ends:
            self._ends.append(end)
        self._known[prefix[_PREFIX_START:]] = known

    def _has_room(self, end: int) -> bool:
        """Whether to keep one more. If a connection turns to other partitions, the table is emptied after a while."""
        if len(self._known) < KNOWN_MAX and (end in self._ends or len(self._ends) < PREFIX_LENGTHS_MAX):
            return True
        self._refused += 1
        if self._refused >= REFUSED_MAX:
            self._known.clear()
            self._ends.clear()
            self._refused = 0
        return False


def _rest_of(batch_bytes: int, flexible: bool) -> bytes:
    """What surrounds a batch of this size: its length before it, and the end of the request."""
    return put_varint(batch_bytes + 1) + _NO_TAGS if flexible else _LENGTH.pack(batch_bytes)
