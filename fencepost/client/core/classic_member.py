"""A member of a classic group as a machine: `step` says what comes next, the other calls say what became of it.

OUT ---Join answered---> JOINED ---(Deal)---Sync answered---> MEMBER ---rebalance, new topics---> OUT, same member id
 ^                                                              |
 '----- UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION: all is lost -----'

An eager member gives everything up before it joins. A cooperative one (KIP-429) joins with all it has and reads on; it
gives up what the new assignment takes from it, and joins once more so that this can be dealt to others.
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
from fencepost.client.core.group_steps import EXPELLED, STAY, Deal, Fail, GiveUp, Join, Step, Sync, Take
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

NO_GENERATION = -1


class JoinedMember(NamedTuple):
    """One member as JoinGroup's answer tells the leader."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    """What JoinGroup answered; `members` only for the leader, who may be told to skip the assignment (KIP-814)."""

    code: ErrorCode
    member_id: str = ""
    generation: int = NO_GENERATION
    strategy: str = ""
    leader: str = ""
    skip_assignment: bool = False
    members: Sequence[JoinedMember] = ()


class _Phase(Enum):
    OUT = "out"
    DEALING = "dealing"
    SYNCING = "syncing"
    MEMBER = "member"


class ClassicMember:
    """One member of one group. `owned` is what it reads, `generation` under which it commits."""

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
        """Whether heartbeats are due: from Join's answer on, until the next Join is on its way."""
        return self._phase is not _Phase.OUT and self._failure is None

    @property
    def is_joining(self) -> bool:
        """It waits for its place in the next generation, and for the partitions that it gets there."""
        return self._phase is not _Phase.MEMBER and self._failure is None

    @property
    def watched(self) -> frozenset[str]:
        """For a leader, the topics of the whole group: when their partitions change, it has to deal again."""
        return self._group_topics if self.leads else frozenset()

    @property
    def has_lost(self) -> bool:
        """It still has partitions that may be somebody else's."""
        return self._lost and bool(self.owned)

    # -- what comes next

    def step(self) -> Step:
        """What to do now. The same until it is said what became of it, or something else happens."""
        if self._lost:
            if self.owned:
                return GiveUp(frozenset(self.owned), lost=True)
            self._lost = False
        if self._failure is not None:
            return self._failure
        if self._phase is _Phase.DEALING:
            return Deal(tuple(sorted(self._group_topics)))
        if self._phase is _Phase.SYNCING:
            return Sync(self.member_id, self.generation, self.strategy, self._assignments)
        if self._assigned is not None:
            return self._towards(self._assigned)
        if self._phase is _Phase.OUT or self._rejoin:
            return self._prepare_join()
        return STAY

    def _towards(self, assigned: frozenset[TopicPartition]) -> Step:
        if gone := self.owned - assigned:
            return GiveUp(frozenset(gone))
        if new := assigned - self.owned:
            return Take(frozenset(new))
        self._assigned = None
        return self.step()

    def _prepare_join(self) -> Step:
        gone = {p for p in self.owned if p.topic not in self.topics} if self.cooperative else self.owned
        if gone:
            return GiveUp(frozenset(gone))
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

    # -- what became of it

    def joined(self, answer: Joined) -> None:
        """JoinGroup was answered. A request that was lost is simply sent again.

        Raises KafkaError where another member's subscription cannot be read.
        """
        if self._phase is not _Phase.OUT:
            return
        code = answer.code
        if code is ErrorCode.NONE and answer.strategy not in {assignor.name for assignor in self._offered}:
            self._fail(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "JoinGroup")
        elif code is ErrorCode.NONE:
            self.member_id, self.generation = answer.member_id, answer.generation
            self.strategy = answer.strategy
            self.leads = answer.leader == answer.member_id
            self._assignments, self._skip = (), answer.skip_assignment
            self._members = [(one, decode_subscription(one.metadata)) for one in answer.members if self.leads]
            self._group_topics = self._asked_for.union(*(wanted.topics for _, wanted in self._members))
            self._phase = _Phase.DEALING if self.leads else _Phase.SYNCING
        elif code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif code in EXPELLED:
            self._expelled(code)
        elif code is not ErrorCode.REBALANCE_IN_PROGRESS and not code.retriable:
            self._fail(code, "JoinGroup")

    def dealt(self, counts: Mapping[str, int]) -> None:
        """How many partitions the group's topics have (those that exist).

        Raises KafkaError where a member's data for the assignor cannot be read.
        """
        if self._phase is not _Phase.DEALING:
            return
        self._counts = dict(counts)
        if not self._skip:
            assignor = ASSIGNORS[self.strategy]
            members = [assignor.member(one.member_id, one.instance_id, wanted) for one, wanted in self._members]
            dealt = assignor.assign(members, self._counts)
            self._assignments = tuple((name, encode_assignment(partitions)) for name, partitions in dealt.items())
        self._phase = _Phase.SYNCING

    def synced(self, generation: int, code: ErrorCode, assignment: bytes = b"") -> None:
        """SyncGroup of that generation was answered. Raises KafkaError where the assignment cannot be read."""
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
        """A member of one generation on its way into the next, where the group may be already."""
        return self._phase is _Phase.OUT and self.generation != NO_GENERATION

    def heard(self, generation: int, code: ErrorCode, api: str = "Heartbeat") -> None:
        """A heartbeat or a commit of that generation was answered; what came too late says nothing any more."""
        if generation != self.generation or self._phase is _Phase.OUT or code is ErrorCode.NONE:
            return
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            if self._phase is _Phase.MEMBER:
                self.rejoin("the group rebalances")
        elif code in EXPELLED:
            self._expelled(code)
        elif not code.retriable:
            self._fail(code, api)

    def given_up(self, partitions: Collection[TopicPartition], *, lost: bool = False) -> None:
        """These are not read any more."""
        if not lost and not self.cooperative:
            self._had = frozenset(self.owned)
        self.owned -= set(partitions)
        if self._lost and not self.owned:
            self._lost = False

    def taken(self, partitions: Collection[TopicPartition]) -> None:
        self.owned |= set(partitions)

    # -- what the program and the cluster bring

    def subscribe(self, topics: Collection[str]) -> None:
        if frozenset(topics) != self.topics:
            self.topics = frozenset(topics)
            self.rejoin("it wants other topics")

    def looked(self, counts: Mapping[str, int]) -> None:
        """A leader has looked at `watched`: it deals again if there are other partitions than those it dealt."""
        if self.leads and self._phase is _Phase.MEMBER and dict(counts) != self._counts:
            self.rejoin("the topics have other partitions")

    def rejoin(self, reason: str) -> None:
        """Join again as soon as may be."""
        self._rejoin, self._reason = True, reason

    def expelled(self, reason: str) -> None:
        """The member has left, or counts as gone: whatever it had is lost, and it would come back as a new one."""
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
