"""Coordinator records through a partition log and back: order, tags, markers, and no byte taken on trust."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from fencepost.broker.coordinator_logs import InternalTopicLogs, PartitionCoordinatorLog
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.durability.flusher import LogFlusher
from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.partition import AppendOrigin, PartitionLog
from fencepost.coordinator.ports import LogBatchTooLarge, LogNotHere, LogUnreadable, ProducerTag, coordinator_error
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.topics import TopicPartition

TP = TopicPartition("__transaction_state", 7)
NOW_MS = 1_000


@pytest.fixture
async def commit(nursery: trio.Nursery) -> AsyncIterator[LogFlusher]:
    group_commit = LogFlusher("fsync")
    await nursery.start(group_commit.run)
    yield group_commit
    nursery.cancel_scope.cancel()


def open_log(path: Path, config: LogConfig | None = None) -> tuple[LogManager, PartitionLog]:
    directory = LogManager.open(path)
    return directory, directory.create(TP, bytes(15) + b"x", config or LogConfig())


async def test_records_come_back_in_order_with_their_tags(tmp_path: Path, commit: LogFlusher) -> None:
    directory, partition = open_log(tmp_path)
    log = PartitionCoordinatorLog(partition, commit)
    assert log.append([(b"a", b"1"), (b"b", None)], NOW_MS).end_offset == 2
    tag = ProducerTag(producer_id=5, producer_epoch=3)
    ticket = log.append([(b"c", b"2" * 200_000)], NOW_MS + 1, tag)
    await ticket.durable()
    partition.append_marker(5, 3, True, 0, 0, NOW_MS + 2)
    await log.newest.durable()
    directory.close()

    directory, partition = open_log(tmp_path)
    plain, tagged, marker = PartitionCoordinatorLog(partition, commit).replay()
    assert (plain.base_offset, plain.transactional, list(plain.records)) == (0, False, [(b"a", b"1"), (b"b", None)])
    assert (tagged.producer_id, tagged.producer_epoch, tagged.transactional) == (5, 3, True)
    assert list(tagged.records) == [(b"c", b"2" * 200_000)]
    assert (marker.base_offset, marker.producer_id, marker.marker_commits) == (3, 5, True)
    assert [batch.marker_commits for batch in (plain, tagged)] == [None, None]
    assert [batch.timestamp_ms for batch in (plain, tagged)] == [NOW_MS, NOW_MS + 1]
    directory.close()


async def test_a_flipped_bit_in_a_trusted_log_stops_the_replay(tmp_path: Path, commit: LogFlusher) -> None:
    directory, partition = open_log(tmp_path)
    log = PartitionCoordinatorLog(partition, commit)
    log.append([(b"key", b"value")], NOW_MS)
    await log.newest.durable()
    directory.close()
    segment = tmp_path / str(TP) / f"{0:020d}.log"
    data = bytearray(segment.read_bytes())
    data[-3] ^= 1
    segment.write_bytes(data)

    directory, partition = open_log(tmp_path)
    with pytest.raises(LogUnreadable, match="__transaction_state-7 at offset 0"):
        list(PartitionCoordinatorLog(partition, commit).replay())
    directory.close()


async def test_a_refused_batch_is_told_with_the_logs_own_code(tmp_path: Path, commit: LogFlusher) -> None:
    """T7: what the client hears is made of it once, by who answers: `coordinator_error`."""
    directory, partition = open_log(tmp_path, LogConfig(max_message_bytes=100))
    log = PartitionCoordinatorLog(partition, commit)
    with pytest.raises(LogBatchTooLarge) as refused:
        log.append([(b"k", b"v" * 200)], NOW_MS)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert coordinator_error(refused.value.code) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert log.newest.end_offset == 0
    directory.close()


async def test_internal_topics_open_logs_on_first_use_and_know_those_on_disk(
    tmp_path: Path, commit: LogFlusher
) -> None:
    directory = LogManager.open(tmp_path)
    opened: list[int] = []

    def open_partition(tp: TopicPartition) -> PartitionLog:
        opened.append(tp.partition)
        return directory.create(tp, bytes(15) + b"x", LogConfig())

    logs = InternalTopicLogs(TP.topic, 50, commit, open_partition, directory.partitions)
    assert (logs.count, list(logs.existing()), opened) == (50, [], [])
    log = logs.log(31)
    assert logs.log(31) is log
    assert opened == [31]
    with pytest.raises(AssertionError, match="no partition 50"):
        logs.log(50)
    await log.append([(b"k", b"v")], NOW_MS).durable()
    assert 31 in logs.existing()
    directory.close()


async def test_a_replay_waits_for_the_flush_of_what_was_appended(tmp_path: Path, commit: LogFlusher) -> None:
    """A shard that is unloaded and loaded again while its last appends are on their way to the disk."""
    directory, partition = open_log(tmp_path, LogConfig())
    log = PartitionCoordinatorLog(partition, commit)
    ticket = log.append([(b"k", b"v")], NOW_MS)
    assert not ticket.is_durable
    with pytest.raises(LogNotHere) as early:
        list(log.replay())
    await early.value.arrived()
    assert [batch.records for batch in log.replay()] == [[(b"k", b"v")]]
    directory.close()


async def test_a_log_that_was_given_up_and_comes_back_is_opened_anew(tmp_path: Path, commit: LogFlusher) -> None:
    directory = LogManager.open(tmp_path)

    def open_partition(tp: TopicPartition) -> PartitionLog:
        return directory.create(tp, bytes(15) + b"x", LogConfig())

    logs = InternalTopicLogs(TP.topic, 50, commit, open_partition, directory.partitions)
    await logs.log(31).append([(b"k", b"v")], NOW_MS).durable()
    directory.release(TopicPartition(TP.topic, 31), "broker 7 leads it")
    ticket = logs.log(31).append([(b"k", b"w")], NOW_MS)
    await ticket.durable()
    assert ticket.end_offset == 2
    directory.close()


@pytest.mark.parametrize("config", [LogConfig(), LogConfig(message_timestamp_type="LogAppendTime")])
async def test_a_single_record_is_kept_as_it_would_be_were_its_batch_checked(
    tmp_path: Path, commit: LogFlusher, config: LogConfig
) -> None:
    """L9: what the broker makes itself is not looked at again, and becomes the same bytes."""
    kept = []
    for name in ("own", "checked"):
        directory, partition = open_log(tmp_path / name, config)
        if name == "own":
            PartitionCoordinatorLog(partition, commit).append([(b"key", b"value")], NOW_MS)
        else:
            partition.append(build_batch([(NOW_MS, b"key", b"value", ())]), AppendOrigin.COORDINATOR, NOW_MS)
        directory.close()
        kept.append((tmp_path / name / str(TP) / f"{0:020d}.log").read_bytes())
    assert kept[0] == kept[1]
