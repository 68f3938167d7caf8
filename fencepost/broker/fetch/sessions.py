"""Fetch sessions (KIP-227): a consumer of many partitions names those that changed, and gets those that changed.

full request (epoch 0) --the response has a session id--> incremental ones (epoch 1, 2, ...) --epoch -1 or 0--> ended
                                                          '--another session needs the room--> ended

The rules are those of Kafka's `FetchManager`, `FetchSessionCache` and `CachedPartition`. A client continues a
session by its id alone, so each request checks the rights anew.
"""

from collections.abc import Callable

from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.protocol.messages.api01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

NO_SESSION = 0
FULL_EPOCH = 0
FINAL_EPOCH = -1
TOPIC_ID_SINCE = 13
EVICTION_MS = 120_000
"""A session that was not used for this time gives way to a new one, and one that is older to a larger one."""
PARTITIONS_PER_SLOT = 200
"""Kafka bounds the sessions only. Here their partitions are bounded, too: this many for each session of the setting."""
_LAST_EPOCH = 2**31 - 1
Key = tuple[str | bytes, int]
"""A topic's id, or its name in versions that have no ids; and a partition's number."""


class SessionError(Exception):
    """A request that no session can serve; the client begins a new one."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class _Held:
    """What a session remembers of a partition: the request for it, and the offsets that the client knows."""

    __slots__ = ("ask", "high_watermark", "log_start_offset")

    def __init__(self, ask: FetchPartition) -> None:
        self.ask = ask
        self.high_watermark = self.log_start_offset = -1

    def is_news(self, answer: PartitionData) -> bool:
        """Whether the client lacks something of the answer, which it then knows. After an error it always does."""
        offsets = answer.high_watermark, answer.log_start_offset
        known = offsets == (self.high_watermark, self.log_start_offset)
        self.high_watermark, self.log_start_offset = offsets
        failed = answer.error_code != NO_ERROR or answer.diverging_epoch is not None
        if failed:
            self.high_watermark = -1
        return failed or not known or bool(answer.records) or answer.preferred_read_replica >= 0


class FetchSession:
    """One client's partitions, in the order in which they are read: those that gave records go to the end."""

    def __init__(self, session_id: int, with_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.with_ids = with_ids
        self.epoch = 1
        """The epoch that the next request must have."""
        self.created_ms = self.used_ms = now_ms
        self._held: dict[Key, _Held] = {}

    @property
    def size(self) -> int:
        return len(self._held)

    def update(self, request: FetchRequest) -> None:
        """Take in the partitions that a request names, and drop those that it forgets."""
        for topic in request.topics:
            name = topic.topic_id if self.with_ids else topic.topic
            for ask in topic.partitions:
                held = self._held.get((name, ask.partition))
                if held is None:
                    self._held[name, ask.partition] = _Held(ask)
                else:
                    held.ask = ask
        for forgotten in request.forgotten_topics_data:
            name = forgotten.topic_id if self.with_ids else forgotten.topic
            for number in forgotten.partitions:
                self._held.pop((name, number), None)

    def topics(self) -> list[FetchTopic]:
        """All partitions as a full request names them; a topic may be there more than once."""
        topics: list[FetchTopic] = []
        last: str | bytes | None = None
        for (name, _), held in self._held.items():
            if name != last:
                topics.append(FetchTopic(partitions=[]))
                setattr(topics[-1], "topic_id" if self.with_ids else "topic", name)
                last = name
            topics[-1].partitions.append(held.ask)
        return topics

    def answer(self, epoch: int, response: FetchResponse) -> FetchResponse:
        """The response to the request of `epoch`; an incremental one has only what the client does not know."""
        if epoch != FULL_EPOCH and self.epoch != _next(epoch):  # another request continued the session meanwhile
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=self.session_id)
        for topic in response.responses:
            name = topic.topic_id if self.with_ids else topic.topic
            news = [answer for answer in topic.partitions if self._is_news((name, answer.partition_index), answer)]
            if epoch != FULL_EPOCH:
                topic.partitions = news
        if epoch != FULL_EPOCH:
            response.responses = [topic for topic in response.responses if topic.partitions]
        response.session_id = self.session_id
        return response

    def _is_news(self, key: Key, answer: PartitionData) -> bool:
        held = self._held.get(key)
        if held is None:
            return True
        if answer.records:  # others come first when the next response is full
            self._held[key] = self._held.pop(key)
        return held.is_news(answer)


