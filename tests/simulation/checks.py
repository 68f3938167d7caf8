"""What must hold when a disk is opened again, whatever happened to it: compared with a replay from zero."""

from typing import NamedTuple

from fencepost.broker.log.durability.flusher import Durability
from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.producer_entries import ProducerEntry
from fencepost.broker.log.producer_state import ProducerStates
from fencepost.broker.log.reading import read_batches
from fencepost.broker.log.storage.files import DescriptorPool, FileStore
from fencepost.protocol.batch_header import BatchHeader, iter_headers, read_header
from fencepost.protocol.control_records import ControlType, read_marker
from fencepost.protocol.records import Record, decode_records
from fencepost.protocol.topics import IsolationLevel, TopicPartition
from tests.kit.disk_nodes import nothing
from tests.kit.sim_disk import SimDisk
from tests.simulation.world import DATA, DESCRIPTORS, Kept, Promise, Promises
from tests.unit.log.compaction_kit import batches as batches_of
from tests.unit.log.kit import COMMITTED, joined


class Transaction(NamedTuple):
    """A transaction with data in the log."""

    producer_id: int
    first_offset: int
    marker_offset: int | None
    aborted: bool


class Truth(NamedTuple):
    """What follows from the batches of a log, one after the other from zero."""

    producers: list[ProducerEntry]
    transactions: list[Transaction]
    last_stable_offset: int


def replay(batches: list[Kept], end_offset: int) -> Truth:
    """Fold all batches below `end_offset`; all of them are visible."""
    states = ProducerStates()
    ended: list[Transaction] = []
    for batch in batches:
        if batch.base_offset >= end_offset:
            break
        header = read_header(batch.data)
        if header.producer_id < 0:
            continue
        if not header.is_control:
            states.replay_data(header)
            continue
        marker = read_marker(batch.data, 0, header)
        commit = marker.type is ControlType.COMMIT
        end = states.commit_marker(
            header.producer_id,
            header.producer_epoch,
            commit,
            marker.coordinator_epoch,
            header.max_timestamp,
            header.base_offset,
        )
        if end is not None:
            ended.append(Transaction(end.producer_id, end.first_offset, header.base_offset, end.aborted))
    is_open = [Transaction(txn.producer_id, txn.first_offset, None, False) for txn in states.open_transactions()]
    undecided = states.first_undecided_offset()
    return Truth(sorted(states.entries()), ended + is_open, end_offset if undecided is None else undecided)


def reopen(disk: SimDisk, durability: Durability) -> LogManager:
    """The data directory in the hands of a new process."""
    return LogManager.over(FileStore(DATA, DescriptorPool(DESCRIPTORS), disk=disk), durability)


def check(disk: SimDisk, durability: Durability, before: Promises, after: Promises, *, power_was_cut: bool) -> None:
    """Open `disk` and hold it against what was promised when a crash came between two moments.

    `before` binds: in `fsync` durability what was acknowledged is there; so it is in `os` durability if only the
    process died. `after` bounds: nothing is there that nobody wrote.
    """
    keeps_all = durability == "os" and not power_was_cut
    binding = durability == "fsync" or not power_was_cut
    directory = reopen(disk, durability)
    earlier_ids = frozenset[bytes]().union(*(promise.partition.earlier_ids for promise in before.values()))
    directory.deleted_topic_ids = earlier_ids
    ends, starts = {}, {}
    for tp, promise in before.items():
        later = after.get(tp)
        if later is None or later.partition is not promise.partition:
            if tp not in directory.partitions():
                continue  # the deletion that was under way has come through
            later = promise
        log = directory.create(tp, promise.partition.topic_id, promise.partition.config)
        owed = (promise.end if keeps_all else promise.high) if binding else 0
        assert owed <= log.log_end_offset <= later.end, f"{tp} ends at {log.log_end_offset}, owed {owed} to {later.end}"
        if not binding:  # what was deleted can be lost with the rest: the log begins again where it ends
            promise = promise._replace(deleted_below=min(promise.deleted_below, log.log_end_offset), high=0)
        _check_log(tp, log, promise, later)
        ends[tp] = log.log_end_offset, sorted(log.producers.entries())
        starts[tp] = log.log_start_offset
    # What readers of that start could see outlives the next crash, too (row L2: the high watermark is durable).
    again = reopen(disk.power_cut(nothing) if durability == "fsync" else disk.kill(), durability)
    again.deleted_topic_ids = earlier_ids
    for tp, (end_offset, producers) in ends.items():
        log = again.create(tp, before[tp].partition.topic_id, before[tp].partition.config)
        found = log.log_end_offset, sorted(log.producers.entries())
        assert found == (end_offset, producers), f"{tp} is another one when it is opened a second time"
        assert log.log_start_offset == starts[tp], f"{tp} begins elsewhere when it is opened a second time"


