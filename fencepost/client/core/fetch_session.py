"""Fetch sessions as a client keeps them (KIP-227): name only what changed since the last answer, to one broker.

FULL (epoch 0) --answer with a session id--> INCREMENTAL (epoch 1, 2, ...) --refused, lost, doubted--> FULL
   '--answer with session id 0: the broker keeps none--> FULL, for as long as it likes

A broker which declines sessions is asked in full each time, which is what asking without sessions is.
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
    """What is asked of one partition: from `fetch_offset` on, `max_bytes` at most, as seen at `leader_epoch`."""

    topic_id: bytes
    fetch_offset: int
    leader_epoch: int
    max_bytes: int


class SessionRequest(NamedTuple):
    """What a Fetch request says of the session: `named` are its topics, `forgotten` those it leaves out from now on."""

    session_id: int
    epoch: int
    with_ids: bool
    named: dict[TopicPartition, Wanted]
    forgotten: list[tuple[TopicPartition, bytes]]

    @property
    def is_full(self) -> bool:
        """Everything wanted is named; otherwise the broker remembers what is not."""
        return self.epoch <= FULL_EPOCH


class FetchSession:
    """One session with one broker; at most one request may be under way. `ask`, then `answered` or `lost`."""

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
        """The broker holds a session which the next request goes on with."""
        return self._epoch > FULL_EPOCH

    def ask(self, wanted: Mapping[TopicPartition, Wanted], *, with_ids: bool) -> SessionRequest:
        """The next request for all of `wanted`. `with_ids`: the version names topics by id (13 and later).

        A session lives with names or with ids; where that changes a new one is asked for, and the old one is closed.
        Forgotten and named again in one request is a partition whose topic was deleted and made anew.
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
        """The topic that an answer means, as it was when it was asked for."""
        return self._names.get(topic_id)

    def answered(self, code: ErrorCode, session_id: int, partitions: Collection[TopicPartition]) -> bool:
        """The answer came, with these partitions; whether it may be used. False means ask again, in full.

        An answer that leaves out a partition of a full request, or has one that is not held, puts an end to the
        session: what the two sides hold is not the same any more. Its data is good for what was asked.
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
        """No answer came: whether the broker has seen the request is not known, so the session is begun anew."""
        self._asked = None
        self._restart()

    def close(self) -> SessionRequest | None:
        """The request which ends the session, or None where the broker holds none."""
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
