"""The requests of a share group's members, and what is wrong with them in every group."""

from typing import NamedTuple

from fencepost.coordinator.group.consumer.member import JOIN_EPOCH, LEAVE_EPOCH
from fencepost.coordinator.group.consumer.refused import Refused
from fencepost.coordinator.group.consumer.requests import check_length, check_not_empty
from fencepost.protocol.errors import ErrorCode

MEMBER_ID_MAX = 36
"""The longest member id: that of a UUID in its usual form (KafkaApis.isMemberIdValid)."""


class ShareHeartbeat(NamedTuple):
    """A ShareGroupHeartbeat; None means that nothing changed since the last one. The client chose the member id."""

    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None = None
    topics: tuple[str, ...] | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def leaves(self) -> bool:
        return self.member_epoch == LEAVE_EPOCH


def check(request: ShareHeartbeat) -> None:
    """Refuse requests that are invalid for every group. Raises Refused with INVALID_REQUEST.

    (Kafka's KafkaApis.isMemberIdValid and GroupCoordinatorService.throwIfShareGroupHeartbeatRequestIsInvalid)
    """
    if not 0 < len(request.member_id) <= MEMBER_ID_MAX:
        raise Refused(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    check_not_empty(request.member_id, "MemberId")
    check_not_empty(request.group_id, "GroupId")
    check_not_empty(request.rack_id, "RackId")
    check_length("GroupId", request.group_id)
    if request.member_epoch == JOIN_EPOCH and not request.topics:
        raise Refused(ErrorCode.INVALID_REQUEST, "SubscribedTopicNames must be set in first request.")
    if request.member_epoch < LEAVE_EPOCH:
        raise Refused(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
