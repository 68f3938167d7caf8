"""Produce requests that repeat an earlier one of their connection in all but the correlation id and the batch.

A producer sends the same request again and again: one topic, one partition, a new batch. So the connection keeps the
first one decoded, by its bytes before the batch. A later frame that begins with these bytes needs no header, no
decoding and no look-up of its topic; its response differs in three numbers. Nothing else is shorter: the request passes
`Connection._handle`, its transaction is verified and its batch is appended as for any other request.

The table pays for itself in the bench's rows of acknowledgements and transactions (docs/decisions/0049).
"""

import struct

from fencepost.broker.handlers.produce_append import (
    ATTRIBUTES_LOW_BYTE,
    TOPIC_ID_SINCE,
    TRANSACTIONAL,
    ZSTD_SINCE,
    ProduceBroker,
    write_all,
)
from fencepost.broker.handlers.produce_reply import Write
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.results import Ticket
from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.dispatch import Route
from fencepost.broker.network.reply import Encoded, Reply
from fencepost.coordinator.metadata.topic_names import INTERNAL_TOPICS
from fencepost.protocol.errors import ErrorCode
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

KNOWN_MAX = 256
PREFIX_BYTES_MAX = 1024
PREFIX_LENGTHS_MAX = 4
LENGTH_BYTES_MAX = 5

_OK = ErrorCode.NONE  # a global: reading a member from its enum costs twenty times as much
_PRODUCE_KEY = b"\0\0"
_KEY_AND_VERSION, _CORRELATION_ID, _PREFIX_START = slice(0, 4), slice(4, 8), 8
_LENGTH = struct.Struct(">i")
_NUMBERS = struct.Struct(">qqq")
_PLACEHOLDERS = (-0x0102030405060708, -0x1112131415161718, -0x2122232425262728)
"""Numbers that no response holds. Where they stand in an encoded response, a ticket's numbers belong."""
_NO_TAGS = b"\0\0\0"
"""What ends a flexible version after the batch: no tagged fields of the partition, the topic and the request."""


