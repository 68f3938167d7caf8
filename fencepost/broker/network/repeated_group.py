"""The short way for JoinGroup, SyncGroup and Heartbeat: what a member says differs in little from what it said before.

A member names itself, its group and its timeouts with each request. New are the correlation id, the generation of a
Sync or a Heartbeat, and what a Join says for each of its protocols. So of a request that was answered the general way
the bytes around these are remembered, with the values that they stand for. Where a later frame has the same bytes in
the same places, decoding it would give the same values, and only what is new is read. The coordinator is asked each
time, and answers are put together as they are in the general way.
"""

import struct
from collections.abc import Callable, Coroutine
from copy import copy
from functools import lru_cache
from sys import intern
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from fencepost.broker.handlers import api11_join_group as join_group
from fencepost.broker.handlers import api14_sync_group as sync_group
from fencepost.broker.network.answers import Answer, answer_of
from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.later import Parked
from fencepost.coordinator.group.parking import Asked
from fencepost.coordinator.group.turn import Join, Sync
from fencepost.protocol.codec_words import Malformed, get_varint, put_varint
from fencepost.protocol.headers import read_request_header, write_response_header
from fencepost.protocol.messages.api11_join_group import JoinGroupRequestProtocol
from fencepost.protocol.messages.api12_heartbeat import HeartbeatResponse
from fencepost.protocol.registry import API_BY_KEY

if TYPE_CHECKING:
    from fencepost.broker.node import Node

JOIN, HEARTBEAT, SYNC = 11, 12, 14
FRAME_BYTES_MAX = 4096
"""Of what is remembered: nobody's name is as long as that, but a broker of many members must not be at their mercy."""
PROTOCOLS_MAX = 8

_KEY_AND_VERSION = slice(0, 4)
_CORRELATION_ID = slice(4, 8)
_AFTER_CORRELATION_ID = 8
_int32 = struct.Struct(">i")
_GENERATION = -0x35C6_1E4B
"""No generation: it marks the place of one in an encoded request."""
_MARK = b"\x91\xd2\x0e\xa5the subscription"
"""Stands for what a member says for a protocol, the protocol's number behind it."""

ReplyT = TypeVar("ReplyT")
Outcome: TypeAlias = ReplyT | Asked[ReplyT] | Coroutine[Any, Any, ReplyT]
Said: TypeAlias = bytes | Answer | Parked[Any] | Coroutine[Any, Any, Answer | bytes]
"""Bytes are an answer, its length in front, that waits for nothing."""


class RepeatedGroup:
    """What the member on one connection said last, one request of each kind."""

    __slots__ = ("_known", "_node", "_seen")

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._known: dict[bytes, _KnownJoin | _KnownSync | _KnownBeat] = {}
        self._seen: dict[int, str] = {}
        """Who sent the last request of each kind: one that comes but once is not worth remembering."""

    def answer(self, frame: memoryview) -> Said | None:
        """Ask the coordinator and return what comes of it; None, and nothing done, where the request is not known."""
        return None if len(frame) > FRAME_BYTES_MAX else self.answer_small(frame.tobytes())

    def answer_small(self, data: bytes) -> Said | None:
        """As `answer`, for a frame of at most `FRAME_BYTES_MAX` that is bytes already."""
        known = self._known.get(data[_KEY_AND_VERSION])
        return None if known is None else known.answer(self._node, data)

    def learn(self, frame: memoryview, request: Any, context: RequestContext) -> None:
        """Remember a request that was answered the general way, if such a one may come again."""
        key, member_id = context.api_key, request.member_id
        if not member_id or self._seen.get(key) != member_id:
            self._seen[key] = member_id
            self._known.pop(bytes(frame[_KEY_AND_VERSION]), None)
            return
        data = bytes(frame)
        if len(data) > FRAME_BYTES_MAX:
            return
        known = _LEARNERS[key](data, request, context)
        if known is not None:
            self._known[_shared(data[_KEY_AND_VERSION])] = known


@lru_cache(maxsize=64)
def _shared(key_and_version: bytes) -> bytes:
    """The same object for all connections: however many there are, it stays in the CPU's caches."""
    return key_and_version


