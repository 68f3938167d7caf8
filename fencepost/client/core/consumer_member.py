"""The state machine of a KIP-848 group member: the broker assigns, the member reconciles and reports what it owns.

Epoch 0 joins, -1 leaves, -2 leaves temporarily (static members). The member reaches a new target in this order: revoke
what is not in it, report that, add what is new, report that. So no two members ever read one partition.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from fencepost.client.core.group_steps import STAY, Assign, Fail, Resolve, Revoke, Step
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

JOIN, LEAVE, LEAVE_FOR_A_WHILE = 0, -1, -2
_FENCED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})
TopicIdPartition = tuple[bytes, int]
"""A topic id and a partition: a topic that is created again under its old name has another id."""


@dataclass(frozen=True, slots=True)
class DesiredSubscription:
    """The program's subscription: topics by name, topics by RE2 pattern, and the broker's assignor."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assignor: str | None = None


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """One ConsumerGroupHeartbeat; None means no change since the last response."""

    member_id: str
    epoch: int
    desired: DesiredSubscription | None = None
    owned: frozenset[TopicIdPartition] | None = None

    @property
    def is_full(self) -> bool:
        """It has every field, the rebalance timeout as well."""
        return self.desired is not None and self.owned is not None


class HeartbeatResult(NamedTuple):
    """The response to a heartbeat; `assignment` is None if it has not changed."""

    code: ErrorCode
    member_id: str | None = None
    epoch: int = JOIN
    assignment: frozenset[TopicIdPartition] | None = None


class ConsumerMember:
    """One member of one group; it chooses `member_id`, or leaves it empty for the broker to choose (version 0)."""

    def __init__(self, member_id: str, desired: DesiredSubscription, instance_id: str | None = None) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.epoch = JOIN
        self.desired = desired
        self.waits_for_instance_id = False
        """A predecessor with the same group_instance_id did not leave: wait until its session is over."""
        self._owned: dict[TopicIdPartition, TopicPartition] = {}
        self._target: frozenset[TopicIdPartition] | None = None
        self._names: dict[bytes, str] = {}
        self._lost = False
        self._failure: Fail | None = None
        self._sent_desired: DesiredSubscription | None = None
        self._sent_owned: frozenset[TopicIdPartition] | None = None

    @property
    def owned(self) -> set[TopicPartition]:
        return set(self._owned.values())

    @property
    def sends_heartbeats(self) -> bool:
        """Whether heartbeats may be sent: lost partitions must be revoked before the member joins again."""
        return self._failure is None and not self.has_lost

    @property
    def heartbeat_is_due(self) -> bool:
        """A heartbeat must be sent at once: to join, or because partitions or the subscription have changed."""
        if not self.sends_heartbeats or self.waits_for_instance_id:
            return False
        return self.epoch == JOIN or self._sent_desired != self.desired or self._sent_owned != frozenset(self._owned)

    @property
    def has_lost(self) -> bool:
        """It still has partitions that another member may own by now."""
        return self._lost and bool(self._owned)

    # -- the next step

    def step(self) -> Step:
        """The next step with partitions. The same until its result is reported."""
        if self._lost:
            if self._owned:
                return Revoke(frozenset(self._owned.values()), lost=True)
            self._lost = False
        if self._failure is not None:
            return self._failure
        if self._target is None:
            return STAY
        if gone := self._owned.keys() - self._target:
            return Revoke(frozenset(self._owned[place] for place in gone))
        new = self._target - self._owned.keys()
        if not new or self._sent_owned != frozenset(self._owned):
            return STAY
        if known := frozenset(partition for place in new if (partition := self._partition(place)) is not None):
            return Assign(known)
        return Resolve(frozenset(topic_id for topic_id, _ in new))

    def _partition(self, place: TopicIdPartition) -> TopicPartition | None:
        name = self._names.get(place[0])
        return None if name is None else TopicPartition(name, place[1])

    def heartbeat(self) -> ConsumerHeartbeat:
        owned = frozenset(self._owned)
        if self.epoch == JOIN:
            return ConsumerHeartbeat(self.member_id, JOIN, self.desired, frozenset())
        return ConsumerHeartbeat(
            self.member_id,
            self.epoch,
            None if self._sent_desired == self.desired else self.desired,
            None if self._sent_owned == owned else owned,
        )

    def leave_heartbeat(self) -> ConsumerHeartbeat | None:
        """The heartbeat that leaves the group; None for a member of no group."""
        if self.epoch == JOIN:
            return None
        return ConsumerHeartbeat(self.member_id, LEAVE if self.instance_id is None else LEAVE_FOR_A_WHILE)

    # -- results

    def answered(self, sent: ConsumerHeartbeat, response: HeartbeatResult) -> None:
        """The response to a heartbeat came; one of another epoch is ignored."""
        if sent.epoch != self.epoch or self._failure is not None or not self.sends_heartbeats:
            return
        code = response.code
        self.waits_for_instance_id = False
        if code is ErrorCode.NONE:
            self.member_id = response.member_id or self.member_id
            self.epoch = response.epoch
            if sent.desired is not None:
                self._sent_desired = sent.desired
            if sent.owned is not None:
                self._sent_owned = sent.owned
            if response.assignment is not None:
                self._target = response.assignment
            return
        self.unanswered()
        if code in _FENCED:
            self.expelled()
        elif code is ErrorCode.UNRELEASED_INSTANCE_ID:
            self.waits_for_instance_id = True
        elif not code.retriable:
            self._lost = True
            self._failure = Fail(code, "ConsumerGroupHeartbeat")

    def unanswered(self) -> None:
        """It is unknown whether a heartbeat arrived: send every field again with the next one."""
        self._sent_desired = self._sent_owned = None

    def named(self, names: Mapping[bytes, str]) -> None:
        self._names.update(names)

    def revoked(self, partitions: Collection[TopicPartition], *, lost: bool = False) -> None:
        """The consumer reads these partitions no longer."""
        gone = set(partitions)
        keep = self._target or frozenset()
        self._owned = {
            place: partition
            for place, partition in self._owned.items()
            if partition not in gone or (not lost and place in keep)
        }
        if self._lost and not self._owned:
            self._lost = False

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        for place in self._target or ():
            partition = self._partition(place)
            if partition in partitions and partition is not None:
                self._owned[place] = partition

    def subscribe(self, desired: DesiredSubscription) -> None:
        self.desired = desired

    def commit_rejected(self, epoch: int, code: ErrorCode) -> None:
        if epoch == self.epoch and code in _FENCED:
            self.expelled()

    def expelled(self) -> None:
        """The member has left or was fenced: its partitions are lost, and the next heartbeat joins again."""
        self.epoch = JOIN
        self._target = None
        self._lost = True
        self.unanswered()
