"""Share sessions (KIP-932): which partitions a member of a share group reads from this broker.

ShareFetch of epoch 0 begins a session; requests of epochs 1, 2, ... add and forget partitions; epoch -1, or the end of
the connection, ends it. The rules are those of Kafka's `SharePartitionManager.newContext` and `ShareSessionCache`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import NamedTuple, Protocol

from fencepost.protocol.errors import ErrorCode

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_LAST_EPOCH = 2**31 - 1
PARTITIONS_MAX = 200_000
"""Of one session. Clients may add what does not exist, request by request; Kafka has no bound."""


class TopicIdPartition(NamedTuple):
    """A partition by its topic's id."""

    topic_id: bytes
    partition: int


class ShareSessionError(Exception):
    """A request that no session can serve; the member begins a new one."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class MemberKey(NamedTuple):
    """A member of a share group."""

    group_id: str
    member_id: str


class Connection(Protocol):
    """What a session needs of the connection that it belongs to (`network.context.Session`)."""

    closed: dict[object, Callable[[], None]]
    """What to call when the connection has ended, by whose concern it is."""


class ShareSession:
    """The partitions of one member on this broker, in the order in which they were added."""

    def __init__(self, wanted: Iterable[TopicIdPartition], connection: Connection) -> None:
        self.connection = connection
        self.epoch = 1
        """The epoch that the next request must have."""
        self.partitions: dict[TopicIdPartition, bool] = dict.fromkeys(wanted, False)
        """Each with whether the next response must name it, even without records: it was asked for, or failed last."""

    def update(self, wanted: Collection[TopicIdPartition], forgotten: Iterable[TopicIdPartition]) -> None:
        """Add and remove partitions. Raises ShareSessionError if there are too many: they need not exist."""
        if len(self.partitions) + len(wanted) > PARTITIONS_MAX:
            raise ShareSessionError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        for part in wanted:
            self.partitions[part] = True
        for part in forgotten:
            self.partitions.pop(part, None)

    def next(self) -> None:
        self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1


class ShareSessions:
    """All share sessions of a broker, at most `limit()` (`group.share.max.share.sessions`)."""

    def __init__(
        self, limit: Callable[[], int], ended: Callable[[MemberKey, Iterable[TopicIdPartition]], None]
    ) -> None:
        """`ended` is called for a session that ended with its connection."""
        self._limit = limit
        self._ended = ended
        self._sessions: dict[MemberKey, ShareSession] = {}
        self.of_group: Counter[str] = Counter()
        """How many sessions each group has."""
        self.evicted = 0
        """Sessions that ended with their connections."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def begin(self, member: MemberKey, wanted: Iterable[TopicIdPartition], connection: Connection) -> ShareSession:
        """Begin a session in part of the member's former one. Raises ShareSessionError."""
        self.end(member)
        if len(self._sessions) >= self._limit():
            raise ShareSessionError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = self._sessions[member] = ShareSession(wanted, connection)
        self.of_group[member.group_id] += 1
        connection.closed[member] = partial(self._close, member, session)
        return session

    def get(self, member: MemberKey) -> ShareSession:
        """The session of a member. Raises ShareSessionError."""
        session = self._sessions.get(member)
        if session is None:
            raise ShareSessionError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        return session

    def continued(self, member: MemberKey, epoch: int) -> ShareSession:
        """The session of a request with `epoch`, which is its next one. Raises ShareSessionError."""
        session = self.get(member)
        if session.epoch != epoch:
            raise ShareSessionError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.next()
        return session

    def end(self, member: MemberKey) -> ShareSession | None:
        """Forget the session of a member."""
        session = self._sessions.pop(member, None)
        if session is not None:
            session.connection.closed.pop(member, None)
            self.of_group[member.group_id] -= 1
            if not self.of_group[member.group_id]:
                del self.of_group[member.group_id]
        return session

    def _close(self, member: MemberKey, session: ShareSession) -> None:
        """The connection ended. Another connection may have begun a new session of the same member."""
        if self._sessions.get(member) is session:
            self.end(member)
            self.evicted += 1
            self._ended(member, list(session.partitions))