class _Known(Generic[ReplyT]):
    """One request, by the bytes between its correlation id and the first thing that is new in it."""

    __slots__ = ("_encode", "_header_end", "_respond", "front", "key", "version")

    def __init__(
        self,
        context: RequestContext,
        front: bytes,
        respond: Callable[[int, ReplyT], Any],
        encode: Callable[[int, ReplyT], bytes | None],
    ) -> None:
        """`respond` makes a response of a version and a reply; `encode` its bytes, where they are known already."""
        self.key = context.api_key
        self.version = context.api_version
        self.front = front
        self._respond = respond
        self._encode = encode
        self._header_end = write_response_header(API_BY_KEY[self.key], self.version, 0)[_int32.size :]
        """What stands behind the correlation id in an answer's header."""

    def outcome(self, node: "Node", data: bytes, outcome: Outcome[ReplyT], began: float) -> Said:
        """What the connection is to do about what the coordinator said."""
        if type(outcome) is Asked:
            return Parked(outcome, self.key, began, self, data[_CORRELATION_ID])
        if isinstance(outcome, CoroutineType):
            return self._later(node, data[_CORRELATION_ID], outcome, began)
        node.metrics.count_request(self.key, node.clock.monotonic() - began)
        return self.answer_to(data[_CORRELATION_ID], outcome)  # type: ignore[arg-type]

    def answer_to(self, correlation_id: bytes, reply: ReplyT) -> Answer | bytes:
        """The answer; its bytes, where it waits for nothing and is small."""
        body = self._encode(self.version, reply)
        if body is None:
            (number,) = _int32.unpack(correlation_id)
            return answer_of(API_BY_KEY[self.key], self.version, number, self._respond(self.version, reply))
        rest = correlation_id + self._header_end + body
        return len(rest).to_bytes(4, "big") + rest

    async def _later(
        self, node: "Node", correlation_id: bytes, waiting: Coroutine[Any, Any, ReplyT], began: float
    ) -> Answer | bytes:
        try:
            return self.answer_to(correlation_id, await waiting)
        finally:
            node.metrics.count_request(self.key, node.clock.monotonic() - began)


class _KnownJoin(_Known[Any]):
    __slots__ = ("command", "flexible", "protocols")

    def __init__(
        self, context: RequestContext, front: bytes, command: Join, protocols: list[tuple[str, bytes]], flexible: bool
    ) -> None:
        super().__init__(context, front, join_group.response, join_group.encoded_response)
        self.command = command
        self.protocols = protocols
        """Each one's name, and the bytes behind what the member says for it."""
        self.flexible = flexible

    def answer(self, node: "Node", data: bytes) -> Said | None:
        if not data.startswith(self.front, _AFTER_CORRELATION_ID):
            return None
        protocols = self._protocols(data, _AFTER_CORRELATION_ID + len(self.front))
        if protocols is None:
            return None
        was = self.command
        command = Join(
            was.group_id,
            was.member_id,
            was.group_instance_id,
            was.client_id,
            was.client_host,
            was.session_timeout_ms,
            was.rebalance_timeout_ms,
            was.protocol_type,
            protocols,
            was.member_id_required,
            was.can_skip_assignment,
            was.reason,
        )
        began = node.clock.monotonic()
        return self.outcome(node, data, node.groups.ask_join(command), began)

    def _protocols(self, data: bytes, at: int) -> tuple[tuple[str, bytes], ...] | None:
        """What the frame says for each protocol; None where it is not the known request."""
        found = []
        try:
            for name, behind in self.protocols:
                if self.flexible:
                    size = data[at]
                    if size > 127:
                        size, at = get_varint(data, at)
                    else:
                        at += 1
                    size -= 1
                else:
                    (size,) = _int32.unpack_from(data, at)
                    at += _int32.size
                end = at + size
                if size < 0 or not data.startswith(behind, end):
                    return None
                found.append((name, data[at:end]))
                at = end + len(behind)
        except (IndexError, Malformed, struct.error):
            return None
        return tuple(found) if at == len(data) else None


class _WithGeneration(_Known[ReplyT]):
    """A request in which only the generation is new."""

    __slots__ = ("at", "back", "size")

    def __init__(
        self,
        context: RequestContext,
        front: bytes,
        back: bytes,
        respond: Callable[[int, ReplyT], Any],
        encode: Callable[[int, ReplyT], bytes | None],
    ) -> None:
        super().__init__(context, front, respond, encode)
        self.back = back
        self.at = _AFTER_CORRELATION_ID + len(front)
        """Where the generation stands."""
        self.size = self.at + _int32.size + len(back)

    def generation(self, data: bytes) -> int | None:
        """The frame's generation; None where it is not the known request."""
        at = self.at
        if len(data) != self.size:
            return None
        if not data.startswith(self.front, _AFTER_CORRELATION_ID) or not data.endswith(self.back):
            return None
        return int.from_bytes(data[at : at + 4], "big", signed=True)


