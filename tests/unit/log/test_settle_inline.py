"""A round on the spot for who is alone in asking (decision 0018)."""

import pytest
import trio

from fencepost.broker.log.durability.flusher import LogFlusher, LogOffline
from fencepost.broker.log.results import Ticket
from fencepost.broker.log.storage.memory import MemoryFile, MemoryStore
from fencepost.broker.log.storage.store import FlushFailed
from tests.unit.log.kit import batch, over, running, send


class Brief:
    """Threads of which every flush is brief; `waits` counts those that were waited for all the same."""

    def __init__(self, brief=True):
        self.brief = brief
        self.here = self.waits = 0
        self.gate = trio.Event()

    def is_brief(self, count, size_bytes):
        return self.brief and count <= 2 and size_bytes < 1000

    def sync_inline(self, sync_targets):
        self.here += 1
        failures = []
        for number, target in enumerate(sync_targets):
            try:
                target.sync()
            except OSError as error:
                failures.append((number, error))
        return failures

    async def sync(self, sync_targets):
        self.waits += 1
        await self.gate.wait()
        return self.sync_inline(sync_targets)

    def close(self):
        self.brief = False


class Disk(MemoryStore):
    """A store whose files can be flushed, or not."""

    error = None

    def new_child(self, name):
        child = Disk(f"{self.place}/{name}")
        child.top = self
        return child

    def new_file(self, name):
        file = _File(f"{self.place}/{name}")
        file.store = self
        return file


class _File(MemoryFile):
    def sync_target(self):
        return self if self.exists else None

    def sync(self):
        if self.store.top.error:
            raise self.store.top.error


def log_and_commit(brief=True, lost=None):
    disk = Disk("disk:")
    threads = Brief(brief)
    return disk, over(disk, durability="fsync"), threads, LogFlusher("fsync", lost, threads)


def test_who_asked_last_time_too_has_his_round_at_once():
    _, log, threads, commit = log_and_commit()
    send(log, batch())
    assert not commit.settle_inline("me", [log]), "somebody else may be about to ask"
    assert log.high_watermark == 0
    assert commit.settle_inline("me", [log])
    assert (log.high_watermark, log.recovery_point, threads.here, commit.rounds) == (1, 1, 1, 1)


def test_two_who_ask_in_turns_share_the_rounds():
    _, log, threads, commit = log_and_commit()
    for asker in ("me", "you") * 3:
        send(log, batch())
        assert not commit.settle_inline(asker, [log])
    assert (log.high_watermark, threads.here) == (0, 0)


def test_not_while_somebody_waits_nor_where_it_may_take_long():
    _, log, _, commit = log_and_commit()
    send(log, batch())
    commit.settle_inline("me", [log])
    commit.schedule(log)
    assert not commit.settle_inline("me", [log]), "a round is asked for already, and covers both"
    _, log, _, commit = log_and_commit()
    send(log, batch(1, value=bytes(2000)))
    commit.settle_inline("me", [log])
    assert not commit.settle_inline("me", [log])
    assert log.high_watermark == 0


async def test_a_round_under_way_is_waited_for():
    _, log, threads, commit = log_and_commit(brief=False)
    async with running(commit) as nursery:
        commit.settle_inline("me", [log])
        send(log, batch())
        nursery.start_soon(commit.wait, Ticket(log, 1))
        while not threads.waits:
            await trio.lowlevel.checkpoint()
        threads.brief = True
        send(log, batch())
        assert not commit.settle_inline("me", [log])
        threads.gate.set()
        await commit.wait(Ticket(log, 2))
        assert log.high_watermark == 2


async def test_a_flush_that_fails_on_the_spot_ends_the_rounds_and_is_not_tried_again():
    disk, log, threads, commit = log_and_commit()
    disk.error = FlushFailed(5, "fdatasync: Input/output error", "disk:/elsewhere")
    send(log, batch())
    commit.settle_inline("me", [log])
    assert not commit.settle_inline("me", [log])
    assert not commit.settle_inline("me", [log]), "the rounds have not had a look at it"
    assert threads.here == 1
    with pytest.raises(FlushFailed):
        await commit.run()
    assert threads.here == 1
    assert log.high_watermark == 0
    with pytest.raises(LogOffline):
        await commit.wait(Ticket(log, 1))


async def test_a_log_whose_flush_failed_on_the_spot_goes_offline_where_that_is_the_policy():
    lost = []
    disk, log, threads, commit = log_and_commit(lost=lambda log, error: lost.append(log))
    disk.error = FlushFailed(5, "fdatasync: Input/output error", f"{log.store.place}/00000000000000000000.log")
    send(log, batch())
    commit.settle_inline("me", [log])
    assert not commit.settle_inline("me", [log])
    async with running(commit):
        with pytest.raises(LogOffline):
            await commit.wait(Ticket(log, 1))
    assert lost == [log]
    assert log.offline
    assert threads.here == 1, "it is never flushed again"
