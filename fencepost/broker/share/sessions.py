"""Share sessions (KIP-932): which partitions a member of a share group reads from this broker.

ShareFetch of epoch 0 begins a session; requests of epochs 1, 2, ... add and forget partitions; epoch -1, or the end of
the connection, ends it. The rules are those of Kafka's `SharePartitionManager.newContext` and `ShareSessionCache`.

A fetch costs what has changed, not what the session has:

added, failed, other rights: to_check --begun--> ready <--a change of the share partition or of its log-- waits for it
                                                     '--nothing to acquire------------------------------->'
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import NamedTuple, Protocol

from fencepost.broker.log.results import Watcher
from fencepost.broker.share.led import LedPartition
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
    """The partitions of one member on this broker, and at which of them its next fetch has to look."""

    def __init__(self, wanted: Iterable[TopicIdPartition], connection: Connection, topic_fetches: Counter[str]) -> None:
        """`topic_fetches`: where fetches are counted for each topic."""
        self.connection = connection
        self.epoch = 1
        """The epoch that the next request must have."""
        self.partitions: dict[TopicIdPartition, LedPartition | None] = dict.fromkeys(wanted)
        """Each with its share partition, once it is begun and until it fails."""
        self.named = dict.fromkeys(self.partitions)
        """Those that the next response must name, even without records: they were asked for, or failed last."""
        self.to_check = dict.fromkeys(self.partitions)
        """Those that the next fetch checks and begins."""
        self.ready: dict[TopicIdPartition, LedPartition] = {}
        """Those that may have something to acquire, in the order in which they are read."""
        self.watchers: dict[Watcher, None] = {}
        """Fetches that wait for one that is ready."""
        self._rules: object = None
        self._topic_fetches, self._fetches = topic_fetches, 0

    def update(self, wanted: Collection[TopicIdPartition], forgotten: Iterable[TopicIdPartition]) -> None:
        """Add and remove partitions. Raises ShareSessionError if there are too many: they need not exist."""
        if len(self.partitions) + len(wanted) > PARTITIONS_MAX:
            raise ShareSessionError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        for part in wanted:
            self.named[part] = None
            if part not in self.partitions:
                self.partitions[part] = self.to_check[part] = None
        for part in forgotten:
            self._forget(part)

    def check_by(self, rules: object) -> None:
        """Check all partitions again if something has changed by which they are checked: rights, topics, settings."""
        if rules != self._rules:
            self._rules = rules
            self.to_check = dict.fromkeys(self.partitions)

    def begun(self, part: TopicIdPartition, led: LedPartition) -> None:
        """The share partition of one that was checked, which may have been forgotten meanwhile."""
        if part in self.partitions:
            if self.partitions[part] is not led:
                self.lose(part)
                self.count_fetches()
            self.partitions[part] = self.ready[part] = led
            self.to_check.pop(part, None)

    def lose(self, part: TopicIdPartition) -> None:
        """A partition that cannot be used: the next fetch checks it again."""
        if (led := self.partitions.get(part)) is not None:
            self.count_fetches()
            led.waiting.pop(self, None)
        if part in self.partitions:
            self.partitions[part] = self.to_check[part] = None
            if (led := self.ready.pop(part, None)) is not None:
                led.wake_next()

    def changed(self, led: LedPartition) -> bool:
        """A share partition may have something to acquire now; one that is ready keeps its place."""
        part = TopicIdPartition(*led.key[1:])
        if self.partitions.get(part) is not led:
            return False
        self.ready.setdefault(part, led)
        for watcher in tuple(self.watchers):
            watcher.wake()
        return bool(self.watchers)

    def rest(self, part: TopicIdPartition) -> None:
        """It has nothing to acquire until it changes."""
        if (led := self.ready.pop(part, None)) is not None:
            led.wait(self)

    def wait(self) -> None:
        """What is ready is not enough: find out when there is more of it."""
        for led in self.ready.values():
            led.wait(self)
        self.pass_on()

    def pass_on(self) -> None:
        """What is ready and was not acquired may be enough for other sessions."""
        for led in self.ready.values():
            led.wake_next()

    def served(self, part: TopicIdPartition) -> None:
        """It gave records: others come first when the next response is full (Kafka's `ShareSessionContext`)."""
        if (led := self.ready.pop(part, None)) is not None:
            self.ready[part] = led

    def fetched(self) -> None:
        """One more fetch has to be counted for each topic with a share partition (`processShareFetch`)."""
        self._fetches += 1

    def count_fetches(self) -> None:
        """Count them, late: a fetch would cost as much as there are topics."""
        if self._fetches:
            topics = {led.tp.topic for led in self.partitions.values() if led is not None}
            self._topic_fetches.update(dict.fromkeys(topics, self._fetches))
            self._fetches = 0

    def close(self) -> list[TopicIdPartition]:
        """End with no partitions; those that it had."""
        parts = list(self.partitions)
        for part in parts:
            self._forget(part)
        return parts

    def _forget(self, part: TopicIdPartition) -> None:
        self.lose(part)
        self.partitions.pop(part, None)
        self.to_check.pop(part, None)
        self.named.pop(part, None)

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
        self._topic_fetches = Counter[str]()

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def take_topic_fetches(self) -> Counter[str]:
        """How many fetches read each topic since the last call."""
        for session in self._sessions.values():
            session.count_fetches()
        found = self._topic_fetches.copy()
        self._topic_fetches.clear()
        return found

    def begin(self, member: MemberKey, wanted: Iterable[TopicIdPartition], connection: Connection) -> ShareSession:
        """Begin a session in part of the member's former one. Raises ShareSessionError."""
        self.end(member)
        if len(self._sessions) >= self._limit():
            raise ShareSessionError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = self._sessions[member] = ShareSession(wanted, connection, self._topic_fetches)
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

    def end(self, member: MemberKey) -> list[TopicIdPartition]:
        """Forget the session of a member, if there is one; which partitions it had."""
        session = self._sessions.pop(member, None)
        if session is None:
            return []
        session.connection.closed.pop(member, None)
        self.of_group[member.group_id] -= 1
        if not self.of_group[member.group_id]:
            del self.of_group[member.group_id]
        return session.close()

    def _close(self, member: MemberKey, session: ShareSession) -> None:
        """The connection ended. Another connection may have begun a new session of the same member."""
        if self._sessions.get(member) is session:
            self.evicted += 1
            self._ended(member, self.end(member))
