"""Why a record of a share group does not move, from what brokers report (KIP-932)."""

import pytest

from fencepost.client.admin import ConfigEntry, GroupDescription, GroupMember, ShareGroupOffset
from fencepost.client.admin.lag import Reach
from fencepost.client.admin.queues import IN_FLIGHT_MAX, ISOLATION, Why, explain_record
from fencepost.client.admin.share_types import RecordRange, RecordStates
from fencepost.protocol.admin_enums import ConfigSource

MEMBER = GroupMember("one", None, "billing", "/127.0.0.1", ())
GROUP = GroupDescription("g", "Stable", "share", "simple", (MEMBER,), "share")
EMPTY = GROUP._replace(state="Empty", members=())
RANGES = (
    RecordRange(10, 11, "acquired", 2, "one", 1500),
    RecordRange(12, 12, "acknowledged", 1),
    RecordRange(14, 14, "pending", 1, producer_id=7),
    RecordRange(15, 15, "archived", 5),
    RecordRange(16, 16, "acquired", 1, "gone", 10),
    RecordRange(17, 17, "archiving", 5),
    RecordRange(18, 18, "available", 3),
)

STATES = RecordStates(10, 19, RANGES, complete=True)
REACH = Reach(5, 25, 30)


def setting(name: str, value: str) -> dict[str, ConfigEntry]:
    return {name: ConfigEntry(name, value, ConfigSource.DYNAMIC_GROUP_CONFIG, read_only=False, sensitive=False)}


SETTINGS = setting(ISOLATION, "read_committed") | setting(IN_FLIGHT_MAX, "12")


def why(
    offset: int, states: RecordStates | None = STATES, start: int | None = 10, group: GroupDescription = GROUP
) -> Why:
    return explain_record(offset, ShareGroupOffset(start, 0, None, states), REACH, group, SETTINGS)


@pytest.mark.parametrize(
    ("offset", "state", "words"),
    [
        (4, "deleted", "The log begins at 5"),
        (9, "done", "start offset is 10"),
        (10, "acquired", "Member one (billing at 127.0.0.1) holds it, delivered 2 times. Its lock ends in 1.5 s."),
        (12, "acknowledged", "The start offset passes it when all records before it are done."),
        (13, "available", "It was never delivered."),
        (14, "pending", "in a transaction of producer 7, which is still open"),
        (15, "archived", "given up after 5 deliveries"),
        (16, "acquired", "Member gone (no member of the group any more) holds it"),
        (17, "archiving", "dead-letter topic"),
        (18, "available", "It was delivered 3 times, and released."),
        (19, "available", "It was never delivered. The next fetch of a member may get it"),
        (22, "beyond the limit", "At most 12 offsets from the start offset on may be in flight"),
        (25, "in an open transaction", "the last stable offset is 25"),
        (30, "not written", "The log ends at 30"),
    ],
)
def test_each_answer(offset: int, state: str, words: str) -> None:
    found = why(offset)
    assert (found.state, words in found.text) == (state, True), found


def test_a_group_that_has_not_begun_or_has_no_members() -> None:
    assert why(12, states=None, start=None).state == "not begun"
    assert why(18, group=EMPTY).text == "It was delivered 3 times, and released. The group has no members: start one."


def test_a_record_that_is_held_back() -> None:
    """H8: its state says so, and until when."""
    found = why(10, states=RecordStates(10, 11, (RecordRange(10, 10, "available", 1, lock_ms=61_500),), complete=True))
    assert found[:2] == ("held back", "It was delivered once, and released. No member gets it in the next 61.5 s.")


def test_what_is_not_reported_is_unknown() -> None:
    """Apache Kafka reports no states; fencepost cuts off what is too much for one response."""
    assert why(12, states=None).state == "unknown"
    assert why(9, states=None).state == "done"
    assert why(17, states=RecordStates(10, 19, RANGES[:2], complete=False)).state == "unknown"


def test_read_uncommitted_sees_open_transactions() -> None:
    found = explain_record(
        26, ShareGroupOffset(10, 0, None, STATES), REACH, GROUP, setting(ISOLATION, "read_uncommitted")
    )
    assert found.state == "available"


def test_a_state_that_a_newer_broker_has() -> None:
    states = RecordStates(10, 11, (RecordRange(10, 10, "state 9", 1),), complete=True)
    assert why(10, states=states) == (
        "state 9",
        "Its state is 'state 9', which this version does not know.",
        states.ranges[0],
    )