class _KnownRequest:
    """A decoded request and the encoded response to it. Only the batch and the numbers of the ticket are missing."""

    __slots__ = (
        "_after",
        "_before",
        "_context",
        "_pack",
        "_part",
        "flexible",
        "key_and_version",
        "log",
        "request",
        "route",
    )

    def __init__(self, route: Route, request: ProduceRequest, context: RequestContext, log: PartitionLog) -> None:
        topic = request.topic_data[0]
        index = topic.partition_data[0].index
        self._part = PartitionProduceData(index=index)
        self.request = ProduceRequest(
            transactional_id=request.transactional_id,
            acks=request.acks,
            timeout_ms=request.timeout_ms,
            topic_data=[TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=[self._part])],
        )
        offset, time_ms, start = _PLACEHOLDERS
        answer = PartitionProduceResponse(
            index=index, base_offset=offset, log_append_time_ms=time_ms, log_start_offset=start
        )
        topics = [TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[answer])]
        encoded = b"".join(route.encode(ProduceResponse(responses=topics)))
        self._before, self._after = encoded.split(_NUMBERS.pack(*_PLACEHOLDERS))
        self._pack = struct.Struct(f">{len(self._before)}sqqq{len(self._after)}s").pack
        self._context = context
        self.flexible = route.api.request.is_flexible(route.version)
        self.key_and_version = struct.pack(">hh", context.api_key, context.api_version)
        self.log = log
        self.route = route._replace(handle=self._handle)

    def put_batch(self, frame: memoryview, head: bytes, end: int) -> bool:
        """Put the frame's batch into `request`. False: the frame does not end with a batch and no tagged fields."""
        if self.flexible:
            try:
                length, start = get_varint(head, end)
            except Malformed:
                return False
            stop = start + length - 1
            if frame[stop:] != _NO_TAGS:
                return False
        else:
            start = end + _LENGTH.size
            stop = start + _LENGTH.unpack_from(head, end)[0]
            if stop != len(frame):
                return False
        if stop - start <= ATTRIBUTES_LOW_BYTE:
            return False
        self._part.records = frame[start:stop]
        return True

    def context(self, correlation_id: int) -> RequestContext:
        """The context of a repetition: the same connection and, but for the correlation id, the same header."""
        known = self._context
        return RequestContext(
            known.api_key, known.api_version, correlation_id, known.client_id, known.client_host, known.listener
        )

    def _handle(self, node: ProduceBroker, request: ProduceRequest, context: RequestContext) -> Reply:
        log, batch = self.log, self._part.records
        assert batch is not None
        self._part.records = None  # else the table would keep the connection's input buffer
        write = Write(log.tp, log, batch, _OK)
        write.template = self._encoded
        counters = write.counters = node.metrics.topics[log.tp.topic]
        counters.produce_requests += 1
        writes = [write]
        transactional = writes if batch[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL else []
        large = writes if len(batch) >= node.large_writes.from_bytes else []
        return write_all(node, request, context, writes, transactional, large)

    def _encoded(self, ticket: Ticket) -> Encoded:
        """The response to a batch that was appended."""
        numbers = ticket.base_offset, ticket.log_append_time_ms, ticket.log_start_offset
        return Encoded([self._pack(self._before, *numbers, self._after)])


class RepeatedProduce:
    """The Produce requests that one connection has sent and may repeat: at most `KNOWN_MAX`, with short names."""

    __slots__ = ("_ends", "_known", "_node")

    def __init__(self, node: ProduceBroker) -> None:
        self._node = node
        self._known: dict[bytes, _KnownRequest] = {}
        self._ends: list[int] = []
        """Positions in a frame where the length of a known request's batch may stand, the latest first."""

    def find(self, frame: memoryview) -> tuple[Route, ProduceRequest, RequestContext] | None:
        """Read a frame that repeats a known request. None: the frame has to be decoded."""
        if frame[:2] != _PRODUCE_KEY:
            return None
        for end in self._ends:
            head = bytes(frame[: end + LENGTH_BYTES_MAX])
            prefix = head[_PREFIX_START:end]
            known = self._known.get(prefix)
            if known is not None and known.key_and_version == head[_KEY_AND_VERSION]:
                if self._node.partition(known.log.tp) is not known.log:
                    del self._known[prefix]  # the topic was deleted, or the log was opened again
                    return None
                if len(head) < end + LENGTH_BYTES_MAX or not known.put_batch(frame, head, end):
                    return None
                (correlation_id,) = _LENGTH.unpack(head[_CORRELATION_ID])
                return known.route, known.request, known.context(correlation_id)
        return None

    def learn(self, frame: memoryview, route: Route, request: ProduceRequest, context: RequestContext) -> None:
        """Keep a decoded request if its frame ends with its one batch, for a partition that this broker leads."""
        if route.version < ZSTD_SINCE or len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
            return
        part = request.topic_data[0].partition_data[0]
        length = len(part.records) if part.records is not None else 0
        flexible = route.api.request.is_flexible(route.version)
        lead, tail = (put_varint(length + 1), _NO_TAGS) if flexible else (_LENGTH.pack(length), b"")
        start = len(frame) - len(tail) - length
        end = start - len(lead)
        if not length or end > PREFIX_BYTES_MAX or frame[end:start] != lead or frame[start + length :] != tail:
            return
        log = self._log_of(request.topic_data[0], part.index, route.version)
        if log is None:
            return
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
            self._ends.clear()
        self._known[bytes(frame[_PREFIX_START:end])] = _KnownRequest(route, request, context, log)
        if end not in self._ends:
            self._ends.insert(0, end)
            del self._ends[PREFIX_LENGTHS_MAX:]

    def _log_of(self, topic: TopicProduceData, index: int, version: int) -> PartitionLog | None:
        name = topic.name
        if version >= TOPIC_ID_SINCE:
            image = self._node.metadata.image.topics_by_id.get(topic.topic_id)
            name = "" if image is None else image.name
        return None if name in INTERNAL_TOPICS else self._node.partition(TopicPartition(name, index))
