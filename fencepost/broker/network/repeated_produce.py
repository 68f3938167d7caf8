"""The short way for Produce: requests that differ from an earlier one of their connection in nothing but the batch.

A producer says the same thing again and again: its name, acks=all, one topic, one partition; only the correlation id
and the batch are new. So the first such request goes the general way (`handlers/api00_produce.py`), and what led to its
batch is remembered by its very bytes. Where a later frame begins with the same bytes, decoding it would give the same
values, and the answer would be the same but for three numbers: both are taken from memory, and only the log is asked.
Half of what an acknowledgement costs is saved so.

A transactional batch may go this way where nobody has to be asked about it first: its transaction is open in the log,
or the coordinator has the partition in it, durably. Whatever is not exactly that (a batch whose partition has yet to
join, unknown tags, two partitions) goes the general way. What the log refuses is answered by the general way's own
words.
"""

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.broker.handlers.api00_produce import (
    ACKS_ALL,
    ATTRIBUTES_LOW_BYTE,
    TOPIC_ID_SINCE,
    TRANSACTIONAL,
    ZSTD_SINCE,
    Write,
    note_outcome,
    revise,
    transaction_version,
)
from fencepost.broker.log.partition import AppendOrigin, PartitionLog
from fencepost.broker.log.results import Ticket
from fencepost.broker.network.answers import Answer, framed
from fencepost.broker.network.context import RequestContext
from fencepost.broker.transactions.refused_writes import explain_refused
from fencepost.coordinator.metadata.topic_names import is_internal
from fencepost.protocol.batch_header import HEADER_SIZE
from fencepost.protocol.codec_words import Malformed, get_varint, put_varint
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api00_produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.topics import TopicPartition

if TYPE_CHECKING:
    from fencepost.broker.metrics.counters import TopicCounters
    from fencepost.broker.node import Node

PRODUCE = API_BY_KEY[0]
SINCE = ZSTD_SINCE
"""From this version on nothing in the request depends on the batch's codec."""
KNOWN_MAX = 256
PREFIX_LENGTHS_MAX = 4
LONGEST_VARINT = 5

_OK = ErrorCode.NONE
_CLIENT = AppendOrigin.CLIENT
_LENGTH = struct.Struct(">i")
_NUMBERS = struct.Struct(">qqq")
_PRODUCER = struct.Struct(">qh")
_PRODUCER_AT = 43
"""Where a batch's header holds its producer's id and epoch."""
_MARKS = (-0x0102030405060708, -0x1112131415161718, -0x2122232425262728)
"""Numbers no answer holds, nor any topic's name: where they stand in an encoded answer, the real ones belong."""
_KEY_AND_VERSION = slice(0, 4)
_CORRELATION_ID = slice(4, 8)
_AFTER_CORRELATION_ID = 8


class _Known(NamedTuple):
    """What stands in front of a batch, decoded, and the answer around its three numbers."""

    key_and_version: bytes
    flexible: bool
    tail: bytes
    log: PartitionLog
    counters: "TopicCounters"
    topic_id: bytes
    transactional_id: str | None
    transaction_version: int
    caller: RequestContext
    pack: Any = None
    """(size, correlation id, before, three numbers, after) -> the whole answer."""
    size: bytes = b""
    before: bytes = b""
    after: bytes = b""

    def write(self, batch: Any) -> Write:
        """A write in the general way's form."""
        write = Write(self.log.tp, self.log, batch, _OK)
        write.counters = self.counters
        return write


