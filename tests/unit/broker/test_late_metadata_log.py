"""The metadata log over a store that other controllers write to: an append stands where it was expected, or nowhere."""

from collections.abc import AsyncIterator

import pytest
import trio

from fencepost.broker.log.durability.flusher import LogFlusher
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.metadata.log import MetadataPartitionLog
from fencepost.coordinator.metadata.journal import MetadataJournal
from fencepost.coordinator.metadata.ports import Bounds
from fencepost.coordinator.ports import LogSuperseded
from fencepost.protocol.batch_header import read_header
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.metadata_record_types import FeatureLevelRecord, NoOpRecord
from fencepost.protocol.metadata_records import encode_metadata_record
from fencepost.protocol.record_batch import build_batch
from tests.kit.clocks import StillClock
from tests.kit.late_log_store import LateLogStore
from tests.unit.log.kit import NOW_MS, late_log

RIVAL = encode_metadata_record(FeatureLevelRecord("rival", 1))


@pytest.fixture
def partition() -> PartitionLog:
    return late_log(LateLogStore(MemoryStore()))


@pytest.fixture
async def log(partition: PartitionLog) -> AsyncIterator[MetadataPartitionLog]:
    """The partition as a controller's log, with a flusher at work."""
    flusher = LogFlusher("fsync")
    async with trio.open_nursery() as nursery:
        await nursery.start(flusher.run)
        yield MetadataPartitionLog(partition, flusher)
        nursery.cancel_scope.cancel()


def another_controller_writes(partition: PartitionLog) -> None:
    partition.segments.rows.write(build_batch([(NOW_MS, None, RIVAL, ())]), partition.config)


def rows(partition: PartitionLog) -> list[tuple[int, int]]:
    """(base offset, records) of every row that is there."""
    headers = [read_header(row) for row in partition.segments.rows.since(0)]
    return [(header.base_offset, header.last_offset_delta + 1) for header in headers]


async def test_no_append_is_shifted_behind_another_controllers(
    log: MetadataPartitionLog, partition: PartitionLog
) -> None:
    """A broker's epoch and an image's offset are offsets of records, known before they are durable (KIP-868)."""
    ticket = log.append([b"one"], NOW_MS)
    another_controller_writes(partition)
    with pytest.raises(LogSuperseded):
        await ticket.durable()
    assert rows(partition) == [(0, 1)]


async def test_what_was_decided_on_a_refused_append_is_refused_too_wherever_the_log_ends(
    log: MetadataPartitionLog, partition: PartitionLog
) -> None:
    """The second one was expected at offset 1, where the log ends now, but on the first one."""
    first = log.append([b"one"], NOW_MS)
    second = log.append([b"two"], NOW_MS)
    newest = log.newest
    another_controller_writes(partition)
    for ticket in (first, second, newest, log.newest):
        with pytest.raises(LogSuperseded):
            await ticket.durable()
    assert rows(partition) == [(0, 1)]


async def test_without_another_writer_appends_are_bound_where_they_were_expected(
    log: MetadataPartitionLog, partition: PartitionLog
) -> None:
    await log.append([b"one", b"two"], NOW_MS).durable()
    last = log.append([b"three"], NOW_MS)
    await log.newest.durable()
    assert (last.end_offset, last.is_durable, log.end_offset) == (3, True, 3)
    assert rows(partition) == [(0, 2), (2, 1)]


async def test_a_controller_whose_append_is_refused_late_steps_down_and_reads_what_the_other_one_wrote(
    log: MetadataPartitionLog, partition: PartitionLog
) -> None:
    journal = MetadataJournal(log, StillClock(), Bounds(), lambda: None)
    journal.begin(None)
    journal.claim()
    await journal.write([FeatureLevelRecord("mine", 1)])
    await journal.settle()
    await journal.write([NoOpRecord()])
    another_controller_writes(partition)
    with pytest.raises(LogSuperseded) as refused:
        await journal.settle()
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert not journal.active
    journal.catch_up()
    await journal.settle()
    assert dict(journal.image.features) == {"mine": 1, "rival": 1}
    assert journal.is_aligned
