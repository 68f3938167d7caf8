"""The data directory: lazy opening, clean and unclean stops, names, locks."""

import os
import stat

import pytest

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.housekeeping import housekeep
from fencepost.broker.log.logs import DirectoryInUse, LogManager
from fencepost.broker.log.reading import read_batches
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from tests.kit.trimming import delete_records
from tests.unit.log.kit import (
    TOPIC_ID,
    TP,
    UNCOMMITTED,
    batch,
    crashed,
    directory_over,
    headers,
    log_file,
    send,
    settle,
    transact,
)


def test_files_are_made_with_the_first_append(tmp_path):
    directory = LogManager.open(tmp_path / "data", durability="os")
    log = directory.create(TP, TOPIC_ID, LogConfig())
    assert read_batches(log, 0, 100, UNCOMMITTED).error is ErrorCode.NONE
    assert not (tmp_path / "data" / str(TP)).exists()
    send(log, batch())
    assert sorted(os.listdir(tmp_path / "data" / str(TP))) == [
        "00000000000000000000.log",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    directory.close()


def test_create_is_idempotent_and_get_finds_what_was_created(tmp_path):
    directory = LogManager.open(tmp_path / "data")
    log = directory.create(TP, TOPIC_ID, LogConfig())
    assert directory.create(TP, TOPIC_ID, LogConfig()) is log
    assert directory.get(TP) is log
    assert directory.get(TopicPartition("other", 0)) is None
    assert set(directory.partitions()) == {TP}
    directory.close()


@pytest.mark.parametrize("durability", ["os", "fsync"])
def test_a_restart_finds_partitions_by_their_directories(tmp_path, durability):
    directory = LogManager.open(tmp_path / "data", durability=durability)
    for topic in ("a", "a-b", "a.b_c-7"):
        send(directory.create(TopicPartition(topic, 3), TOPIC_ID, LogConfig()), batch(2))
    directory.close()
    directory = LogManager.open(tmp_path / "data", durability=durability)
    assert directory.clean
    assert {str(tp) for tp in directory.partitions()} == {"a-3", "a-b-3", "a.b_c-7-3"}
    assert list(directory.logs()) == [], "none is opened before it is asked for"
    log = directory.get(TopicPartition("a-b", 3))
    assert log is not None
    assert (log.topic_id, log.log_end_offset, log.high_watermark) == (TOPIC_ID, 2, 2)
    directory.close()


def test_the_clean_marker_is_gone_while_running_and_comes_back_with_close(tmp_path):
    marker = tmp_path / "data" / ".kafka_cleanshutdown"
    directory = LogManager.open(tmp_path / "data")
    send(directory.create(TP, TOPIC_ID, LogConfig()), batch())
    assert not directory.clean
    directory.close()
    assert marker.exists()
    directory = LogManager.open(tmp_path / "data")
    assert directory.clean
    assert not marker.exists()
    directory.close()


def test_partitions_not_opened_after_an_unclean_stop_are_still_checked_later():
    store = MemoryStore()
    directory = directory_over(store, "fsync")
    other = TP._replace(partition=1)
    for tp in (TP, other):
        settle_append(directory.create(tp, TOPIC_ID, LogConfig()))
    store = crashed(store)
    log_file(store).data += b"torn"
    directory = directory_over(store, "fsync")
    directory.get(other)
    directory.close()
    directory = directory_over(store, "fsync")
    assert not directory.clean
    log = directory.get(TP)
    assert log is not None
    assert len(headers(log)) == 1
    assert log_file(store).size_bytes == len(batch())


def settle_append(log):
    send(log, batch())
    settle(log)


def test_two_brokers_can_not_share_a_directory(tmp_path):
    directory = LogManager.open(tmp_path / "data")
    with pytest.raises(DirectoryInUse):
        LogManager.open(tmp_path / "data")
    directory.close()
    LogManager.open(tmp_path / "data").close()


def test_only_the_owner_may_look_into_the_directory(tmp_path):
    directory = LogManager.open(tmp_path / "data")
    send(directory.create(TP, TOPIC_ID, LogConfig()), batch())
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "data" / str(TP)).stat().st_mode) == 0o700
    log_path = tmp_path / "data" / str(TP) / "00000000000000000000.log"
    assert stat.S_IMODE(log_path.stat().st_mode) == 0o600
    directory.close()


