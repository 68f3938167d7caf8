"""Where to read on, and how much may wait: the decisions by themselves (KIP-1106, KIP-320, KIP-74)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.client.core.fetch_budget import FetchBudget, Frame
from fencepost.client.core.reset import Truncation, truncated
from fencepost.protocol.reset_policy import EARLIEST, LATEST, parse_reset


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("P1D", 86_400_000),
        ("PT1H", 3_600_000),
        ("PT90M", 5_400_000),
        ("PT15.5S", 15_500),
        ("P1DT2H3M4.005S", 93_784_005),
        ("PT0S", 0),
        ("pt10s", 10_000),
    ],
)
def test_durations_as_java_reads_them(text: str, milliseconds: int) -> None:
    """KIP-1106"""
    policy = parse_reset(f"by_duration:{text}")
    assert policy.duration_ms == milliseconds
    assert policy.timestamp(100_000_000) == 100_000_000 - milliseconds
    assert policy.timestamp(0) == 0


NO_POLICY = [
    "sometimes",
    "",
    "by_duration",
    *(f"by_duration:{d}" for d in ("", "P", "PT", "-PT1S", "P1M", "1h", "P1DT")),
]


@pytest.mark.parametrize("text", NO_POLICY)
def test_what_is_no_policy(text: str) -> None:
    with pytest.raises(ValueError, match="by_duration: and an ISO-8601 duration"):
        parse_reset(text)


def test_the_plain_policies() -> None:
    assert [parse_reset(kind).timestamp(5) for kind in ("earliest", "latest", "none")] == [EARLIEST, LATEST, None]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((3, 120), None),  # our epoch goes on behind the position
        ((3, 100), None),  # and may end right at it
        ((3, 99), Truncation(3, 99)),
        ((2, 40), Truncation(2, 40)),  # the leader has nothing of our epoch
        ((2, 140), None),  # as Java: only the end counts
        ((-1, -1), Truncation(3, None)),
        ((3, -1), Truncation(3, None)),
    ],
)
def test_what_the_end_of_an_epoch_says(answer: tuple[int, int], expected: Truncation | None) -> None:
    """KIP-320, `SubscriptionState.maybeCompleteValidation`: at position 100, after a record of epoch 3."""
    assert truncated(100, 3, *answer) == expected


@given(st.data(), st.integers(100, 10_000))
def test_the_budget_is_kept_whatever_comes_back(data: st.DataObject, limit: int) -> None:
    """Requests under way and frames that wait, in any order: over the limit only by what a request brought too much."""
    budget = FetchBudget(limit)
    under_way: list[int] = []
    frames: list[tuple[Frame, int]] = []
    excess = 0
    for _ in range(data.draw(st.integers(1, 40))):
        match data.draw(st.sampled_from(["ask", "answer", "take"])):
            case "ask":
                least = data.draw(st.integers(1, 2 * limit))
                room = budget.reserve(data.draw(st.integers(1, 2 * limit)), least)
                if room:
                    under_way.append(room)
            case "answer" if under_way:
                room = under_way.pop(data.draw(st.integers(0, len(under_way) - 1)))
                size, shares = data.draw(st.integers(0, room + 50)), data.draw(st.integers(0, 3))
                budget.settle(room)
                frame = Frame(budget, size)
                for _ in range(shares):
                    frame.share()
                if shares:
                    frames.append((frame, shares))
                    excess += max(size - room, 0)
            case "take" if frames:
                frame, shares = frames.pop(data.draw(st.integers(0, len(frames) - 1)))
                frame.release()
                if shares > 1:
                    frames.append((frame, shares - 1))
        assert budget.held == sum(frame.size for frame, _ in frames)
        assert budget.reserved == sum(under_way)
        assert budget.held + budget.reserved <= limit + excess
    for frame, shares in frames:
        for _ in range(shares):
            frame.release()
    assert budget.held == 0
