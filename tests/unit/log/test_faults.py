"""A disk that refuses: appends answer KAFKA_STORAGE_ERROR, nothing half written is read, and it heals by itself."""

import errno
import os

import pytest

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.reading import read_batches
from fencepost.broker.log.storage.disk import SYSTEM_DISK
from fencepost.protocol.errors import ErrorCode
from tests.unit.log.kit import (
    COMMITTED,
    TOPIC_ID,
    TP,
    UNCOMMITTED,
    FullDisk,
    batch,
    crashed,
    directory_over,
    end,
    headers,
    over,
    send,
    settle,
    transact,
)


def test_enospc_refuses_the_append_and_reads_go_on_until_space_returns():
    disk = FullDisk()
    log = over(disk)
    transact(log, 7, 0, 0)
    disk.room = 20
    before = list(log.producers.entries())
    assert send(log, batch(1, 7, 0, 1, transactional=True)).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.append_marker(7, 1, True, 0, 2, 0).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.log_end_offset, list(log.producers.entries())) == (1, before)
    assert log.producers.has_open(7)
    assert len(headers(log)) == 1
    disk.room = 1 << 30
    assert send(log, batch(1, 7, 0, 1, transactional=True)).base_offset == 1
    assert end(log, 7, 1, commit=True, version=2).base_offset == 2


def test_every_write_may_fail_and_the_log_is_what_was_acknowledged():
    """Fail at every point of a script by byte count; then compare, crash, reopen and compare again."""
    config = LogConfig(segment_bytes=300, index_interval_bytes=50)
    for room in range(0, 2600, 37):
        disk = FullDisk()
        log = over(disk, config)
        disk.room = room
        acknowledged = []
        for n in range(12):
            info = send(log, batch(1, 7, 0, len(acknowledged)))
            assert info.error in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
            if not info.error:
                acknowledged.append(info.base_offset)
            if n == 9:
                disk.room = 1 << 30
        assert len(acknowledged) >= 2
        assert [header.base_offset for header in headers(log)] == acknowledged
        again = over(crashed(disk), config)
        assert [header.base_offset for header in headers(again)] == acknowledged
        assert sorted(again.producers.entries()) == sorted(log.producers.entries())


def test_eio_is_a_storage_error_as_well():
    disk = FullDisk()
    log = over(disk)
    send(log, batch())
    disk.broken = True
    assert send(log, batch()).error is ErrorCode.KAFKA_STORAGE_ERROR
    disk.broken = False
    assert send(log, batch()).base_offset == 1


@pytest.mark.parametrize("written", [0, 1, 30, 60])
@pytest.mark.parametrize("cutting_fails", [False, True])
def test_a_write_that_stops_half_way_leaves_nothing_on_disk(tmp_path, monkeypatch, written, cutting_fails):
    directory = LogManager.open(tmp_path / "data", durability="os")
    log = directory.create(TP, TOPIC_ID, LogConfig())
    send(log, batch(1, 7, 0, 0))
    size = log.segments.size_bytes
    pwrite, ftruncate = os.pwrite, os.ftruncate
    halves = iter([True])

    def short_pwrite(fd, data, position):
        if written and next(halves, False):
            return pwrite(fd, data[:written], position)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def broken_ftruncate(fd, size_bytes):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(SYSTEM_DISK, "pwrite", short_pwrite)
        if cutting_fails:
            patch.setattr(SYSTEM_DISK, "ftruncate", broken_ftruncate)
        assert send(log, batch(1, 7, 0, 1)).error is ErrorCode.KAFKA_STORAGE_ERROR
    path = tmp_path / "data" / str(TP) / "00000000000000000000.log"
    assert cutting_fails or path.stat().st_size == size
    assert read_batches(log, 1, 1000, UNCOMMITTED).size_bytes == 0
    assert ftruncate is os.ftruncate
    assert send(log, batch(1, 7, 0, 1)).base_offset == 1
    assert path.stat().st_size == 2 * size
    directory.close()


def test_a_read_error_is_a_storage_error_and_kills_nothing(tmp_path, monkeypatch):
    directory = LogManager.open(tmp_path / "data", durability="os")
    log = directory.create(TP, TOPIC_ID, LogConfig())
    send(log, batch())

    def broken_pread(fd, length, position):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(SYSTEM_DISK, "pread", broken_pread)
        assert read_batches(log, 0, 1000, UNCOMMITTED).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert read_batches(log, 0, 1000, UNCOMMITTED).size_bytes
    directory.close()


def test_a_file_that_shrank_under_the_broker_is_noticed(tmp_path):
    directory = LogManager.open(tmp_path / "data", durability="os")
    log = directory.create(TP, TOPIC_ID, LogConfig())
    send(log, batch())
    os.truncate(tmp_path / "data" / str(TP) / "00000000000000000000.log", 10)
    assert read_batches(log, 0, 1000, UNCOMMITTED).error is ErrorCode.KAFKA_STORAGE_ERROR
    directory.close()


def test_a_log_whose_aborted_index_does_not_fit_on_the_disk_is_not_closed_as_clean():
    """A clean stop makes the next start believe the indexes: without this entry aborted data would be delivered."""
    disk = FullDisk()
    directory = directory_over(disk)
    log = directory.create(TP, TOPIC_ID, LogConfig())
    transact(log, 7, 0, 0)
    end(log, 7, 0, commit=False)
    disk.room = 0
    with pytest.raises(OSError, match="index entries"):
        directory.close()
    again = directory_over(crashed(disk))
    assert not again.clean
    recovered = again.get(TP)
    assert recovered is not None
    assert read_batches(recovered, 0, 1000, COMMITTED).aborted == [(7, 0)]


def test_the_recovery_point_waits_for_the_aborted_index():
    disk = FullDisk()
    log = over(disk, LogConfig(segment_bytes=160), "fsync")
    transact(log, 7, 0, 0)
    end(log, 7, 0, commit=False)
    disk.refused_suffix = ".txnindex"
    send(log, batch())
    assert len(log.segments) == 2
    settle(log)
    assert (log.high_watermark, log.recovery_point) == (3, 0)
    disk.refused_suffix = "nothing"
    settle(log)
    assert log.recovery_point == 3