def check_readers(directory: LogManager, promises: Promises) -> None:
    """In the living process: whoever reads gets just what was acknowledged (row I1), whatever the disk refuses."""
    for log in list(directory.logs()):
        promise = promises.get(log.tp)
        if promise is None:
            continue
        start, high = log.log_start_offset, log.high_watermark
        assert high <= promise.high, f"{log.tp} shows offsets up to {high}, only {promise.high} are acknowledged"
        batches = promise.partition.batches
        expected = [batch.data for batch in batches if batch.last_offset >= start and batch.base_offset < high]
        if promise.partition.config.compacted:
            check_compacted(log, batches)
            continue
        assert read_all(log, IsolationLevel.READ_UNCOMMITTED) == b"".join(expected), f"{log.tp} gives other bytes"


def _check_log(tp: TopicPartition, log: PartitionLog, promise: Promise, later: Promise) -> None:
    start, end = log.log_start_offset, log.log_end_offset
    latest_start = max(later.start, later.high) if promise.unsure or later.unsure else later.start
    assert promise.deleted_below <= start <= max(latest_start, promise.start), f"{tp} starts at {start}"
    batches = promise.partition.batches
    if promise.partition.config.compacted:
        check_compacted(log, batches)
    else:
        expected = [batch for batch in batches if batch.last_offset >= start and batch.base_offset < end]
        got = read_all(log, IsolationLevel.READ_UNCOMMITTED)
        assert got == b"".join(batch.data for batch in expected), f"{tp} holds other bytes than were written"
    truth = replay(batches, end)
    assert sorted(log.producers.entries()) == truth.producers, f"{tp}: producers (P9) differ from a replay from zero"
    stable = max(start, min(truth.last_stable_offset, log.high_watermark))
    assert log.last_stable_offset == stable, f"{tp}: LSO (I1) is {log.last_stable_offset}, not {stable}"
    if not promise.partition.config.compacted:
        check_committed_view(tp, log, truth)


def check_committed_view(tp: TopicPartition, log: PartitionLog, truth: Truth) -> None:
    """Rows I2 and I3: a reader of committed data, who drops what the aborted list names, keeps just the rest."""
    lost = [txn for txn in truth.transactions if txn.aborted]
    offset = log.log_start_offset
    while True:
        result = read_batches(log, offset, 400, IsolationLevel.READ_COMMITTED)
        headers = [header for _, header in iter_headers(joined(result.parts))]
        if not headers:
            break
        upper = headers[-1].next_offset
        expected = sorted(
            (txn.first_offset, txn.producer_id)
            for txn in lost
            if txn.first_offset < upper and (txn.marker_offset or 0) >= offset
        )
        found = sorted((first, producer) for producer, first in result.aborted or [])
        assert found == expected, f"{tp} from {offset} to {upper}: aborted list {found}, not {expected}"
        for header in headers:
            assert not _undecided(header, truth), f"{tp}: offset {header.base_offset} is undecided and was delivered"
        offset = upper


def check_compacted(log: PartitionLog, batches: list[Kept]) -> None:
    """Row L5: a reader of committed data finds the latest value of each key, and nothing that was not committed."""
    stable = log.last_stable_offset
    # What lies at or above the high watermark is not visible yet, and neither are its markers.
    truth = replay(batches, log.high_watermark)
    lost = [(txn.producer_id, txn.first_offset, txn.marker_offset or 0) for txn in truth.transactions if txn.aborted]
    expected: dict[int, Record] = {}
    for batch in batches:
        header = read_header(batch.data)
        if header.is_control or batch.base_offset >= stable:
            continue
        aborted = any(p == header.producer_id and first <= batch.base_offset < marker for p, first, marker in lost)
        if not (header.is_transactional and aborted):
            records = decode_records(batch.data, 0, header)
            expected |= {record.offset: record for record in records if record.offset >= log.log_start_offset}
    found = {record.offset: record for header, got in batches_of(log, COMMITTED) for record in got}
    found = {offset: record for offset, record in found.items() if offset >= log.log_start_offset}
    strangers = {offset for offset, record in found.items() if expected.get(offset) != record}
    assert not strangers, f"{log.tp}: readers of committed data get offsets {sorted(strangers)}, which nobody committed"
    latest, table = _table(expected), _table(found)
    assert table == latest, f"{log.tp}: the latest offsets by key are {table}, not {latest}"


def _table(records: dict[int, Record]) -> dict[bytes | None, int]:
    return {records[offset].key: offset for offset in sorted(records)}


def _undecided(header: BatchHeader, truth: Truth) -> bool:
    return any(
        txn.marker_offset is None and txn.producer_id == header.producer_id and header.base_offset >= txn.first_offset
        for txn in truth.transactions
        if header.is_transactional and not header.is_control
    )


def read_all(log: PartitionLog, isolation: IsolationLevel) -> bytes:
    """Every byte that a reader of `isolation` gets."""
    found = bytearray()
    offset = log.log_start_offset
    while True:
        result = read_batches(log, offset, 700, isolation)
        assert not result.error, result
        if not result.size_bytes:
            return bytes(found)
        data = joined(result.parts)
        found += data
        offset = [header for _, header in iter_headers(data)][-1].next_offset
