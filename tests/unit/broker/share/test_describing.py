"""What tools are shown of a share partition's records."""

from fencepost.broker.share.describing import stored_ranges
from fencepost.broker.share.values import AckBatch, AcquireMode, Limits
from fencepost.coordinator.share.values import DeliveryState, PendingBatch, StateBatch, StoredState
from tests.kit.share_partition import Share

AVAILABLE, ACQUIRED, ACKNOWLEDGED, _, ARCHIVED, TX_PENDING = DeliveryState
ACCEPT, RELEASE, REJECT = 1, 2, 3


def test_ranges_name_state_count_member_and_the_time_that_is_left() -> None:
    share = Share(Limits(lock_ms=1000))
    share.fetch("one", (0, 9), most=4, mode=AcquireMode.RECORD_LIMIT)
    share.now = 400
    share.fetch("two", (4, 9))
    share.ack("one", 1, 1, ACCEPT)
    share.ack("one", 2, 2, REJECT)
    share.ack("one", 3, 3, RELEASE)
    assert list(share.it.ranges(600)) == [
        (0, 0, ACQUIRED, 1, "one", 400, -1),
        (1, 1, ACKNOWLEDGED, 1, "", -1, -1),
        (2, 2, ARCHIVED, 1, "", -1, -1),
        (3, 3, AVAILABLE, 1, "", -1, -1),
        (4, 9, ACQUIRED, 1, "two", 800, -1),
    ]


def test_neighbours_alike_are_one_range_and_what_is_below_the_start_is_gone() -> None:
    share = Share()
    share.fetch("one", (0, 1), (2, 3), (4, 9), batch_size=1)
    share.ack("one", 0, 2, ACCEPT)
    assert share.it.start_offset == 3
    assert list(share.it.ranges(0)) == [(3, 9, ACQUIRED, 1, "one", 30_000, -1)]


def test_an_end_that_is_being_stored_is_not_shown_yet() -> None:
    """An acknowledgement counts when it is stored (KIP-932): until then the member holds the record."""
    share = Share()
    share.fetch("one", (0, 3))
    change = share.say("one", 0, 3, ACCEPT)
    assert list(share.it.ranges(0)) == [(0, 3, ACQUIRED, 1, "one", 30_000, -1)]
    share.store(change)
    assert list(share.it.ranges(0)) == []


def test_what_was_stored_is_shown_with_its_holes() -> None:
    stored = [StateBatch(2, 4, ACKNOWLEDGED, 1), StateBatch(7, 7, AVAILABLE, 3)]
    share = Share(start=0, stored=stored)
    assert list(share.it.ranges(0)) == [(2, 4, ACKNOWLEDGED, 1, "", -1, -1), (7, 7, AVAILABLE, 3, "", -1, -1)]


def test_what_a_transaction_acknowledged_names_its_producer() -> None:
    """After KIP-1289's draft: no member holds it, and its lock has no effect."""
    share = Share()
    share.fetch("one", (0, 3))
    share.store(share.it.acknowledge_in("one", [AckBatch(1, 2, [ACCEPT])], 7))
    held = "one", 30_000, -1
    assert list(share.it.ranges(0)) == [
        (0, 0, ACQUIRED, 1, *held),
        (1, 2, TX_PENDING, 1, "", -1, 7),
        (3, 3, ACQUIRED, 1, *held),
    ]
    batches = StateBatch(0, 0, AVAILABLE, 1), StateBatch(1, 2, TX_PENDING, 1)
    stored = StoredState(batches=batches, pending=(PendingBatch(7, StateBatch(1, 2, ACKNOWLEDGED, 1)),))
    assert stored_ranges(stored, 0) == [(0, 0, AVAILABLE, 1, "", -1, -1), (1, 2, TX_PENDING, 1, "", -1, 7)]
