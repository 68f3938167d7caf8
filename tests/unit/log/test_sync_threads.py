"""The threads that wait for the disk: side by side where that pays, none where the disk is quick (decision 0018)."""

import threading
import weakref

import pytest
import trio

from fencepost.broker.log.durability.sync_threads import SyncThreads
from fencepost.broker.log.storage.store import FlushFailed


async def test_files_are_flushed_side_by_side_once_the_disk_is_known_to_be_slow():
    """None of a round is reported before all of it is done, and every file is tried whatever becomes of the others."""
    threads = SyncThreads(helpers_max=3)
    running, peak, lock = [0], [0], threading.Lock()
    together = threading.Barrier(4)

    class Slow:
        def __init__(self, number, meet):
            self.number, self.meet = number, meet

        def sync(self):
            with lock:
                running[0] += 1
                peak[0] = max(peak[0], running[0])
            if self.meet:
                together.wait(100)  # four at once, or this breaks
            else:
                threading.Event().wait(0.002)
            with lock:
                running[0] -= 1
            if self.number in (1, 3):
                raise FlushFailed(5, f"file {self.number}")

    assert await threads.sync([Slow(0, False)]) == []
    assert peak[0] == 1
    failures = await threads.sync([Slow(10, False), *(Slow(n, True) for n in range(4))])
    assert sorted(number for number, _ in failures) == [2, 4]
    assert (peak[0], running[0]) == (4, 0)
    threads.close()


async def test_a_thread_that_waits_for_work_keeps_nothing_of_the_last_alive():
    """Else a deleted topic's file stayed open, and its room on the disk taken, until something else was flushed."""

    class File:
        def sync(self):
            threading.Event().wait(0.001)

    threads = SyncThreads(helpers_max=2, worth_seconds=0.0)
    files = [File() for _ in range(6)]
    gone = [weakref.ref(file) for file in files]
    assert await threads.sync(list(files)) == []
    files.clear()
    deadline = trio.current_time() + 10
    while any(ref() is not None for ref in gone) and trio.current_time() < deadline:
        await trio.lowlevel.checkpoint()  # a thread may still be on its way out of the call
    assert [ref() for ref in gone] == [None] * 6
    threads.close()


class Timed:
    """A file whose flush takes as long as told, by a clock of its own."""

    def __init__(self, clock, seconds):
        self.clock, self.seconds, self.threads = clock, seconds, []

    def sync(self):
        self.clock[0] += self.seconds
        self.threads.append(threading.current_thread())


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("fencepost.broker.log.durability.sync_threads.time.perf_counter", lambda: now[0])
    return now


async def test_a_flush_that_is_brief_takes_no_thread(clock):
    """The first is measured in a thread; from then on few small files of a quick disk are flushed on the spot."""
    threads = SyncThreads()
    quick = Timed(clock, 0.0002)
    assert not threads.is_brief(1, 100), "nothing is known of this disk"
    assert await threads.sync([quick]) == []
    assert threads.is_brief(2, 100)
    assert threads.sync_inline([quick]) == []
    assert threads.sync_inline([quick, quick]) == []
    assert [one is threading.main_thread() for one in quick.threads] == [False, True, True, True]
    assert not threads.is_brief(3, 100), "three files take too long"
    assert not threads.is_brief(1, (128 << 10) + 1), "and so may many bytes"
    threads.close()


async def test_a_slow_disk_is_left_to_the_threads(clock):
    threads = SyncThreads()
    assert await threads.sync([Timed(clock, 0.004)]) == []
    assert not threads.is_brief(1, 100)
    for _ in range(20):
        assert await threads.sync([Timed(clock, 0.0001)]) == []
    assert threads.is_brief(1, 100)
    threads.close()


async def test_one_long_flush_on_the_spot_makes_shy_for_a_second(clock):
    """A disk that hangs now and then stops the event loop once, and not again and again."""
    threads = SyncThreads()
    for _ in range(30):
        await threads.sync([Timed(clock, 0.0001)])
    assert threads.sync_inline([Timed(clock, 0.006)]) == []
    for _ in range(40):
        assert await threads.sync([Timed(clock, 0.0001)]) == []
    assert not threads.is_brief(1, 100)
    clock[0] += 1.0
    assert threads.is_brief(1, 100)
    threads.close()


async def test_a_flush_that_fails_on_the_spot_is_told_like_any_other(clock):
    class Bad:
        def sync(self):
            raise FlushFailed(5, "fdatasync: Input/output error", "somewhere")

    threads = SyncThreads()
    await threads.sync([Timed(clock, 0.0001)])
    failures = threads.sync_inline([Timed(clock, 0.0001), Bad()])
    assert [(number, error.filename) for number, error in failures] == [(1, "somewhere")]
    threads.close()