class RepeatedProduce:
    """One connection's memory of its produce requests; bounded by `KNOWN_MAX`."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._known: dict[bytes, _Known] = {}
        self._prefix_ends: list[int] = []

    def answer(self, frame: memoryview) -> Answer | None:
        """Append the frame's batch and return the answer; None, and nothing done, where this is not the way."""
        for end in self._prefix_ends:
            head = bytes(frame[: end + LONGEST_VARINT])
            known = self._known.get(head[_AFTER_CORRELATION_ID:end])
            if known is not None:
                return self._append(known, frame, head, end)
        return None

    def learn(self, frame: memoryview, request: Any, context: RequestContext) -> None:
        """Remember a request that was answered the general way, if others may be like it."""
        version = context.api_version
        part = _only_partition(request) if version >= SINCE else None
        if part is None:
            return
        records_bytes = len(part.records)
        flexible = PRODUCE.request.is_flexible(version)
        lead = put_varint(records_bytes + 1) if flexible else _LENGTH.pack(records_bytes)
        tail = b"\0\0\0" if flexible else b""  # no tags behind the partition, the topic and the request
        start = len(frame) - len(tail) - records_bytes
        end = start - len(lead)
        if frame[end:start] != lead or frame[len(frame) - len(tail) :] != tail:
            return
        prefix = bytes(frame[_AFTER_CORRELATION_ID:end])
        if prefix not in self._known:
            known = self._make(bytes(frame[_KEY_AND_VERSION]), flexible, tail, request, context)
            if known is not None:
                self._keep(prefix, end, known)

    def _make(
        self, key_and_version: bytes, flexible: bool, tail: bytes, request: Any, context: RequestContext
    ) -> _Known | None:
        version = context.api_version
        topic = request.topic_data[0]
        index = topic.partition_data[0].index
        node, name = self._node, topic.name
        if version >= TOPIC_ID_SINCE:
            image = node.metadata.image.topics_by_id.get(topic.topic_id)
            name = "" if image is None else image.name
        log = node.partition(TopicPartition(name, index))
        if log is None or is_internal(name):
            return None
        answer = PartitionProduceResponse(
            index=index, base_offset=_MARKS[0], log_append_time_ms=_MARKS[1], log_start_offset=_MARKS[2]
        )
        known = _Known(
            key_and_version,
            flexible,
            tail,
            log,
            node.metrics.topic(name),
            topic.topic_id,
            request.transactional_id,
            transaction_version(version),
            context,
        )
        body = b"".join(_framed(known, bytes(4), answer)[0])
        before, after = body[2 * _LENGTH.size :].split(_NUMBERS.pack(*_MARKS))
        pack = struct.Struct(f">4s4s{len(before)}sqqq{len(after)}s").pack
        return known._replace(size=body[: _LENGTH.size], before=before, after=after, pack=pack)

    def _keep(self, prefix: bytes, end: int, known: _Known) -> None:
        if len(self._known) >= KNOWN_MAX:
            self._forget()
        self._known[prefix] = known
        if end not in self._prefix_ends:
            self._prefix_ends.insert(0, end)
            del self._prefix_ends[PREFIX_LENGTHS_MAX:]

    def _forget(self) -> None:
        self._known.clear()
        self._prefix_ends.clear()

    def _append(self, known: _Known, frame: memoryview, head: bytes, end: int) -> Answer | None:
        """`head` is the beginning of `frame`, up to where the batch's length stands at `end` and beyond that."""
        size = len(frame)
        if size < end + LONGEST_VARINT or head[_KEY_AND_VERSION] != known.key_and_version:
            return None
        if known.flexible:
            length, start = head[end], end + 1
            if length > 127:
                try:
                    length, start = get_varint(head, end)
                except Malformed:
                    return None
            length -= 1
        else:
            (length,) = _LENGTH.unpack_from(head, end)
            start = end + _LENGTH.size
        stop = start + length
        if stop + len(known.tail) != size or frame[stop:] != known.tail or length <= ATTRIBUTES_LOW_BYTE:
            return None
        large = self._node.large_writes
        if length >= large.from_bytes and large.wants(known.log):
            return None
        if known.log.disowned:
            self._forget()
            return None
        batch = frame[start:stop]
        if batch[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL and not self._is_settled(known, batch):
            return None
        return self._answered(known, head[_CORRELATION_ID], batch)

    def _is_settled(self, known: _Known, batch: memoryview) -> bool:
        """Whether nobody has to be asked about a batch's transaction (rows T15, T16).

        No other task runs until it is appended, so it needs no guard.
        """
        name, log = known.transactional_id, known.log
        if name is None or len(batch) < HEADER_SIZE:
            return False
        producer_id, producer_epoch = _PRODUCER.unpack_from(batch, _PRODUCER_AT)
        return log.producers.has_open(producer_id, producer_epoch) or self._node.transactions.is_ongoing_with(
            name, producer_id, producer_epoch, (log.tp,)
        )

    def _answered(self, known: _Known, correlation_id: bytes, batch: memoryview) -> Answer:
        node, log, counters = self._node, known.log, known.counters
        clock = node.clock
        began = clock.monotonic()
        info = log.append(batch, _CLIENT, clock.now_ms(), transaction_version=known.transaction_version)
        counters.produce_requests += 1
        if info.error is not _OK:
            write = known.write(batch)
            note_outcome(node, write, info, {})
            explain_refused(node, known.transactional_id, write, known.caller)
            answer = Answer(*_framed(known, correlation_id, write.answer))
        else:
            if not info.duplicate:
                counters.messages_in += info.end_offset - info.base_offset
                counters.bytes_in += len(batch)
            data = known.pack(
                known.size,
                correlation_id,
                known.before,
                info.base_offset,
                info.log_append_time_ms,
                info.log_start_offset,
                known.after,
            )
            answer = _Appended(self._node, known, data, info)
        node.metrics.count_request(PRODUCE.key, clock.monotonic() - began)
        return answer


class _Appended(Answer):
    """The answer to a batch that the log took."""

    __slots__ = ("_known", "_node")

    def __init__(self, node: "Node", known: _Known, data: bytes, ticket: Ticket) -> None:
        self.parts = [data]
        self.size_bytes = len(data)
        self.tickets = (ticket,)
        self._node = node
        self._known = known

    def revise(self) -> None:
        write = self._known.write(b"")
        (write.ticket,) = self.tickets
        revise(self._node, write)
        correlation_id = self.parts[0][_LENGTH.size : 2 * _LENGTH.size]
        self.parts, self.size_bytes = _framed(self._known, correlation_id, write.answer)


def _only_partition(request: Any) -> Any:
    """The one partition that the request writes to; None where there are several, or anything out of the ordinary."""
    if request.acks != ACKS_ALL or len(request.topic_data) != 1:
        return None
    topic = request.topic_data[0]
    if len(topic.partition_data) != 1 or topic.unknown_tags or request.unknown_tags:
        return None
    part = topic.partition_data[0]
    return None if part.unknown_tags or not part.records else part


def _framed(known: _Known, correlation_id: bytes, answer: Any) -> tuple[list[Any], int]:
    """A whole answer in the general way."""
    topic = TopicProduceResponse(name=known.log.tp.topic, topic_id=known.topic_id, partition_responses=[answer])
    version = int.from_bytes(known.key_and_version[2:], "big")
    return framed(PRODUCE, version, _LENGTH.unpack(correlation_id)[0], ProduceResponse(responses=[topic]))
