"""Which acknowledgements of a request are valid: Kafka's `KafkaApis.validateAcknowledgementBatches`."""

import pytest

from fencepost.broker.share.led import client_error
from fencepost.broker.share.requests import counted_types, is_member_id, problem
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api79_share_acknowledge import AcknowledgementBatch

ACCEPT, RENEW = 1, 4


def batch(first: int, last: int, *types: int) -> AcknowledgementBatch:
    return AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))


@pytest.mark.parametrize(
    "batches",
    [
        [batch(0, 9, ACCEPT)],
        [batch(0, 2, 1, 2, 3)],
        [batch(0, 4, ACCEPT), batch(5, 9, 0)],
        [batch(7, 7, 2)],
    ],
)
def test_one_type_for_all_offsets_or_one_for_each(batches: list[AcknowledgementBatch]) -> None:
    """validateAcknowledgementBatches: batches in order, with one type or as many as offsets."""
    assert not problem(batches, may_renew=True, is_renewal=False)


@pytest.mark.parametrize(
    "batches",
    [
        [batch(5, 4, ACCEPT)],
        [batch(5, 9, ACCEPT), batch(3, 4, ACCEPT)],
        [batch(0, 9)],
        [batch(0, 9, 1, 1)],
        [batch(0, 9, 5)],
        [batch(0, 9, -1)],
        [batch(0, 9, RENEW)],
    ],
)
def test_other_batches_are_invalid(batches: list[AcknowledgementBatch]) -> None:
    """validateAcknowledgementBatches: INVALID_REQUEST; a renewal only in a request that says it renews (KIP-1222)."""
    assert problem(batches, may_renew=True, is_renewal=False)


def test_version_1_knows_no_renewals() -> None:
    """validateAcknowledgementBatches: the highest type is 4 from v2 on, and 3 before (KIP-1222)."""
    assert not problem([batch(0, 0, RENEW)], may_renew=True, is_renewal=True)
    assert problem([batch(0, 0, RENEW)], may_renew=False, is_renewal=True)


def test_a_member_id_is_as_long_as_a_uuids_text_at_most() -> None:
    """KafkaApis.isMemberIdValid."""
    assert is_member_id("m" * 36)
    assert not any(is_member_id(name) for name in (None, "", "m" * 37))


@pytest.mark.parametrize(
    ("found", "answered"),
    [
        (ErrorCode.NONE, ErrorCode.NONE),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_errors_of_the_share_coordinator_as_members_see_them(found: ErrorCode, answered: ErrorCode) -> None:
    """SharePartition.fetchPersisterError."""
    assert client_error(found) is answered


def test_types_are_counted_for_each_record() -> None:
    """SharePartitionManager.acknowledge: one type stands for all offsets of its batch."""
    assert counted_types([batch(0, 9, 1), batch(10, 12, 1, 0, 3)]) == {1: 11, 0: 1, 3: 1}
