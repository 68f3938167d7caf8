"""Checkpoints while the broker runs: what the next start may believe, and how little it has to scan (L2, P9)."""

from contextlib import asynccontextmanager

import trio

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.durability import checkpoint_pace
from fencepost.broker.log.durability.checkpointing import Checkpointer, ReplacedFile
from fencepost.broker.log.durability.flusher import LogFlusher
from fencepost.broker.log.recovery.opening import recover
from fencepost.broker.log.storage.checkpoints import RECOVERY_POINTS, decode_offsets
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.log.storage.store import FlushFailed
from tests.kit.slow_disk import OneBadFile
from tests.unit.log.kit import TOPIC_ID, TP, batch, crashed, directory_over, end, file_names, headers, send, transact

OTHER = TP._replace(partition=1)


@asynccontextmanager
async def running(directory, lost=None):
    """A checkpointer beside a group commit; it is made to look by `run_once`."""
    commit = LogFlusher("os", lost)
    seconds = [10.0]
    async with trio.open_nursery() as nursery:
        await nursery.start(commit.run)
        yield Checkpointer(directory, commit, lambda: seconds[0]), seconds
        nursery.cancel_scope.cancel()


def points(store):
    """The recovery points on the disk."""
    return decode_offsets(store.load(RECOVERY_POINTS), "here")


def scanned_after_a_kill(store):
    """Bytes that recovery walks through."""
    left = crashed(store)
    return recover(left.child(str(TP)), LogConfig(), 0, points(left).get(TP, 0)).scanned_bytes


async def test_after_many_bytes_a_kill_leaves_only_the_tail_to_scan(monkeypatch):
    monkeypatch.setattr(checkpoint_pace, "LAZY_BYTES", 2000)
    store = MemoryStore()
    directory = directory_over(store)
    log = directory.create(TP, TOPIC_ID, LogConfig())
    async with running(directory) as (checkpointer, seconds):
        for n in range(40):
            send(log, batch(1, 7, 0, n))
        size = log.segments.size_bytes
        assert scanned_after_a_kill(store) == size
        await checkpointer.run_once()
        assert points(store) == {TP: 40}
        tail = send(log, batch(1, 7, 0, 40))
        assert scanned_after_a_kill(store) == log.segments.size_bytes - size
        seconds[0] += 1
        await checkpointer.run_once()
        assert points(store) == {TP: 40}, "one batch more is not worth a checkpoint"
        assert not tail.error
    again = directory_over(crashed(store)).create(TP, TOPIC_ID, LogConfig())
    assert len(headers(again)) == 41
    assert sorted(again.producers.entries()) == sorted(log.producers.entries())


async def test_some_seconds_later_fewer_bytes_do(monkeypatch):
    """Batches of one record each take a hundred times as long to scan as their bytes let one expect."""
    monkeypatch.setattr(checkpoint_pace, "CHECKPOINT_BYTES_MIN", 300)
    store = MemoryStore()
    directory = directory_over(store)
    log = directory.create(TP, TOPIC_ID, LogConfig())
    async with running(directory) as (checkpointer, seconds):
        for _ in range(5):
            send(log, batch())
        await checkpointer.run_once()
        assert points(store) == {}
        seconds[0] += checkpoint_pace.LAZY_AGE_SECONDS
        await checkpointer.run_once()
        assert points(store) == {TP: 5}
        for _ in range(5):
            send(log, batch())
        seconds[0] += checkpoint_pace.LAZY_AGE_SECONDS - 1
        await checkpointer.run_once()
        assert points(store) == {TP: 5}
        seconds[0] += 1
        await checkpointer.run_once()
        assert points(store) == {TP: 10}


async def test_in_os_durability_full_segments_are_flushed_so_that_recovery_is_short():
    """Kafka flushes a segment when it is closed; here the next look does."""
    store = MemoryStore()
    directory = directory_over(store)
    log = directory.create(TP, TOPIC_ID, LogConfig(segment_bytes=200))
    async with running(directory) as (checkpointer, _):
        for _ in range(2):
            send(log, batch())
        await checkpointer.run_once()
        assert points(store) == {}, "it is not full yet"
        for _ in range(2):
            send(log, batch())
        await checkpointer.run_once()
        assert points(store) == {TP: 4}
        send(log, batch())
        await checkpointer.run_once()
        assert points(store) == {TP: 5}, "it begins a new one"
        send(log, batch())
        await checkpointer.run_once()
        assert points(store) == {TP: 5}


async def test_snapshots_within_a_segment_go_when_a_newer_checkpoint_is_durable(monkeypatch):
    monkeypatch.setattr(checkpoint_pace, "LAZY_BYTES", 100)
    store = MemoryStore()
    directory = directory_over(store)
    log = directory.create(TP, TOPIC_ID, LogConfig(segment_bytes=2000))
    async with running(directory) as (checkpointer, _):
        for n in range(60):
            send(log, batch(1, 7, 0, n))
            await checkpointer.run_once()
    bases = {int(name[:20]) for name in file_names(store) if name.endswith(".log")}
    kept = {int(name[:20]) for name in file_names(store) if name.endswith(".snapshot")}
    assert len(bases) > 2
    assert kept == bases - {0} | {max(kept)}, "one per segment, as in Kafka, and the newest"
    assert max(kept) > max(bases)


async def test_a_checkpoint_that_is_not_durable_is_never_spoken_of(monkeypatch):
    """Recovery believes the aborted index below a recovery point: the entry must be on the disk before."""
    monkeypatch.setattr(checkpoint_pace, "LAZY_BYTES", 100)
    disk = OneBadFile()
    directory = directory_over(disk)
    lost = []
    log = directory.create(TP, TOPIC_ID, LogConfig())
    other = directory.create(OTHER, TOPIC_ID, LogConfig())
    async with running(directory, lambda log, error: lost.append(error)) as (checkpointer, _):
        for each in (log, other):
            transact(each, 7, 0, 0, 5)
            end(each, 7, 0, commit=False)
        disk.bad = "events-0/00000000000000000000.txnindex"
        await checkpointer.run_once()
        assert [type(error) for error in lost] == [FlushFailed]
        assert log.offline
        assert points(disk) == {OTHER: 6}


async def test_the_newest_content_of_a_replaced_file_wins_whoever_comes_last():
    """One was asked for before the other, by another thread, and reaches the disk later."""
    store = MemoryStore()
    file = ReplacedFile(store, "f")
    older, newer = file.holding(b"older"), file.holding(b"newer")
    newer.sync()
    older.sync()
    assert store.load("f") == b"newer"
