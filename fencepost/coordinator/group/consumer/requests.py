"""The requests of a consumer group's members, and the replies."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fencepost.coordinator.group.consumer.member import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH, Assignment
from fencepost.coordinator.group.consumer.reconcile import Reported
from fencepost.coordinator.group.consumer.refused import Refused
from fencepost.protocol.errors import ErrorCode

KEY_TEXT_MAX = 2**15 - 1
"""The most bytes of a string in the key of a record."""


class Heartbeat(NamedTuple):
    """A ConsumerGroupHeartbeat; None means that nothing changed since the last one."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    reported: Reported | None = None
    """The partitions that the member reports to have."""
    client_id: str = ""
    client_host: str = ""
    member_id_required: bool = True
    """v1+: the client chooses its own member id (KIP-1082); before, an empty one requests one."""
    may_see: Callable[[str], bool] | None = None
    """Whether the client may see a topic; None if it may see all. A regular expression matches no other topics."""

    @property
    def leaves(self) -> bool:
        return self.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH)

    @property
    def is_full(self) -> bool:
        """Whether the request has all fields: the answer then has the assignment, too."""
        subscribes = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms != -1 and subscribes and self.reported is not None


class HeartbeatReply(NamedTuple):
    """The answer; it has an `assignment` only if that changed, or if the request was full."""

    error: ErrorCode = ErrorCode.NONE
    text: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


def check(request: Heartbeat, assignors: Sequence[str]) -> None:
    """Refuse requests that are invalid for every group. Raises Refused."""
    if request.member_id_required or request.member_epoch > 0 or request.member_epoch == LEAVE_EPOCH:
        check_not_empty(request.member_id, "MemberId")
    check_not_empty(request.group_id, "GroupId")
    check_not_empty(request.instance_id, "InstanceId")
    check_not_empty(request.rack_id, "RackId")
    for name, value in (
        ("GroupId", request.group_id),
        ("MemberId", request.member_id),
        ("InstanceId", request.instance_id),
        ("SubscribedTopicRegex", request.regex),
    ):
        check_length(name, value)
    if request.member_epoch == JOIN_EPOCH:
        _check_join(request)
    elif request.member_epoch == LEAVE_STATIC_EPOCH:
        if request.instance_id is None:
            raise Refused(ErrorCode.INVALID_REQUEST, "InstanceId can't be null.")
    elif request.member_epoch < LEAVE_STATIC_EPOCH:
        raise Refused(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
    if request.assignor is not None and request.assignor not in assignors:
        text = f"ServerAssignor {request.assignor} is not supported. Supported assignors: {', '.join(assignors)}."
        raise Refused(ErrorCode.UNSUPPORTED_ASSIGNOR, text)


def check_length(name: str, value: str | None) -> None:
    """Check that the text fits into the key of a record. Raises Refused; Kafka fails only when it writes the key."""
    if value is not None and len(value) > KEY_TEXT_MAX // 4 and len(value.encode()) > KEY_TEXT_MAX:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{name} is longer than {KEY_TEXT_MAX} bytes.")


def check_not_empty(value: str | None, name: str) -> None:
    """Check that the text, if there is one, is not blank. Raises Refused."""
    if value is not None and not value.strip():
        raise Refused(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")


def _check_join(request: Heartbeat) -> None:
    """A member that joins must set all fields and have no partitions; it may subscribe to no topic."""
    if request.rebalance_timeout_ms == -1:
        raise Refused(ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
    if request.reported is None or request.reported:
        raise Refused(ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
    if request.topics is None and request.regex is None:
        text = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        raise Refused(ErrorCode.INVALID_REQUEST, text)
