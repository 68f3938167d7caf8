"""Commits across broken connections: each happens once, and the broker learns its offsets."""

import pytest

from fencepost.broker.cluster.commit.writer import MANY_CONFLICTS, Stopped, Writer
from fencepost.broker.cluster.engine import (
    SLOTS,
    Append,
    Conflict,
    Fenced,
    NewLog,
    Placement,
    Row,
    RowKind,
    StoreUnavailable,
    log_id,
)
from fencepost.broker.cluster.history import History
from tests.kit.shared_store import LEASE_MS, TOPIC_ID
from tests.kit.sim_engine import SimEngine
from tests.kit.sim_tables import SimDatabase

LOG = log_id(TOPIC_ID, 0)
ROW = Row(-1, 2, RowKind.RUN, 1, Placement(0, 0, 3), 0, 1, (7,), b"head", b"", b"abc")


class Fault:
    """Breaks the connection before or after the next calls of a method."""

    def __init__(self, method: str, times: int = 1) -> None:
        self.method = method
        self.left = times

    def __call__(self, method: str) -> None:
        if method == self.method and self.left:
            self.left -= 1
            raise StoreUnavailable("the connection broke")


def begun() -> tuple[SimDatabase, SimEngine, Writer]:
    database = SimDatabase(lambda: 0)
    engine = SimEngine(database)
    session = engine.join(1, "here", LEASE_MS)
    engine.take_over(session.identity, range(SLOTS), LEASE_MS)
    return database, engine, Writer(engine, session)


def append(expected: int = 0) -> Append:
    return Append(LOG, expected, False, ROW, NewLog("orders-0", TOPIC_ID) if not expected else None)


def test_a_commit_whose_answer_was_lost_happened_once() -> None:
    database, engine, writer = begun()
    engine.after = Fault("commit")
    assert writer.commit([append()]) == (0,)
    assert [row.base for row in database.rows[LOG]] == [0]
    assert writer.commit([append(2)]) == (2,), "the sequence goes on"


def test_a_commit_that_never_reached_the_database_is_sent_again() -> None:
    database, engine, writer = begun()
    engine.before = Fault("commit")
    assert writer.commit([append()]) == (0,)
    assert len(database.rows[LOG]) == 1


def test_the_broker_asks_until_the_database_answers() -> None:
    database, engine, writer = begun()
    engine.before, engine.after = Fault("open_session", 3), Fault("commit")
    assert writer.commit([append()]) == (0,)
    assert len(database.rows[LOG]) == 1
    assert writer.unavailable is None


def test_what_an_old_connection_still_carries_cannot_take_effect() -> None:
    """The answer of a new session is final: a commit under way on the old connection is fenced by its session."""
    database, engine, writer = begun()
    engine.held = {"commit"}

    def let_pass(method: str) -> None:
        engine.held = set()

    engine.after = let_pass  # from the new session on, commits are not held back
    assert writer.commit([append()]) == (0,)
    (late,) = database.deliver()
    assert isinstance(late, Fenced)
    assert len(database.rows[LOG]) == 1


def test_a_broker_that_was_taken_over_commits_nothing_for_ever() -> None:
    database, _, writer = begun()
    other = SimEngine(database)
    database.now_ms = lambda: LEASE_MS + 1
    session = other.join(2, "there", LEASE_MS)
    assert len(other.take_over(session.identity, range(SLOTS), LEASE_MS)) == SLOTS
    for _ in range(2):
        with pytest.raises(Fenced):
            writer.commit([append()])
    with pytest.raises(Fenced):
        writer.renew()
    assert writer.fenced
    assert LOG not in database.rows or not database.rows[LOG]


def test_a_broker_that_stops_waits_for_no_database() -> None:
    database, engine, writer = begun()
    engine.before = Fault("commit")
    writer.stop()
    with pytest.raises(Stopped):
        writer.commit([append()])
    assert not database.rows.get(LOG)


def test_a_renewal_moves_the_lease() -> None:
    clock = [10.0]
    database = SimDatabase(lambda: 0)
    engine = SimEngine(database)
    writer = Writer(engine, engine.join(1, "here", LEASE_MS), lambda: clock[0])
    clock[0] = 11.0
    engine.before = Fault("renew")
    writer.renew()
    assert writer.renewed_at == 11.0


def test_a_broker_does_not_go_on_with_a_database_that_lost_its_commits() -> None:
    """As after a failover to an asynchronous standby: what this broker reads from its memory may not exist any more."""
    database, engine, writer = begun()
    writer.commit([append()])
    database.brokers[1] = database.brokers[1]._replace(commit_seq=0, bases=())
    engine.before = Fault("renew")
    with pytest.raises(Fenced, match="lost commits"):
        writer.renew()
    assert writer.fenced


def test_conflicts_that_repeat_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    """Before, a broker tried again for ever, and nothing said so. /ready has the text."""
    _, _, writer = begun()
    stuck = append(5)._replace(new_log=None)
    for number in range(1, 2 * MANY_CONFLICTS + 1):
        with pytest.raises(Conflict):
            writer.commit([stuck])
        assert (writer.conflict is None) == (number < MANY_CONFLICTS)
        assert writer.counters.conflicts == number
    assert str(LOG) in str(writer.conflict)
    assert len([one for one in caplog.records if "nothing is committed" in one.getMessage()]) == 2
    assert writer.commit([append()]) == (0,)
    assert writer.conflict is None


def test_a_broker_that_stops_does_not_try_conflicts_again() -> None:
    """Before, SIGTERM did not end it."""
    clock = [0.0]
    database = SimDatabase(lambda: 0)
    engine = SimEngine(database)
    writer = Writer(engine, engine.join(1, "here", LEASE_MS), lambda: clock[0])
    writer.stop(1.0)
    with pytest.raises(Conflict):
        writer.commit([append(5)])
    clock[0] = 1.0
    with pytest.raises(Stopped):
        writer.commit([append(5)])


def test_a_broker_whose_database_lost_what_it_read_is_fenced_for_ever() -> None:
    """Its own commits are all there."""
    database = SimDatabase(lambda: 0)
    history, engine, other = History(), SimEngine(database), SimEngine(database)
    for one in (engine, other):
        one.watch(history)
    writer = Writer(engine, engine.join(1, "here", LEASE_MS), history=history)
    second = SimEngine(database)
    identity = second.join(2, "there", LEASE_MS).identity
    saved = database.saved()
    second.renew(identity)
    other.members()
    database.go_back(saved)
    for _ in range(2):
        with pytest.raises(Fenced):
            writer.renew()
    assert writer.history.is_lost
