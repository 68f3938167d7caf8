"""The state machine of a share group's member: heartbeats, and the partitions that the coordinator assigns (KIP-932).

JOIN (epoch 0) --response--> STAY (its epoch) --fenced--> JOIN; --leave (epoch -1)--> gone

Several members may read one partition, so nothing is revoked in steps: an assignment counts at once.
"""

from typing import NamedTuple

from fencepost.client.core.share_session import Place
from fencepost.protocol.errors import ErrorCode

JOIN, LEAVE = 0, -1
_FENCED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})


class ShareHeartbeat(NamedTuple):
    """One ShareGroupHeartbeat; `topics` is None if the subscription has not changed since the last response."""

    epoch: int
    topics: tuple[str, ...] | None


class ShareMember:
    """One member with these topics, under an id of its own choice."""

    def __init__(self, topics: tuple[str, ...]) -> None:
        self._topics = topics
        self._knows_topics = False
        self.epoch = JOIN
        self.assignment: frozenset[Place] = frozenset()
        self.failure: ErrorCode | None = None
        """Why the group does not take this member; no heartbeat follows."""

    def heartbeat(self) -> ShareHeartbeat:
        """The next one; a join names all."""
        return ShareHeartbeat(self.epoch, None if self._knows_topics and self.epoch != JOIN else self._topics)

    def answered(self, sent: ShareHeartbeat, code: ErrorCode, epoch: int, assignment: frozenset[Place] | None) -> None:
        """The response came; `assignment` is None if it has not changed.

        A fenced member joins again with the same id, and without partitions until the response
        (ShareMembershipManager.transitionToFenced). So does one whose group was deleted.
        """
        if sent.epoch != self.epoch or self.failure is not None:
            return
        if code is ErrorCode.NONE:
            self.epoch = epoch
            self._knows_topics = True
            if assignment is not None:
                self.assignment = assignment
        elif code in _FENCED or (code is ErrorCode.GROUP_ID_NOT_FOUND and sent.epoch != JOIN):
            self.epoch, self.assignment = JOIN, frozenset()
        elif not code.retriable:
            self.assignment = frozenset()
            self.failure = code

    def unanswered(self) -> None:
        """It is unknown whether the heartbeat arrived: name the topics again with the next one."""
        self._knows_topics = False

    def leave(self) -> ShareHeartbeat | None:
        """The heartbeat that leaves; None for a member of no group."""
        is_member = self.epoch != JOIN
        self.epoch, self.assignment = JOIN, frozenset()
        return ShareHeartbeat(LEAVE, None) if is_member else None