class _KnownSync(_WithGeneration[Any]):
    __slots__ = ("command",)

    def __init__(self, context: RequestContext, front: bytes, back: bytes, command: Sync) -> None:
        super().__init__(context, front, back, sync_group.response, sync_group.encoded_response)
        self.command = command

    def answer(self, node: "Node", data: bytes) -> Said | None:
        generation = self.generation(data)
        if generation is None:
            return None
        was = self.command
        command = Sync(
            was.group_id, was.member_id, was.group_instance_id, generation, was.protocol_type, was.protocol, ()
        )
        began = node.clock.monotonic()
        return self.outcome(node, data, node.groups.ask_sync(command), began)


class _KnownBeat(_WithGeneration[Any]):
    __slots__ = ("group_id", "instance_id", "member_id")

    def __init__(self, context: RequestContext, front: bytes, back: bytes, request: Any) -> None:
        super().__init__(context, front, back, _beat_response, _beat_encoded)
        self.group_id = intern(request.group_id)
        self.member_id = intern(request.member_id)
        self.instance_id = request.group_instance_id

    def answer(self, node: "Node", data: bytes) -> Answer | bytes | None:
        generation = self.generation(data)
        if generation is None:
            return None
        began = node.clock.monotonic()
        error = node.groups.heartbeat(self.group_id, self.member_id, self.instance_id, generation)
        node.metrics.count_request(HEARTBEAT, node.clock.monotonic() - began)
        return self.answer_to(data[_CORRELATION_ID], error)


def _beat_response(_: int, error: int) -> Any:
    return HeartbeatResponse(error_code=error)


@lru_cache(maxsize=64)
def _beat_encoded(version: int, error: int) -> bytes:
    return HeartbeatResponse.encode(HeartbeatResponse(error_code=error), version)


def _learn_join(data: bytes, request: Any, context: RequestContext) -> _KnownJoin | None:
    protocols = request.protocols
    if not 0 < len(protocols) <= PROTOCOLS_MAX:
        return None
    marked = copy(request)
    marks = [_MARK + bytes((number,)) for number in range(len(protocols))]
    marked.protocols = [
        JoinGroupRequestProtocol(name=one.name, metadata=mark) for one, mark in zip(protocols, marks, strict=True)
    ]
    api = API_BY_KEY[JOIN]
    flexible = api.request.is_flexible(context.api_version)
    lead = put_varint(len(_MARK) + 2) if flexible else _int32.pack(len(_MARK) + 1)
    pieces, rest = [], api.request.encode(marked, context.api_version)
    for mark in marks:
        piece, found, rest = rest.partition(lead + mark)
        if not found:
            return None
        pieces.append(piece)
    front = _front(data, pieces[0])
    if front is None:
        return None
    behind = [*pieces[1:], rest]
    named = [(intern(one.name), after) for one, after in zip(protocols, behind, strict=True)]
    known = _KnownJoin(context, front, join_group.command(request, context), named, flexible)
    return known if known._protocols(data, _AFTER_CORRELATION_ID + len(front)) == known.command.protocols else None


def _learn_sync(data: bytes, request: Any, context: RequestContext) -> _KnownSync | None:
    around = None if request.assignments else _around_generation(data, request, context)
    return None if around is None else _KnownSync(context, *around, sync_group.command(request))


def _learn_beat(data: bytes, request: Any, context: RequestContext) -> _KnownBeat | None:
    around = _around_generation(data, request, context)
    return None if around is None else _KnownBeat(context, *around, request)


_LEARNERS: dict[int, Callable[[bytes, Any, RequestContext], _KnownJoin | _KnownSync | _KnownBeat | None]] = {
    JOIN: _learn_join,
    SYNC: _learn_sync,
    HEARTBEAT: _learn_beat,
}


def _around_generation(data: bytes, request: Any, context: RequestContext) -> tuple[bytes, bytes] | None:
    """The bytes in front of the generation and behind it; None where the frame is not just what was decoded."""
    marked = copy(request)
    marked.generation_id = _GENERATION
    encoded = API_BY_KEY[context.api_key].request.encode(marked, context.api_version)
    before, _, back = encoded.partition(_int32.pack(_GENERATION))
    front = _front(data, before)
    if front is None or data[_AFTER_CORRELATION_ID + len(front) :] != _int32.pack(request.generation_id) + back:
        return None
    return front, back


def _front(data: bytes, begins: bytes) -> bytes | None:
    """A frame's bytes from behind its correlation id to the end of `begins`, with which its body must begin."""
    start = read_request_header(data).body_start
    if not data.startswith(begins, start):
        return None
    return data[_AFTER_CORRELATION_ID : start + len(begins)]
