"""A failure of one log's upkeep ends nothing else, neither the process nor others: it is logged, counted and marked."""

import errno
from collections.abc import Callable
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from fencepost.broker.log.compaction.cleaner import CleanerSettings, LogCleaner
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.durability.checkpointing import Checkpointer
from fencepost.broker.log.durability.flusher import LogFlusher, LogOffline
from fencepost.broker.log.durability.upkeep import Steps
from fencepost.broker.log.housekeeping import housekeep
from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.results import FlushedLog
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.log.storage.store import FlushFailed
from fencepost.broker.log.upkeep_failures import UpkeepFailures
from fencepost.broker.metrics.partitions import partition_text
from fencepost.broker.metrics.server import MetricsServer, Page
from fencepost.broker.periodic import run_periodically
from fencepost.protocol.topics import TopicPartition
from tests.kit.unreadable import unreadable
from tests.unit.log.compaction_kit import COMPACT, clean, put, seen
from tests.unit.log.kit import NOW_MS, SMALL, TOPIC_ID, TP, batch, crashed, directory_over, send

OTHER = TopicPartition("other", 0)
HOUR_MS = 3_600_000


def broken(what: str) -> Callable[..., None]:
    """A programming error."""

    def call(*_args: object, **_named: object) -> None:
        raise ZeroDivisionError(what)

    return call


def two_logs(config: LogConfig) -> tuple[LogManager, PartitionLog, PartitionLog]:
    """The log TP, and one that comes after it in every order."""
    directory = directory_over(MemoryStore())
    return directory, directory.create(TP, TOPIC_ID, config), directory.create(OTHER, TOPIC_ID[::-1], config)


