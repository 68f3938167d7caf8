"""A client's fetch session with one broker (KIP-227): a request names only what changed since the last response.

FULL (epoch 0) --response with a session id--> INCREMENTAL (epoch 1, 2, ...) --rejected, lost, in doubt--> FULL
   '--response with session id 0: the broker keeps no session--> FULL, until it keeps one

A broker that declines sessions gets a full request each time, as without sessions.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

NO_SESSION = 0
FULL_EPOCH = 0
FINAL_EPOCH = -1
NO_TOPIC_ID = bytes(16)
_LAST_EPOCH = 2**31 - 1


class Wanted(NamedTuple):
    """The request for one partition: from `fetch_offset` on, at most `max_bytes`, as known at `leader_epoch`."""

    topic_id: bytes
    fetch_offset: int
    leader_epoch: int
    max_bytes: int


class SessionRequest(NamedTuple):
    """The session's part of a Fetch request: `named` are its partitions, `forgotten` those it drops from now on."""

    session_id: int
    epoch: int
    with_ids: bool
    named: dict[TopicPartition, Wanted]
    forgotten: list[tuple[TopicPartition, bytes]]

    @property
    def is_full(self) -> bool:
        """Whether the request names all partitions; otherwise the broker remembers the others."""
        return self.epoch <= FULL_EPOCH


class FetchSession:
    """One session with one broker; at most one request may be under way. Call `ask`, then `answered` or `lost`."""

    __slots__ = ("_asked", "_epoch", "_held", "_names", "_session_id", "_with_ids")

    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._epoch = FULL_EPOCH
        self._with_ids = False
        self._held: dict[TopicPartition, Wanted] = {}
        self._names: dict[bytes, str] = {}
        self._asked: SessionRequest | None = None

    @property
    def established(self) -> bool:
        """Whether the broker holds a session that the next request continues."""
        return self._epoch > FULL_EPOCH

    def ask(self, wanted: Mapping[TopicPartition, Wanted], *, with_ids: bool) -> SessionRequest:
        """The next request for all of `wanted`. `with_ids`: the version names topics by id (13 and later).

        A session has names or ids; where that changes, the request opens a new session and closes the old one.
        A partition whose topic was deleted and created again is forgotten and named in one request.
        """
        assert self._asked is None, "one request at a time"
        if self.established and with_ids != self._with_ids:
            self._restart()
        forgotten: list[tuple[TopicPartition, bytes]] = []
        if not self.established:
            self._with_ids = with_ids
            named = dict(wanted)
        else:
            named = {partition: entry for partition, entry in wanted.items() if self._held.get(partition) != entry}
            for partition, held in self._held.items():
                now = wanted.get(partition)
                if now is None or (with_ids and now.topic_id != held.topic_id):
                    forgotten.append((partition, held.topic_id))
        self._held = dict(wanted)
        if named or forgotten:
            self._names = {entry.topic_id: partition.topic for partition, entry in wanted.items()}
        self._asked = SessionRequest(self._session_id, self._epoch, with_ids, named, forgotten)
        return self._asked

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of a topic id in a response, as it was when the request was sent."""
        return self._names.get(topic_id)

    def answered(self, code: ErrorCode, session_id: int, partitions: Collection[TopicPartition]) -> bool:
        """The response came, with these partitions; returns whether it may be used. False means: send a full request.

        A response that lacks a partition of a full request, or has one that is not held, ends the
        session: the two sides hold different partitions. Its data is valid for the requested ones.
        """
        asked, self._asked = self._asked, None
        assert asked is not None, "no request is under way"
        if code is not ErrorCode.NONE:
            if code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._session_id = NO_SESSION
            self._restart()
            return False
        in_doubt = not all(partition in self._held for partition in partitions)
        if asked.is_full:
            in_doubt = in_doubt or len(partitions) != len(self._held)
        if session_id == NO_SESSION:
            self._session_id = NO_SESSION
            self._restart()
            return True
        if not asked.is_full and session_id != asked.session_id:
            in_doubt = True
        self._session_id = session_id
        if in_doubt:
            self._restart()
        else:
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1
        return True

    def lost(self) -> None:
        """No response came: the broker may or may not have got the request, so the next one begins a new session."""
        self._asked = None
        self._restart()

    def close(self) -> SessionRequest | None:
        """The request that ends the session, or None if the broker holds none."""
        if self._session_id == NO_SESSION:
            return None
        request = SessionRequest(self._session_id, FINAL_EPOCH, self._with_ids, {}, [])
        self._session_id = NO_SESSION
        self._asked = None
        self._restart()
        return request

    def _restart(self) -> None:
        """The next request is a full one; it names the old session, so that the broker drops it."""
        self._epoch = FULL_EPOCH
        self._held = {}
