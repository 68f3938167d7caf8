"""The state machine of a classic group member: `step` returns the next step, the other calls report its result.

OUT ---Join answered---> JOINED ---(count)---Sync answered---> MEMBER ---rebalance, new topics---> OUT, same member id
 ^                                                               |
 '-- UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION: partitions are lost -'

An eager member revokes all its partitions before it joins. A cooperative one (KIP-429) joins with all of them and keeps
reading; it revokes those that the new assignment takes away, and joins again so that others can get them.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from fencepost.client.core.assignors import ASSIGNORS, Assignor, is_cooperative
from fencepost.client.core.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from fencepost.client.core.group_steps import EXPELLED, STAY, Assign, CountPartitions, Fail, Join, Revoke, Step, Sync
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

NO_GENERATION = -1


class JoinedMember(NamedTuple):
    """One member in the JoinGroup response to the leader."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    """The response to JoinGroup; `members` only for the leader, which may have to skip the assignment (KIP-814)."""

    code: ErrorCode
    member_id: str = ""
    generation: int = NO_GENERATION
    strategy: str = ""
    leader: str = ""
    skip_assignment: bool = False
    members: Sequence[JoinedMember] = ()


class _Phase(Enum):
    OUT = "out"
    COUNTING = "dealing"
    SYNCING = "syncing"
    MEMBER = "member"


class ClassicMember:
    """One member of one group. `owned` are the partitions that it reads, `generation` the one it commits under."""

    def __init__(self, offered: Sequence[Assignor], topics: Collection[str], instance_id: str | None = None) -> None:
        self.instance_id = instance_id
        self.cooperative = is_cooperative(offered)
        self.member_id = ""
        self.generation = NO_GENERATION
        self.strategy = ""
        self.leads = False
        self.owned: set[TopicPartition] = set()
        self.topics = frozenset(topics)
        self._offered = tuple(offered)
        self._phase = _Phase.OUT
        self._reason = "the consumer has come"
        self._rejoin = False
        self._lost = False
        self._failure: Fail | None = None
        self._asked_for = self.topics
        self._settled_in = NO_GENERATION
        self._assigned: frozenset[TopicPartition] | None = None
        self._had: frozenset[TopicPartition] = frozenset()
        self._members: Sequence[tuple[JoinedMember, Subscription]] = ()
        self._group_topics: frozenset[str] = frozenset()
        self._skip = False
        self._counts: Mapping[str, int] = {}
        self._assignments: tuple[tuple[str, bytes], ...] = ()

    @property
    def sends_heartbeats(self) -> bool:
        """Whether heartbeats are due: from the response to Join until the next Join is sent."""
        return self._phase is not _Phase.OUT and self._failure is None

    @property
    def is_joining(self) -> bool:
        """It waits for the next generation, and for its partitions there."""
        return self._phase is not _Phase.MEMBER and self._failure is None

    @property
    def watched(self) -> frozenset[str]:
        """For a leader, the topics of the whole group: it rebalances when their partitions change."""
        return self._group_topics if self.leads else frozenset()

    @property
    def has_lost(self) -> bool:
        """It still has partitions that another member may own by now."""
        return self._lost and bool(self.owned)

    # -- the next step

    def step(self) -> Step:
        """The next step. The same until its result is reported or another event comes."""
        if self._lost:
            if self.owned:
                return Revoke(frozenset(self.owned), lost=True)
            self._lost = False
        if self._failure is not None:
            return self._failure
        if self._phase is _Phase.COUNTING:
            return CountPartitions(tuple(sorted(self._group_topics)))
        if self._phase is _Phase.SYNCING:
            return Sync(self.member_id, self.generation, self.strategy, self._assignments)
        if self._assigned is not None:
            return self._towards(self._assigned)
        if self._phase is _Phase.OUT or self._rejoin:
            return self._prepare_join()
        return STAY

    def _towards(self, assigned: frozenset[TopicPartition]) -> Step:
        if gone := self.owned - assigned:
            return Revoke(frozenset(gone))
        if new := assigned - self.owned:
            return Assign(frozenset(new))
        self._assigned = None
        return self.step()

    def _prepare_join(self) -> Step:
        gone = {p for p in self.owned if p.topic not in self.topics} if self.cooperative else self.owned
        if gone:
            return Revoke(frozenset(gone))
        self._phase = _Phase.OUT
        self._rejoin = False
        self._asked_for = self.topics
        return Join(self.member_id, self._protocols(), self._reason)

    def _protocols(self) -> tuple[tuple[str, bytes], ...]:
        had = self.owned if self.cooperative else self._had
        return tuple(
            (
                assignor.name,
                encode_subscription(
                    Subscription(
                        tuple(sorted(self.topics)),
                        assignor.user_data(had, self._settled_in),
                        tuple(sorted(self.owned)),
                        self._settled_in,
                    )
                ),
            )
            for assignor in self._offered
        )

    # -- results

    def joined(self, response: Joined) -> None:
        """The response to JoinGroup came. A request without a response is sent again.

        Raises KafkaError where another member's subscription cannot be read.
        """
        if self._phase is not _Phase.OUT:
            return
        code = response.code
        if code is ErrorCode.NONE and response.strategy not in {assignor.name for assignor in self._offered}:
            self._fail(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "JoinGroup")
        elif code is ErrorCode.NONE:
            self.member_id, self.generation = response.member_id, response.generation
            self.strategy = response.strategy
            self.leads = response.leader == response.member_id
            self._assignments, self._skip = (), response.skip_assignment
            self._members = [(one, decode_subscription(one.metadata)) for one in response.members if self.leads]
            self._group_topics = self._asked_for.union(*(wanted.topics for _, wanted in self._members))
            self._phase = _Phase.COUNTING if self.leads else _Phase.SYNCING
        elif code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif code in EXPELLED:
            self._expelled(code)
        elif code is not ErrorCode.REBALANCE_IN_PROGRESS and not code.retriable:
            self._fail(code, "JoinGroup")

    def counted(self, counts: Mapping[str, int]) -> None:
        """The partition counts of the group's topics (those that exist).

        Raises KafkaError where a member's data for the assignor cannot be read.
        """
        if self._phase is not _Phase.COUNTING:
            return
        self._counts = dict(counts)
        if not self._skip:
            assignor = ASSIGNORS[self.strategy]
            members = [assignor.member(one.member_id, one.instance_id, wanted) for one, wanted in self._members]
            assignments = assignor.assign(members, self._counts)
            self._assignments = tuple((name, encode_assignment(partitions)) for name, partitions in assignments.items())
        self._phase = _Phase.SYNCING

    def synced(self, generation: int, code: ErrorCode, assignment: bytes = b"") -> None:
        """The response to SyncGroup of that generation came. Raises KafkaError if the assignment cannot be read."""
        if self._phase is not _Phase.SYNCING or generation != self.generation:
            return
        if code is ErrorCode.NONE:
            assigned = frozenset(p for p in decode_assignment(assignment) if p.topic in self._asked_for)
            self._phase = _Phase.MEMBER
            self._assigned = assigned
            self._settled_in = generation
            if self.cooperative and self.owned - assigned:
                self.rejoin("it has given up what others are to have")
            elif self.topics != self._asked_for:
                self.rejoin("it wants other topics")
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._phase = _Phase.OUT
        elif code in EXPELLED:
            self._expelled(code)
        elif not code.retriable:
            self._fail(code, "SyncGroup")

    @property
    def is_rejoining(self) -> bool:
        """It is joining the next generation, in which the group may be already."""
        return self._phase is _Phase.OUT and self.generation != NO_GENERATION

    def responded(self, generation: int, code: ErrorCode, api: str = "Heartbeat") -> None:
        """A heartbeat or a commit of that generation got `code`; a response of an older generation is ignored."""
        if generation != self.generation or self._phase is _Phase.OUT or code is ErrorCode.NONE:
            return
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            if self._phase is _Phase.MEMBER:
                self.rejoin("the group rebalances")
        elif code in EXPELLED:
            self._expelled(code)
        elif not code.retriable:
            self._fail(code, api)

    def revoked(self, partitions: Collection[TopicPartition], *, lost: bool = False) -> None:
        """The consumer reads these partitions no longer."""
        if not lost and not self.cooperative:
            self._had = frozenset(self.owned)
        self.owned -= set(partitions)
        if self._lost and not self.owned:
            self._lost = False

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.owned |= set(partitions)

    # -- events of the program and of the cluster

    def subscribe(self, topics: Collection[str]) -> None:
        if frozenset(topics) != self.topics:
            self.topics = frozenset(topics)
            self.rejoin("it wants other topics")

    def topics_counted(self, counts: Mapping[str, int]) -> None:
        """The partition counts of `watched`: a leader rebalances if they have changed."""
        if self.leads and self._phase is _Phase.MEMBER and dict(counts) != self._counts:
            self.rejoin("the topics have other partitions")

    def rejoin(self, reason: str) -> None:
        self._rejoin, self._reason = True, reason

    def expelled(self, reason: str) -> None:
        """The member has left or was removed: its partitions are lost, and it would join as a new member."""
        self._expelled(ErrorCode.UNKNOWN_MEMBER_ID)
        self._reason = reason

    def _expelled(self, code: ErrorCode) -> None:
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self.generation = self._settled_in = NO_GENERATION
        self.leads = False
        self._phase = _Phase.OUT
        self._assigned = None
        self._had = frozenset()
        self._lost = True
        self._reason = f"the group had given it up ({code.name})"

    def _fail(self, code: ErrorCode, api: str) -> None:
        self._expelled(code)
        self._failure = Fail(code, api)
