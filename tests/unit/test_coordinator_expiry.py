"""Timers and expiry of a coordinator: a programming error in one group ends neither the broker nor other groups."""

import pytest
import trio
from trio.testing import MockClock

from fencepost.coordinator.runtime.runtime import CoordinatorRuntime


class Clock:
    """trio's time."""

    def monotonic(self) -> float:
        return trio.current_time()


class Logs:
    """No log is ever opened."""

    count = 1


class Hooks:
    """Notes the timers that expired; `failing` ones raise once."""

    def __init__(self) -> None:
        self.expired: list[str] = []
        self.failing = ["a"]
        self.began = trio.current_time()

    async def expire(self, timer: str) -> None:
        if timer in self.failing:
            self.failing.remove(timer)
            raise ZeroDivisionError(timer)
        self.expired.append(f"{timer} after {trio.current_time() - self.began:.0f} s")


async def test_a_timer_that_fails_ends_no_other_and_fires_again(
    nursery: trio.Nursery, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    hooks = Hooks()
    runtime = CoordinatorRuntime("__sums", Logs(), Clock(), None, hooks)
    nursery.start_soon(runtime.serve)
    for name, delay_ms in (("a", 5000), ("b", 5000), ("c", 9000)):
        runtime.set_timer(name, delay_ms)
    await trio.sleep(20)
    assert sorted(hooks.expired) == ["a after 6 s", "b after 5 s", "c after 9 s"]
    assert runtime.failed_expiries == 1
    assert any(record.exc_info for record in caplog.records), "the traceback is in the log"
