"""The header that schedules a record (ours)."""

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

import fencepost
from fencepost.protocol.not_before import not_before_ms


def test_a_time_or_a_while_from_now() -> None:
    """H15: a datetime with its time zone, seconds, or a timedelta."""
    nine = datetime(2026, 11, 30, 9, tzinfo=timezone(timedelta(hours=1)))
    assert fencepost.not_before(nine) == ("not-before", b"1796025600000")
    assert fencepost.not_before(datetime(1960, 1, 1, tzinfo=UTC)) == ("not-before", b"0")
    for when in (60, 60.0, timedelta(minutes=1)):
        before_ms = time.time_ns() // 1_000_000
        found = not_before_ms([fencepost.not_before(when)])
        assert found is not None
        assert before_ms + 60_000 <= found <= time.time_ns() // 1_000_000 + 60_000


def test_what_is_no_time() -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        fencepost.not_before(datetime(2026, 11, 30))
    with pytest.raises(ValueError, match="is not a duration"):
        fencepost.not_before("tomorrow")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be finite"):
        fencepost.not_before(float("inf"))
