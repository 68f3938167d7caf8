"""The service that makes time for compactions: which log, how far, how fast, and what becomes of failures (row L4)."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from fencepost.broker.coordinator_logs import PartitionCoordinatorLog
from fencepost.broker.log.compaction.cleanable import CleanableRange
from fencepost.broker.log.compaction.cleaner import CleanerSettings, LogCleaner
from fencepost.broker.log.compaction.cleaning import Cleaning, CleaningInterrupted, CleaningLimits, Steps
from fencepost.broker.log.compaction.record_work import Offload, Work
from fencepost.broker.log.durability.flusher import LogFlusher
from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.reading import read_batches
from fencepost.broker.log.storage.checkpoints import decode_offsets
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.log.storage.store import FileRegion
from fencepost.coordinator.ports import ProducerTag
from fencepost.protocol.topics import TopicPartition
from tests.kit.trimming import delete_records
from tests.unit.log.compaction_kit import COMPACT, HOUR_MS, begin, clean, put, seen, segments_of
from tests.unit.log.kit import (
    COMMITTED,
    NOW_MS,
    TOPIC_ID,
    TP,
    UNCOMMITTED,
    crashed,
    directory_over,
    end,
    headers,
    joined,
    log_file,
    over,
)

DEFAULT = CleanerSettings()
OTHER = TopicPartition("other", 0)


def cleaner_of(directory: LogManager, settings: CleanerSettings = DEFAULT) -> LogCleaner:
    return LogCleaner(directory, lambda: settings, lambda: NOW_MS)


def step(steps: Steps, answer: object) -> Work | None:
    """The next step; None when there is none."""
    try:
        return steps.send(answer)
    except StopIteration:
        return None


def dirty(directory: LogManager, tp: TopicPartition = TP, count: int = 60) -> PartitionLog:
    """A log whose every record but one is superseded, with its segments closed."""
    log = directory.create(tp, TOPIC_ID, COMPACT)
    for number in range(count):
        put(log, ("k", f"v{number}"))
    log.roll(NOW_MS)
    return log


async def test_the_dirtiest_log_comes_first_and_its_offset_is_kept_over_a_restart(autojump_clock: MockClock) -> None:
    """L4: the first dirty offset stands in cleaner-offset-checkpoint, in Kafka's format."""
    store = MemoryStore()
    directory = directory_over(store)
    clean_one, log = dirty(directory, OTHER), dirty(directory)
    cleaner = cleaner_of(directory)
    directory.kept.note_cleaned(OTHER, clean_one.log_end_offset)
    put(clean_one, ("k", "v"))
    clean_one.roll(NOW_MS)
    assert await cleaner.clean_dirtiest()
    assert (cleaner.dirtiest_ratio, directory.kept.cleaned_to.get(TP, 0)) == (1.0, log.log_end_offset)
    assert not await cleaner.clean_dirtiest()
    assert decode_offsets(store.load("cleaner-offset-checkpoint"), "") == {TP: 60, OTHER: 60}
    assert directory_over(store).kept.cleaned_to.get(TP, 0) == 60
    directory.delete(TP)
    assert directory.kept.cleaned_to.get(TP, 0) == 0


