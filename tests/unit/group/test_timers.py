"""Timers that are started over cost nothing and fire once."""

from fencepost.coordinator.group.timers import TimerKey, TimerKind
from fencepost.coordinator.runtime.timers import Timers

A = TimerKey(TimerKind.SESSION, "g", "a")
B = TimerKey(TimerKind.SESSION, "g", "b")


def test_timers_fire_once_in_order() -> None:
    timers = Timers[TimerKey]()
    assert timers.set(B, 2.0)
    assert timers.set(A, 1.0)
    assert not timers.set(TimerKey(TimerKind.JOIN, "g"), 9.0)
    assert timers.next_deadline() == 1.0
    assert list(timers.due(0.5)) == []
    assert list(timers.due(2.0)) == [A, B]
    assert list(timers.due(2.0)) == []
    assert len(timers) == 1


def test_a_timer_started_over_fires_at_its_new_deadline_only() -> None:
    timers = Timers[TimerKey]()
    timers.set(A, 1.0)
    for deadline in range(2, 100):
        assert not timers.set(A, float(deadline))
    assert list(timers.due(1.0)) == []
    assert list(timers.due(98.0)) == []
    assert list(timers.due(99.0)) == [A]
    assert timers.next_deadline() is None


def test_a_timer_moved_forward_fires_early_and_not_again() -> None:
    timers = Timers[TimerKey]()
    timers.set(A, 5.0)
    assert timers.set(A, 1.0)
    assert list(timers.due(1.0)) == [A]
    assert list(timers.due(6.0)) == []


def test_a_stopped_timer_never_fires_but_can_start_again() -> None:
    timers = Timers[TimerKey]()
    timers.set(A, 1.0)
    timers.stop(A)
    timers.set(A, 2.0)
    assert list(timers.due(1.5)) == []
    assert list(timers.due(2.0)) == [A]
    timers.set(B, 3.0)
    timers.stop(B)
    assert list(timers.due(10.0)) == []


def test_one_that_is_due_may_start_another_over_that_was_due_with_it() -> None:
    """After a stall many are due at once: the first completes a Join, so the second's session has begun anew."""
    timers = Timers[TimerKey]()
    timers.set(A, 1.0)
    timers.set(B, 2.0)
    due = timers.due(5.0)
    assert next(due) == A
    timers.set(B, 15.0)
    assert list(due) == []
    assert list(timers.due(15.0)) == [B]