async def test_the_log_after_one_whose_retention_fails_is_retained(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first is marked until its retention succeeds."""
    directory, bad, good = two_logs(replace(SMALL, retention_ms=HOUR_MS))
    for log in (bad, good):
        for _ in range(60):
            send(log, batch(3))
    with monkeypatch.context() as patch:
        patch.setattr(bad, "forget_producers", broken("producers"))
        await housekeep(directory, NOW_MS + 2 * HOUR_MS)
    assert (bad.log_start_offset, good.log_start_offset) == (0, 180)
    assert bad.failed_upkeep == {"retention": "ZeroDivisionError: producers"}
    assert directory.upkeep.counts == {"retention": 1}
    record = next(one for one in caplog.records if "retention failed" in one.getMessage())
    assert "partition=events-0" in record.getMessage()
    assert record.exc_info, "the traceback of a programming error is in the log"
    await housekeep(directory, NOW_MS + 2 * HOUR_MS)
    assert (bad.log_start_offset, bad.failed_upkeep) == (180, {})


async def test_the_log_after_one_that_cannot_be_opened_is_retained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its opening is part of the upkeep: a log on disk is opened for its retention."""
    directory, _, _ = two_logs(replace(SMALL, retention_ms=HOUR_MS))
    for log in directory.logs():
        for _ in range(60):
            send(log, batch(3))
    store = directory.store
    again = LogManager.over(store, "os", lambda topic: replace(SMALL, retention_ms=HOUR_MS))
    recovering = again._recovering

    def fails(tp: TopicPartition, topic_id: bytes, config: LogConfig) -> Steps[PartitionLog]:
        return (broken("recovery")() if tp == TP else None) or recovering(tp, topic_id, config)

    monkeypatch.setattr(again, "_recovering", fails)
    await housekeep(again, NOW_MS + 2 * HOUR_MS)
    assert [log.log_start_offset for log in again.logs()] == [180]
    assert again.upkeep.counts == {"retention": 1}


async def test_a_log_whose_compaction_has_a_programming_error_is_marked_and_the_other_is_compacted(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka: LogCleaner.cleanLog turns each exception into LogCleaningException, which marks the partition."""
    directory, bad, good = two_logs(COMPACT)
    for log in (bad, good):
        for number in range(60):
            put(log, ("k", str(number)))
        log.roll(NOW_MS)
    monkeypatch.setattr(bad.snapshots, "open_at", broken("snapshots"))
    cleaner = LogCleaner(directory, CleanerSettings, lambda: NOW_MS)
    while await cleaner.clean_dirtiest():
        await trio.lowlevel.checkpoint()
    assert cleaner.uncleanable() == {TP: "ZeroDivisionError: snapshots"}
    assert bad.store.load("uncleanable") == b"ZeroDivisionError: snapshots"
    assert (seen(good), directory.kept.cleaned_to.get(OTHER, 0), directory.kept.cleaned_to.get(TP, 0)) == (
        {"k": "59"},
        60,
        0,
    )


async def test_the_mark_of_an_uncleanable_log_goes_with_the_next_compaction_that_succeeds(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, log, _ = two_logs(COMPACT)
    for number in range(60):
        put(log, ("k", str(number)))
    log.roll(NOW_MS)
    with monkeypatch.context() as patch:
        patch.setattr(log.snapshots, "open_at", broken("snapshots"))
        assert await LogCleaner(directory, CleanerSettings, lambda: NOW_MS).clean_dirtiest()
    store = crashed(directory.store)
    again = directory_over(store)
    log = again.create(TP, TOPIC_ID, COMPACT)
    assert log.store.load("uncleanable") is not None
    assert await LogCleaner(again, CleanerSettings, lambda: NOW_MS).clean_dirtiest()
    assert log.store.load("uncleanable") is None


@pytest.mark.parametrize("size_bytes", [200, 9000])
def test_no_caller_of_the_steps_can_lose_the_error_of_a_job(size_bytes: int) -> None:
    """A codec runs in a thread for a large batch. Its error reaches the compaction as that of a small one does."""
    config = replace(COMPACT, segment_bytes=20_000)
    log = directory_over(MemoryStore()).create(TP, TOPIC_ID, replace(config, cleanup_policy=frozenset({"delete"})))
    assert not send(log, unreadable(NOW_MS, size_bytes=size_bytes)).error
    log.config = config
    with pytest.raises(Exception, match=r"00000000000000000000\.log at byte 0: .*"):
        clean(log)


async def test_a_log_that_cannot_be_checkpointed_does_not_keep_others_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    directory, bad, good = two_logs(SMALL)
    for log in (bad, good):
        send(log, batch(3))
        monkeypatch.setattr(log.pace, "due", lambda seconds: True)
    monkeypatch.setattr(bad, "checkpoint", broken("checkpoint"))
    commit = LogFlusher("os")
    async with trio.open_nursery() as nursery:
        await nursery.start(commit.run)
        await Checkpointer(directory, commit, lambda: 1.0).run_once()
        nursery.cancel_scope.cancel()
    assert (good.snapshots.has(3), bad.snapshots.has(3)) == (True, False)
    assert bad.failed_upkeep == {"checkpoint": "ZeroDivisionError: checkpoint"}


@pytest.mark.parametrize("policy", ["exit", "offline"])
async def test_only_the_log_whose_file_cannot_be_opened_goes_offline(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flusher once ended by it, and with it the process. No flush was tried, so none failed."""
    directory = directory_over(MemoryStore(), "fsync")
    bad, good = directory.create(TP, TOPIC_ID, SMALL), directory.create(OTHER, TOPIC_ID[::-1], SMALL)
    lost: list[FlushedLog] = []

    def fails() -> None:
        raise OSError(errno.EACCES, "Permission denied", f"{bad.store.place}/00000000000000000000.log")

    def lose(log: FlushedLog, error: OSError) -> None:
        lost.append(log)

    monkeypatch.setattr(bad.segments, "sync_targets", fails)
    commit = LogFlusher("fsync", lose if policy == "offline" else None, unopened=lose)
    async with trio.open_nursery() as nursery:
        await nursery.start(commit.run)
        tickets = send(bad, batch()), send(good, batch())
        with pytest.raises(LogOffline):
            await commit.wait(tickets[0])
        await commit.wait(tickets[1])
        await commit.wait(send(good, batch()))
        nursery.cancel_scope.cancel()
    assert (lost, bad.offline, good.high_watermark) == ([bad], True, 2)


async def test_a_periodic_task_that_fails_is_done_again(autojump_clock: MockClock) -> None:
    """Also after an error in a group. A failed flush still ends it: the process must not continue."""
    errors: list[Exception] = [
        ZeroDivisionError("first"),
        ExceptionGroup("both", [OSError(errno.EIO, "second")]),
        FlushFailed(errno.EIO, "fdatasync", "here"),
    ]
    upkeep = UpkeepFailures()

    def task() -> None:
        raise errors[upkeep.counts["work"]]

    with trio.fail_after(60), pytest.raises(FlushFailed):
        await run_periodically(upkeep, "work", 1.0, task)
    assert upkeep.counts == {"work": 2}


async def test_a_scrape_has_the_values_of_all_other_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    directory, bad, _ = two_logs(SMALL)
    monkeypatch.setattr(
        type(bad.segments), "size_bytes", property(lambda segments: 1 // (segments is not bad.segments))
    )
    text = b"".join(await partition_text(directory.logs(), directory.upkeep)).decode()
    assert 'kafka_log_log_size{partition="0",topic="other"} 1' in text
    assert 'topic="events"' not in text
    assert bad.failed_upkeep == {"metrics": "ZeroDivisionError: integer division or modulo by zero"}


async def test_a_page_that_cannot_be_made_is_a_status_500() -> None:
    """Not a connection that closes without a word."""

    async def page() -> Page:
        raise ZeroDivisionError

    answer = await MetricsServer({b"/metrics": page})._answer(b"GET /metrics HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
