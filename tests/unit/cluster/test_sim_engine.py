"""The faults that SimEngine can be given; what it does without them is in test_engine.py."""

import pytest

from fencepost.broker.cluster.engine import Fenced, StoreUnavailable
from tests.kit.engine_worlds import SimWorld, append, joined
from tests.kit.sim_engine import SimEngine


def break_connection(method: str) -> None:
    raise StoreUnavailable(f"the connection broke in {method}")


def test_a_fault_before_a_transaction_prevents_it() -> None:
    """The caller cannot tell it from a lost answer, but a new session can."""
    world = SimWorld()
    broker = joined(world, 1)
    assert isinstance(broker.engine, SimEngine)
    broker.engine.before = break_connection
    with pytest.raises(StoreUnavailable, match="commit"):
        broker.commit(1, append(7, 0))
    assert world.engine().open_session(broker.identity).commit_seq == 0


def test_a_fault_after_a_transaction_loses_its_answer() -> None:
    """A new session has it."""
    world = SimWorld()
    broker = joined(world, 1)
    assert isinstance(broker.engine, SimEngine)
    broker.engine.after = break_connection
    with pytest.raises(StoreUnavailable, match="commit"):
        broker.commit(1, append(7, 0))
    session = world.engine().open_session(broker.identity)
    assert (session.commit_seq, session.bases) == (1, (0,))


def test_a_commit_in_flight_happens_late_unless_a_session_came_first() -> None:
    """This is what sessions are for."""
    for opens in (False, True):
        world = SimWorld()
        broker = joined(world, 1)
        assert isinstance(broker.engine, SimEngine)
        broker.engine.held = {"commit"}
        with pytest.raises(StoreUnavailable, match="in flight"):
            broker.commit(1, append(7, 0))
        if opens:
            assert world.engine().open_session(broker.identity).commit_seq == 0
        (answer,) = world.database.deliver()
        assert isinstance(answer, Fenced) if opens else answer == (0,)
        assert len(world.engine().heads()) == (0 if opens else 1)
        assert world.database.deliver() == []
