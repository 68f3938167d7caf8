"""Values of the core: frozen for the type checker alone, and in all else as a frozen dataclass is."""

from dataclasses import replace

from fencepost.coordinator.group.state import Empty, Member, Stable
from tests.unit.group import kit

MEMBER = Member("m", None, "c", "/h", 1, 2, (("range", b""),))


def test_values_are_equal_and_hashed_by_what_they_hold() -> None:
    same = Member("m", None, "c", "/h", 1, 2, (("range", b""),))
    assert same == MEMBER
    assert hash(same) == hash(MEMBER)
    assert replace(MEMBER, session_timeout_ms=3) != MEMBER
    assert Empty(1) != Stable(1, "consumer", "range", None, {})
    assert kit.join("a") == kit.join("a") != kit.join("b")
