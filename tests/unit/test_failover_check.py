"""The checker of failovers that lose commits: what it must find, and what it must allow."""

from collections.abc import Sequence

import pytest

from tests.kit.failover_check import Fate, Kept, Played, Sent, Transaction, check
from tests.kit.history import READ_COMMITTED, READ_UNCOMMITTED, Log, Place

A: Place = ("loose", 0)
T0: Place = ("transactions", 0)
T1: Place = ("transactions", 1)


def verdict(
    logs: dict[Place, Log],
    sent: Sequence[Sent],
    transactions: Sequence[Transaction] = (),
    kept: Sequence[Kept] = (),
    hidden: Sequence[str] = (),
) -> str:
    """What the checker says; `hidden` values are those that read_committed does not get."""
    committed = {place: [one for one in log if one[1] not in hidden] for place, log in logs.items()}
    everything = [*sent, *(one for transaction in transactions for one in transaction.sent)]
    view = {READ_UNCOMMITTED: logs, READ_COMMITTED: committed}
    return "\n".join(check(Played(everything, transactions, kept, {"at the end": view})).violations)


def in_transaction(fate: Fate, era: int = 0) -> Transaction:
    """One of two records."""
    return Transaction("txn", [Sent(T0, "t0", 0, era), Sent(T1, "t1", 0, era)], fate, era)


def test_a_failover_may_lose_what_the_promoted_database_lacks() -> None:
    kept = Kept({A: 1}, {A: 1})
    sent = [Sent(A, "kept", 0), Sent(A, "lost", 1), Sent(A, "later", 1, era=1)]
    assert verdict({A: [(0, "kept"), (1, "later")]}, sent, kept=[kept]) == ""


def test_a_later_failover_counts_too() -> None:
    sent = [Sent(A, "first", 0), Sent(A, "second", 1, era=1)]
    assert verdict({A: [(0, "first")]}, sent, kept=[Kept({A: 1}, {A: 1})] * 2) == ""
    assert "is lost" in verdict({A: [(0, "first")]}, sent, kept=[Kept({A: 1}, {A: 1}), Kept({A: 2}, {A: 2})])


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ([(0, "kept")], "an acknowledged record is lost"),
        ([(1, "later")], "an acknowledged record is lost"),
        ([(0, "kept"), (1, "other")], "an acknowledged record is changed"),
        ([(0, "kept"), (1, "later"), (2, "kept")], "a record is there twice"),
        ([(0, "kept"), (1, "later"), (2, "unknown")], "a record was never sent"),
    ],
)
def test_what_must_be_there_is_missed(log: Log, words: str) -> None:
    sent = [Sent(A, "kept", 0), Sent(A, "later", 1, era=1), Sent(A, "other", None)]
    assert words in verdict({A: log}, sent, kept=[Kept({A: 1}, {A: 1})])


def test_a_transaction_is_whole_or_absent() -> None:
    before = [Kept({T0: 1, T1: 1}, {T0: 0, T1: 0})]
    both: dict[Place, Log] = {T0: [(0, "t0")], T1: [(0, "t1")]}
    one: dict[Place, Log] = {T0: [(0, "t0")], T1: []}
    for fate in (Fate.COMMITTED, Fate.UNKNOWN):
        assert verdict(both, [], [in_transaction(fate)], before) == ""
        assert verdict(both, [], [in_transaction(fate)], before, hidden=("t0", "t1")) == ""
        assert "a transaction is torn" in verdict(both, [], [in_transaction(fate)], before, hidden=("t1",))
    assert "a transaction that was not committed is shown" in verdict(both, [], [in_transaction(Fate.ABORTED)], before)
    assert "a committed transaction is lost" in verdict(
        both, [], [in_transaction(Fate.COMMITTED, 1)], before, ("t0", "t1")
    )
    ended = [Kept({T0: 2, T1: 2}, {T0: 2, T1: 2})]
    assert "a committed transaction is lost" in verdict(both, [], [in_transaction(Fate.COMMITTED)], ended, ("t0", "t1"))
    assert "an acknowledged record is lost" in verdict(one, [], [in_transaction(Fate.COMMITTED)], ended)


def test_a_plain_record_is_hidden_behind_no_transaction() -> None:
    assert "is hidden from read_committed" in verdict({A: [(0, "plain")]}, [Sent(A, "plain", 0)], hidden=("plain",))