async def test_a_log_that_can_not_be_compacted_is_named_once_and_left_alone(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """L4: damage makes one partition uncleanable; others are compacted, and readers go on."""
    store = MemoryStore()
    directory = directory_over(store)
    broken, log = dirty(directory), dirty(directory, OTHER)
    log_file(store, number=0).data[70] ^= 1
    cleaner = cleaner_of(directory)
    while await cleaner.clean_dirtiest():
        pass
    assert list(cleaner.uncleanable()) == [TP]
    assert cleaner.uncleanable_bytes() == broken.segments.size_bytes
    assert [record.getMessage() for record in caplog.records if "uncleanable" in record.getMessage()] == [
        "partition is uncleanable and is not compacted until a restart partition=events-0"
        f" cause={cleaner.uncleanable()[TP]}"
    ]
    assert len(headers(log)) < 10
    directory.delete(TP)
    assert cleaner.uncleanable() == {}


async def test_reading_and_writing_is_throttled_to_what_is_allowed(autojump_clock: MockClock) -> None:
    """log.cleaner.io.max.bytes.per.second: on a clock that only sleeping moves, the time is the bytes by the rate."""
    directory = directory_over(MemoryStore())
    log = dirty(directory, count=400)
    size = log.segments.size_bytes
    began = trio.current_time()
    assert await cleaner_of(directory, CleanerSettings(io_max_bytes_per_second=1000.0)).clean_dirtiest()
    assert trio.current_time() - began > size / 1000


async def test_appends_and_reads_go_on_between_the_steps_and_regions_stay_readable(tmp_path: Path) -> None:
    """L4: a reader that holds a region of a replaced file sends the old bytes to its end."""
    directory = LogManager.open(tmp_path, durability="os")
    log = directory.create(TP, TOPIC_ID, replace(COMPACT, segment_bytes=300_000))
    for number in range(30):
        put(log, ("k", f"{number}" + "x" * 9000))
    log.roll(NOW_MS)
    result = read_batches(log, 0, 200_000, UNCOMMITTED)
    region = next(part for part in result.parts if isinstance(part, FileRegion))
    before = joined([region])
    _, steps = begin(log)
    answer: object = None
    count = 0
    while (work := step(steps, answer)) is not None:
        answer = None if isinstance(work, int) else work.run()
        put(log, (f"new{count}", "v"))
        assert seen(log)[f"new{count}"] == "v"
        count += 1
    assert count > 3
    assert joined([region]) == before
    assert len(headers(log)) == 1 + count
    directory.close()


@pytest.mark.parametrize("disturb", [lambda log: delete_records(log, 59), lambda log: log.disown("deleted")])
def test_a_log_that_changes_under_a_compaction_ends_it(disturb: Callable[[PartitionLog], object]) -> None:
    """L4, Conflict: retention or deletion was first; nothing of the compaction is left behind."""
    for steps_before in range(12):
        store = MemoryStore()
        log = dirty(directory_over(store))
        cleaning, steps = begin(log)
        answer: object = None
        work: Work | None = 0
        for _ in range(steps_before):
            if work is not None:
                work = step(steps, answer)
                answer = work.run() if isinstance(work, Offload) else None
        disturb(log)
        ended = 0
        while work is not None:
            try:
                work = step(steps, answer)
            except CleaningInterrupted:
                ended += 1
                break
            answer = work.run() if isinstance(work, Offload) else None
        assert (ended, cleaning.cleaned_to) in ((1, 0), (0, 60))
        if not log.disowned:
            assert log.log_start_offset == 59
            assert seen(log) == {"k": "v59"}
            names = store.child(str(TP)).sizes()
            assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
            assert seen(over(crashed(store), COMPACT)) == {"k": "v59"}


async def test_the_active_segment_rolls_when_its_first_record_is_overdue(autojump_clock: MockClock) -> None:
    """KIP-354: max.compaction.lag.ms closes the active segment of a quiet topic and compacts it."""
    directory = directory_over(MemoryStore())
    log = directory.create(TP, TOPIC_ID, replace(COMPACT, max_compaction_lag_ms=HOUR_MS))
    for number in range(5):
        put(log, ("k", f"v{number}"), timestamp_ms=NOW_MS - 2 * HOUR_MS)
    cleaner = cleaner_of(directory)
    assert await cleaner.clean_dirtiest()
    assert (len(headers(log)), cleaner.last.delay_ms) == (1, HOUR_MS)
    assert segments_of(log).active.size_bytes == 0


@pytest.mark.parametrize("threads", [1, 2, 5])
async def test_so_many_logs_are_compacted_at_a_time_as_there_are_cleaner_threads(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """log.cleaner.threads, row L4: each on a log of its own, with its share of memory and rate; all get their turn."""
    directory = directory_over(MemoryStore())
    logs = [dirty(directory, TopicPartition("dirty", number)) for number in range(4)]
    settings = CleanerSettings(threads=threads, backoff_ms=1, limits=CleaningLimits(1 << 20))
    cleaner = cleaner_of(directory, settings)
    under_way: list[PartitionLog] = []
    most, shares = 0, set()

    class Watched(Cleaning):
        def __init__(self, log: PartitionLog, range_: CleanableRange, limits: CleaningLimits, now_ms: int) -> None:
            super().__init__(log, range_, limits, now_ms)
            self.watched = log
            shares.add(limits.map_bytes)

        def run(self) -> Steps:
            nonlocal most
            assert self.watched not in under_way
            under_way.append(self.watched)
            most = max(most, len(under_way))
            yield from super().run()
            under_way.remove(self.watched)

    monkeypatch.setattr("fencepost.broker.log.compaction.cleaner.Cleaning", Watched)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cleaner.run)
        for _ in range(3000):
            await trio.sleep(0.01)
            if all(directory.kept.cleaned_to.get(log.tp, 0) == 60 for log in logs):
                break
        nursery.cancel_scope.cancel()
    assert most == min(threads, len(logs))
    assert shares == {(1 << 20) // threads}
    assert all(seen(log) == {"k": "v59"} for log in logs)


async def test_the_rate_is_that_of_all_compactions_together(autojump_clock: MockClock) -> None:
    """log.cleaner.io.max.bytes.per.second, as Kafka's one throttler for all its cleaners."""
    directory = directory_over(MemoryStore())
    logs = [dirty(directory, TopicPartition("dirty", number), count=400) for number in range(3)]
    size = sum(log.segments.size_bytes for log in logs)
    cleaner = cleaner_of(directory, CleanerSettings(threads=3, io_max_bytes_per_second=1000.0))
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in logs:
            nursery.start_soon(cleaner.clean_dirtiest)
    assert trio.current_time() - began > size / 1000


async def test_the_cleaner_rests_and_can_be_turned_off(autojump_clock: MockClock) -> None:
    """log.cleaner.enable and log.cleaner.backoff.ms may change while it runs."""
    directory = directory_over(MemoryStore())
    log = dirty(directory)
    settings = [CleanerSettings(enabled=False, backoff_ms=5000)]
    cleaner = LogCleaner(directory, lambda: settings[0], lambda: NOW_MS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cleaner.run)
        await trio.sleep(60)
        assert len(headers(log)) == 60
        settings[0] = CleanerSettings(backoff_ms=5000, limits=CleaningLimits(1 << 16))
        for _ in range(10_000):  # the clock jumps while a thread works, so that no sleep is surely long enough
            await trio.sleep(5)
            time.sleep(0.005)  # noqa: ASYNC251 - the machine's time, which is what that thread needs
            if len(headers(log)) < 60:
                break
        assert len(headers(log)) < 60
        nursery.cancel_scope.cancel()


def test_a_coordinator_replays_what_compaction_left() -> None:
    """G8, L5, L6: gaps, empty batches, missing and emptied markers; the fold is the same."""
    log = directory_over(MemoryStore()).create(TP, TOPIC_ID, COMPACT)
    coordinator = PartitionCoordinatorLog(log, LogFlusher("os"))
    for turn in range(8):
        coordinator.append([(b"a", b"%d" % turn), (b"b", b"%d" % turn)], NOW_MS)
        coordinator.append([(b"t", b"%d" % turn)], NOW_MS, ProducerTag(turn % 2, 0))
        end(log, turn % 2, 0, commit=turn % 4 < 2)
    before = folded(coordinator)
    assert before == {b"a": b"7", b"b": b"7", b"t": b"5"}
    for hours in range(4):
        clean(log, now_ms=NOW_MS + 2 * hours * HOUR_MS)
        assert folded(coordinator) == before
        if hours == 1:
            log.producers.expire(NOW_MS + 1000 * HOUR_MS, 1)
    assert len(list(coordinator.replay())) < 8
    assert seen(log, COMMITTED) == {key.decode(): value.decode() for key, value in before.items()}


def folded(coordinator: PartitionCoordinatorLog) -> dict[bytes, bytes]:
    """What a coordinator knows after its replay: transactional records count once their marker says so."""
    known: dict[bytes, tuple[int, bytes]] = {}
    pending: dict[int, list[tuple[int, bytes, bytes]]] = {}
    for order, batch in enumerate(coordinator.replay()):
        if batch.marker_commits is not None:
            for at, key, value in pending.pop(batch.producer_id, []):
                if batch.marker_commits and known.get(key, (-1, b""))[0] < at:
                    known[key] = at, value
            continue
        for key, value in batch.records:
            assert key is not None
            assert value is not None
            if batch.transactional:
                pending.setdefault(batch.producer_id, []).append((order, key, value))
            else:
                known[key] = order, value
    assert not any(pending.values())
    return {key: value for key, (_, value) in known.items()}