class FetchSessions:
    """The sessions of one broker, at most `slots`. `new_id` returns random bytes."""

    def __init__(self, slots: int, new_id: Callable[[int], bytes]) -> None:
        self._slots = slots
        self._new_id = new_id
        self._sessions: dict[int, FetchSession] = {}
        """The one that was not used for the longest time is the first."""
        self.partitions = 0
        self.evictions = 0
        """Sessions that gave way to others since the start."""

    def __len__(self) -> int:
        return len(self._sessions)

    def continued(self, request: FetchRequest, version: int, now_ms: int) -> FetchSession | None:
        """The session that a request continues, with what it changes; None for a full request, which ends the session
        that it names. Raises SessionError.
        """
        if request.session_epoch in (FULL_EPOCH, FINAL_EPOCH):
            self._remove(request.session_id)
            return None
        session = self._sessions.get(request.session_id)
        if session is None:
            raise SessionError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise SessionError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.with_ids != (version >= TOPIC_ID_SINCE):
            raise SessionError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        del self._sessions[session.session_id]
        self.partitions -= session.size
        session.update(request)
        if not session.size:
            return None
        if not self._make_room(session.size, now_ms):
            raise SessionError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.epoch = _next(session.epoch)
        session.used_ms = now_ms
        self._add(session)
        return session

    def begun(self, request: FetchRequest, version: int, now_ms: int) -> FetchSession | None:
        """A new session for the partitions of a full request; None if it wants none, or there is no room."""
        size = sum(len(topic.partitions) for topic in request.topics)
        if request.session_epoch != FULL_EPOCH or not size or not self._make_room(size, now_ms):
            return None
        session = FetchSession(self._free_id(), version >= TOPIC_ID_SINCE, now_ms)
        session.update(request)
        self._add(session)
        return session

    def _add(self, session: FetchSession) -> None:
        self._sessions[session.session_id] = session
        self.partitions += session.size

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partitions -= session.size

    def _free_id(self) -> int:
        while True:
            session_id = int.from_bytes(self._new_id(4), "big") & _LAST_EPOCH
            if session_id != NO_SESSION and session_id not in self._sessions:
                return session_id

    def _make_room(self, size: int, now_ms: int) -> bool:
        """Whether a session of `size` partitions has room, perhaps after others were evicted."""
        most = self._slots * PARTITIONS_PER_SLOT
        if size > most:
            return False
        while len(self._sessions) >= self._slots or self.partitions + size > most:
            evicted = self._evictable(size, now_ms)
            if evicted is None:
                return False
            self._remove(evicted.session_id)
            self.evictions += 1
        return True

    def _evictable(self, size: int, now_ms: int) -> FetchSession | None:
        """The session that gives way to one of `size` partitions, if any does."""
        stalest = next(iter(self._sessions.values()), None)
        if stalest is None or now_ms - stalest.used_ms > EVICTION_MS:
            return stalest
        old = (one for one in self._sessions.values() if now_ms - one.created_ms > EVICTION_MS)
        smallest = min(old, key=lambda one: one.size, default=None)
        return smallest if smallest is not None and smallest.size < size else None


def _next(epoch: int) -> int:
    """As `FetchMetadata.nextEpoch`: 1 follows the last one, since 0 would be a full request."""
    return 1 if epoch == _LAST_EPOCH else epoch + 1
