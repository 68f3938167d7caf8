"""A member of a KIP-848 group as a machine: the broker assigns, the member reconciles and says what it has.

Epoch 0 joins, -1 leaves, -2 leaves for a while (static members). A new target is reached in this order: give up what is
not in it, tell the broker, take what is new, tell the broker. So nothing is ever read by two.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from fencepost.client.core.group_steps import STAY, Fail, GiveUp, Resolve, Step, Take
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

JOIN, LEAVE, LEAVE_FOR_A_WHILE = 0, -1, -2
_FENCED = frozenset(
    {
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
Place = tuple[bytes, int]
"""A topic id and a partition: a topic that is made anew under its old name is another one."""


@dataclass(frozen=True, slots=True)
class DesiredSubscription:
    """What the program wants: topics by name, topics by RE2 pattern, which assignor of the broker."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assignor: str | None = None


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """One ConsumerGroupHeartbeat; None means that nothing changed since the last answer."""

    member_id: str
    epoch: int
    desired: DesiredSubscription | None = None
    owned: frozenset[Place] | None = None

    @property
    def is_full(self) -> bool:
        """It says everything, the rebalance timeout as well."""
        return self.desired is not None and self.owned is not None


class HeartbeatResult(NamedTuple):
    """What it was answered; `assignment` None where it has not changed."""

    code: ErrorCode
    member_id: str | None = None
    epoch: int = JOIN
    assignment: frozenset[Place] | None = None


class ConsumerMember:
    """One member of one group; `member_id` is its own choice, or empty where the broker is to choose (version 0)."""

    def __init__(self, member_id: str, desired: DesiredSubscription, instance_id: str | None = None) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.epoch = JOIN
        self.desired = desired
        self.waits_for_place = False
        """The static place is held by a predecessor that did not leave: until its session is over."""
        self._owned: dict[Place, TopicPartition] = {}
        self._target: frozenset[Place] | None = None
        self._names: dict[bytes, str] = {}
        self._lost = False
        self._failure: Fail | None = None
        self._said_desired: DesiredSubscription | None = None
        self._said_owned: frozenset[Place] | None = None

    @property
    def owned(self) -> set[TopicPartition]:
        """What it reads."""
        return set(self._owned.values())

    @property
    def sends_heartbeats(self) -> bool:
        """Whether heartbeats may go out: what is lost has to be put down before it joins again."""
        return self._failure is None and not self.has_lost

    @property
    def heartbeat_is_due(self) -> bool:
        """Something is to be said at once: a place in the group is wanted, partitions or the desired have changed."""
        if not self.sends_heartbeats or self.waits_for_place:
            return False
        return self.epoch == JOIN or self._said_desired != self.desired or self._said_owned != frozenset(self._owned)

    @property
    def has_lost(self) -> bool:
        """It still has partitions that may be somebody else's."""
        return self._lost and bool(self._owned)

    # -- what comes next

    def step(self) -> Step:
        """What to do now with partitions. The same until it is said what became of it."""
        if self._lost:
            if self._owned:
                return GiveUp(frozenset(self._owned.values()), lost=True)
            self._lost = False
        if self._failure is not None:
            return self._failure
        if self._target is None:
            return STAY
        if gone := self._owned.keys() - self._target:
            return GiveUp(frozenset(self._owned[place] for place in gone))
        new = self._target - self._owned.keys()
        if not new or self._said_owned != frozenset(self._owned):
            return STAY
        if known := frozenset(partition for place in new if (partition := self._partition(place)) is not None):
            return Take(known)
        return Resolve(frozenset(topic_id for topic_id, _ in new))

    def _partition(self, place: Place) -> TopicPartition | None:
        name = self._names.get(place[0])
        return None if name is None else TopicPartition(name, place[1])

    def heartbeat(self) -> ConsumerHeartbeat:
        owned = frozenset(self._owned)
        if self.epoch == JOIN:
            return ConsumerHeartbeat(self.member_id, JOIN, self.desired, frozenset())
        return ConsumerHeartbeat(
            self.member_id,
            self.epoch,
            None if self._said_desired == self.desired else self.desired,
            None if self._said_owned == owned else owned,
        )

    def goodbye(self) -> ConsumerHeartbeat | None:
        """The heartbeat that leaves the group; None where the member is in none."""
        if self.epoch == JOIN:
            return None
        return ConsumerHeartbeat(self.member_id, LEAVE if self.instance_id is None else LEAVE_FOR_A_WHILE)

    # -- what became of it

    def answered(self, sent: ConsumerHeartbeat, answer: HeartbeatResult) -> None:
        """A heartbeat was answered; what was sent in another epoch says nothing any more."""
        if sent.epoch != self.epoch or self._failure is not None or not self.sends_heartbeats:
            return
        code = answer.code
        self.waits_for_place = False
        if code is ErrorCode.NONE:
            self.member_id = answer.member_id or self.member_id
            self.epoch = answer.epoch
            if sent.desired is not None:
                self._said_desired = sent.desired
            if sent.owned is not None:
                self._said_owned = sent.owned
            if answer.assignment is not None:
                self._target = answer.assignment
            return
        self.unanswered()
        if code in _FENCED:
            self.expelled()
        elif code is ErrorCode.UNRELEASED_INSTANCE_ID:
            self.waits_for_place = True
        elif not code.retriable:
            self._lost = True
            self._failure = Fail(code, "ConsumerGroupHeartbeat")

    def unanswered(self) -> None:
        """Nobody knows whether a heartbeat arrived: say everything again with the next one."""
        self._said_desired = self._said_owned = None

    def named(self, names: Mapping[bytes, str]) -> None:
        self._names.update(names)

    def given_up(self, partitions: Collection[TopicPartition], *, lost: bool = False) -> None:
        """These are not read any more."""
        gone = set(partitions)
        keep = self._target or frozenset()
        self._owned = {
            place: partition
            for place, partition in self._owned.items()
            if partition not in gone or (not lost and place in keep)
        }
        if self._lost and not self._owned:
            self._lost = False

    def taken(self, partitions: Collection[TopicPartition]) -> None:
        for place in self._target or ():
            partition = self._partition(place)
            if partition in partitions and partition is not None:
                self._owned[place] = partition

    def subscribe(self, desired: DesiredSubscription) -> None:
        self.desired = desired

    def refused(self, epoch: int, code: ErrorCode) -> None:
        if epoch == self.epoch and code in _FENCED:
            self.expelled()

    def expelled(self) -> None:
        """The member has left, or was fenced: whatever it had is lost, and the next heartbeat joins anew."""
        self.epoch = JOIN
        self._target = None
        self._lost = True
        self.unanswered()
