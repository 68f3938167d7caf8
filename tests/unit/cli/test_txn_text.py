"""What `fencepost txn why` says for each verdict, and how values are shown to people."""

from datetime import UTC, datetime
from typing import Any

import pytest

from fencepost.cli.plain_text import age, cell, json_value, moment, table
from fencepost.cli.txn.text import describe_text, why_text
from fencepost.client.admin.last_stable_offset import NO_TIMEOUT_MS
from fencepost.client.admin.types import (
    HistoryEvent,
    Holder,
    LastStableOffsetInfo,
    ProducerState,
    TransactionDescription,
    TransactionHistory,
    Verdict,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

NOW_MS = 1_700_000_060_000
BEGAN = datetime.fromtimestamp(1_700_000_000, UTC)
T3 = TopicPartition("orders", 3)
PRODUCER = ProducerState(17, 4, 9, 1_700_000_030_000, -1, 1042)
HISTORY = TransactionHistory("billing", "10.0.0.7", "billing", "10.0.0.7", ())
BOOTSTRAP = "127.0.0.1:9092"


def listing(state: str = "Ongoing", **more: Any) -> TransactionDescription:
    facts: dict[str, Any] = {"timeout_ms": 108_000, "history": HISTORY, "blocks": (T3,), **more}
    return TransactionDescription("billing-2", state, 17, 4, facts.pop("timeout_ms"), BEGAN, (T3,), **facts)


def told(verdict: Verdict, known: TransactionDescription | None, *others: Holder) -> str:
    held = LastStableOffsetInfo(T3, 1042, 9381, (Holder(PRODUCER, 1042, verdict, known), *others), ())
    return why_text(held, NOW_MS, BOOTSTRAP)


@pytest.mark.parametrize(
    ("verdict", "known", "says"),
    [
        (Verdict.OPEN, listing(), ("times out in 48 s", "fencepost txn abort billing-2")),
        (Verdict.OPEN, listing(history=None), ("unknown: only a fencepost broker reports it",)),
        (
            Verdict.PREPARED,
            listing(timeout_ms=NO_TIMEOUT_MS),
            ("times out never", "Only if the outside database has NOT committed", "abort billing-2 --even-two-phase"),
        ),
        (Verdict.COMPLETING, listing("PrepareCommit"), ("Its outcome is decided; its markers are being written",)),
        (
            Verdict.UNOWNED,
            None,
            ("no transactional id has producer id 17", "Check again", "fencepost txn why orders:3"),
        ),
        (Verdict.HANGING, None, ("It hangs", "fencepost txn hanging --topic orders --partition 3 --repair")),
    ],
)
def test_each_verdict_has_its_remedy(
    verdict: Verdict, known: TransactionDescription | None, says: tuple[str, ...]
) -> None:
    text = told(verdict, known)
    assert "read_committed readers are held back by 8339 offsets." in text
    for part in says:
        assert part in text


@pytest.mark.parametrize("verdict", [Verdict.COMPLETING, Verdict.UNOWNED])
def test_what_ends_by_itself_is_never_to_be_aborted(verdict: Verdict) -> None:
    known = listing("PrepareCommit") if verdict is Verdict.COMPLETING else None
    text = told(verdict, known)
    assert "txn abort" not in text
    assert "--repair" not in text


def test_those_behind_it_are_named() -> None:
    text = told(Verdict.OPEN, listing(), Holder(PRODUCER._replace(producer_id=9), 1100, Verdict.HANGING, None))
    assert "Behind it, 1 more open transaction:" in text
    assert "1100  9:4       -                 hanging" in text


def test_a_command_to_copy_survives_a_shell() -> None:
    """What a client chose as its id may hold anything; and the command goes to the same broker."""
    known = listing()._replace(transactional_id="it's; rm -rf /")
    held = LastStableOffsetInfo(T3, 1042, 9381, (Holder(PRODUCER, 1042, Verdict.OPEN, known),), ())
    text = why_text(held, NOW_MS, "kafka:9093")
    assert """fencepost txn abort 'it'"'"'s; rm -rf /' --bootstrap kafka:9093""" in text


def test_a_story_is_told_in_order() -> None:
    lines = (
        HistoryEvent(1_700_000_001_000, 1_700_000_001_000, 1, "newcomer", None, "", "", "17:4: taken over"),
        HistoryEvent(
            1_700_000_002_000, 1_700_000_009_000, 7, "newcomer", ErrorCode.PRODUCER_FENCED, "a", "h", "because"
        ),
    )
    text = describe_text(listing(history=HISTORY._replace(lines=lines)), NOW_MS)
    assert text.index("changed, newcomer") < text.index("refused PRODUCER_FENCED, newcomer (7 times, last 2023-11-14")
    assert "partitions        orders:3" in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0 ms"),
        (0.04, "40 ms"),
        (1.44, "1.4 s"),
        (59, "59 s"),
        (192, "3 min 12 s"),
        (7500, "2 h 5 min"),
        (86_400, "1 d"),
    ],
)
def test_ages(seconds: float, text: str) -> None:
    assert age(seconds) == text


def test_values_of_clients_stay_on_their_line() -> None:
    assert cell("a\nb\x1b[31m") == "a\\nb\\x1b[31m"
    assert len(cell("x" * 500)) == 249
    assert (cell(""), cell(None), moment(-1)) == ("-", "-", "-")
    assert table(("A", "B"), [("x", 1), ("yy", 22)]) == "A    B\nx    1\nyy  22"


def test_json_of_what_is_told() -> None:
    value = json_value(LastStableOffsetInfo(T3, 1, 2, (Holder(PRODUCER, 1, Verdict.OPEN, listing()),), ()))
    assert value["partition"] == "orders:3"
    assert value["holders"][0]["verdict"] == "open"
    assert value["holders"][0]["transaction"]["started"] == "2023-11-14T22:13:20+00:00"