def test_symbolic_links_are_not_followed(tmp_path):
    directory = LogManager.open(tmp_path / "data")
    (tmp_path / "data" / str(TP)).mkdir()
    victim = tmp_path / "victim"
    victim.write_bytes(b"not a log")
    (tmp_path / "data" / str(TP) / "00000000000000000000.log").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        directory.create(TP, TOPIC_ID, LogConfig())
    assert victim.read_bytes() == b"not a log"
    directory.close()


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "../x", "a" * 250, "a\0b", "é"])
def test_names_that_can_not_be_directories_are_refused(tmp_path, topic):
    directory = LogManager.open(tmp_path / "data")
    with pytest.raises(ValueError, match="cannot be a partition's name"):
        directory.create(TopicPartition(topic, 0), TOPIC_ID, LogConfig())
    directory.close()


def test_delete_removes_the_files_and_later_appends_are_refused(tmp_path):
    directory = LogManager.open(tmp_path / "data")
    log = directory.create(TP, TOPIC_ID, LogConfig())
    send(log, batch())
    directory.delete(TP)
    for chore in directory.background_tasks():
        chore.sync()
    assert not [name for name in os.listdir(tmp_path / "data") if name.startswith("events")]
    assert directory.get(TP) is None
    assert send(log, batch()).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert read_batches(log, 0, 100, UNCOMMITTED).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert log.begin_sync() == (1, [])
    fresh = directory.create(TP, TOPIC_ID, LogConfig())
    assert send(fresh, batch()).base_offset == 0
    directory.delete(TopicPartition("never", 1))
    directory.close()


def test_a_deletion_cut_short_is_finished_at_the_next_start(tmp_path):
    half = tmp_path / "data" / "events-0.00ff-delete"
    half.mkdir(parents=True)
    (half / "00000000000000000000.log").write_bytes(b"x")
    directory = LogManager.open(tmp_path / "data")
    assert not half.exists()
    assert list(directory.partitions()) == []
    directory.close()


def test_a_log_of_a_deleted_topic_of_the_same_name_is_set_aside(tmp_path):
    directory = LogManager.open(tmp_path / "data")
    send(directory.create(TP, TOPIC_ID, LogConfig()), batch(3))
    directory.close()
    directory = LogManager.open(tmp_path / "data")
    directory.deleted_topic_ids = {TOPIC_ID}
    log = directory.create(TP, b"\x07" * 16, LogConfig())
    assert log.log_end_offset == 0
    assert f"{TP}.{TOPIC_ID.hex()}-stray" in os.listdir(tmp_path / "data")
    directory.close()


def test_a_log_of_a_topic_that_was_not_deleted_is_not_set_aside(tmp_path, caplog):
    """A bit that flips in partition.metadata must not empty a partition: it is offline until somebody looks."""
    directory = LogManager.open(tmp_path / "data")
    send(directory.create(TP, TOPIC_ID, LogConfig()), batch(3))
    directory.close()
    directory = LogManager.open(tmp_path / "data")
    for _ in range(2):
        with pytest.raises(CorruptLogFile, match=r"partition\.metadata.*never deleted"):
            directory.create(TP, b"\x07" * 16, LogConfig())
    assert list(directory.offline()) == [TP]
    assert caplog.text.count("events-0 is damaged and offline") == 1
    directory.close()
    assert LogManager.open(tmp_path / "data").create(TP, TOPIC_ID, LogConfig()).log_end_offset == 3


def test_memory_mode_touches_no_disk_and_behaves_alike(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    directory = LogManager.open(None)
    log = directory.create(TP, TOPIC_ID, LogConfig(segment_bytes=300))
    for n in range(9):
        transact(log, 7, 0, n)
    assert log.high_watermark == 9, "durable at once"
    assert delete_records(log, 5) == (ErrorCode.NONE, 5)
    directory.close()
    assert os.listdir(tmp_path) == []


async def test_housekeeping_goes_over_all_partitions(tmp_path):
    directory = LogManager.open(
        tmp_path / "data", durability="os", default_config=lambda topic: LogConfig(retention_ms=1000)
    )
    for n in range(3):
        send(directory.create(TP._replace(partition=n), TOPIC_ID, LogConfig()), batch())
    directory.close()
    directory = LogManager.open(
        tmp_path / "data", durability="os", default_config=lambda topic: LogConfig(retention_ms=1000)
    )
    await housekeep(directory, 1 << 50)
    assert [log.log_start_offset for log in directory.logs()] == [1, 1, 1]
    directory.close()


def test_a_thousand_partitions_open_with_one_listing(tmp_path):
    for n in range(1000):
        (tmp_path / "data" / f"many-{n}").mkdir(parents=True)
    directory = LogManager.open(tmp_path / "data")
    assert len(directory.partitions()) == 1000
    assert not list(directory.logs())
    directory.close()
